/* output.c - passes on and copies the output of ranks, and writes to the launcher's own streams without
 * waiting for their readers. One thread, the loop's. */
#include "output.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- sinks --------------------------------------------------------------------------------------------- */

#define FULL_BYTES (1 << 20)

/* Programs that share one opening of a file also share whether it blocks, so this opens it a second time. The
 * system refuses that for sockets, and for files of another user. A regular file is not opened again: its
 * position is shared, and writing to it never blocks for long. */
static int open_again(int file)
{
    struct stat info;
    char path[64];
    if (fstat(file, &info) || !(S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void sink_open(struct sink *sink, uv_loop_t *loop, int file)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    int own = open_again(file), flags = fcntl(file, F_GETFL);
    *sink = (struct sink){.file = own >= 0 ? own : file, .owned = own >= 0};
    sink->colour = isatty(file) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
    sink->polled = uv_poll_init(loop, &sink->room, sink->file) == 0;
    sink->room.data = sink;
    if (!sink->owned)
        fcntl(file, F_SETFL, flags); /* libuv has made it non-blocking for all processes that share it */
}

void sink_adopt(struct sink *sink, uv_loop_t *loop, int file)
{
    sink_open(sink, loop, file);
    if (sink->owned)
        close(file);
    sink->owned = true;
}

void sink_close(struct sink *sink)
{
    if (!sink->owned)
        return;
    if (sink->polled)
        uv_close((uv_handle_t *)&sink->room, NULL);
    close(sink->file);
    sink->owned = sink->polled = false;
    sink->waiting.length = 0;
    sink->error = EPIPE;
}

void sink_free(struct sink *sink)
{
    if (sink->owned)
        close(sink->file);
    wire_writer_free(&sink->waiting);
}

void sink_put(struct sink *sink, const void *bytes, size_t length)
{
    if (sink->error)
        return;
    wire_put_raw(&sink->waiting, bytes, length);
    if (sink->waiting.failed)
        sink->error = ENOMEM;
}

/* Returns the number of bytes written. A file that may block takes PIPE_BUF bytes at once if it has room. */
static size_t write_piece(struct sink *sink, const uint8_t *bytes, size_t length)
{
    bool may_block = sink->polled && !sink->owned;
    ssize_t count;
    do
        count = write(sink->file, bytes, may_block && length > PIPE_BUF ? PIPE_BUF : length);
    while (count < 0 && errno == EINTR);
    if (count < 0 && errno != EAGAIN)
        sink->error = errno;
    return count > 0 ? (size_t)count : 0;
}

static void on_room(uv_poll_t *room, int status, int events)
{
    (void)status; /* the next write returns the same error */
    (void)events;
    sink_flush(room->data);
}

void sink_flush(struct sink *sink)
{
    struct wire_writer *waiting = &sink->waiting;
    size_t done = 0, count = 1;
    struct pollfd room = {.fd = sink->file, .events = POLLOUT};
    while (count && done < waiting->length && (!sink->polled || poll(&room, 1, 0) > 0)) {
        count = write_piece(sink, waiting->bytes + done, waiting->length - done);
        done += count;
    }
    waiting->length = sink->error ? 0 : waiting->length - done;
    if (!sink->polled)
        return;
    if (waiting->length == 0) {
        uv_poll_stop(&sink->room);
    } else {
        memmove(waiting->bytes, waiting->bytes + done, waiting->length);
        uv_poll_start(&sink->room, UV_WRITABLE, on_room);
    }
}

bool sink_full(const struct sink *sink)
{
    return sink->waiting.length >= FULL_BYTES;
}

bool sink_idle(const struct sink *sink)
{
    return sink->waiting.length == 0 || sink->error;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

#define KEPT_LINE_BYTES 1000 /* of each of the last lines */
#define TRACEBACK       "Traceback (most recent call last)"

static void put_prefix(struct output *output)
{
    static const int colours[] = {32, 33, 34, 35, 36, 31};
    char text[160] = "";
    struct sink *sink = output->sink;
    if (output->timestamp) {
        time_t now = time(NULL);
        struct tm parts;
        strftime(text, sizeof text, "%a %b %e %H:%M:%S %Y", localtime_r(&now, &parts));
    }
    if (sink->colour)
        append_text(text, sizeof text, "\033[%dm",
                    colours[output->rank % (int)(sizeof colours / sizeof *colours)]);
    append_text(text, sizeof text, "[%d]<%s>:%s ", output->rank, output_name(output),
                sink->colour ? "\033[0m" : "");
    sink_put(sink, text, strlen(text));
}

static void pass_line(struct output *output, const char *text, size_t length)
{
    put_prefix(output);
    sink_put(output->sink, text, length);
    sink_put(output->sink, "\n", 1);
    /* The last lines are kept for the end of the job. Of a traceback of Python that is its last line only:
     * the whole has been passed on, and there may be one of every rank. */
    bool begins = length >= strlen(TRACEBACK) && memcmp(text, TRACEBACK, strlen(TRACEBACK)) == 0;
    output->in_traceback = begins || (output->in_traceback && length > 0 && *text == ' ');
    if (output->in_traceback)
        return;
    char **place = &output->last[output->lines++ % OUTPUT_LAST_LINES];
    free(*place);
    *place = strndup(text, length < KEPT_LINE_BYTES ? length : text_whole(text, KEPT_LINE_BYTES));
}

static size_t line_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && text[at] != '\n' && text[at] != '\r')
        at++;
    return at;
}

/* Passes on every whole line of the buffer. A carriage return also ends a line, so that progress bars are
 * shown. */
static void pass_lines(struct output *output)
{
    size_t start = 0;
    while (start < output->used) {
        const char *text = output->line + start;
        /* This is the rest of "\r\n", which a later read may return. */
        if (output->after_return && *text == '\n') {
            output->after_return = false;
            start++;
            continue;
        }
        size_t length = line_length(text, output->used - start);
        if (start + length == output->used)
            break;
        output->after_return = text[length] == '\r';
        /* Empty lines count only if they end in '\n': progress bars begin with '\r'. */
        if (length > 0 || !output->after_return)
            pass_line(output, text, length);
        start += length + 1;
    }
    output->used -= start;
    memmove(output->line, output->line + start, output->used);
    if (output->used == OUTPUT_LINE_BYTES) {
        size_t length = text_whole(output->line, output->used);
        pass_line(output, output->line, length);
        output->used -= length;
        memmove(output->line, output->line + length, output->used);
    }
}

static void copy_to_file(struct output *output, const char *bytes, size_t length)
{
    while (output->file >= 0 && length > 0) {
        ssize_t count = write(output->file, bytes, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            output->file_error = errno;
            close(output->file);
            output->file = -1;
            return;
        }
        bytes += count;
        length -= (size_t)count;
    }
}

static void on_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct output *output = handle->data;
    /* The room is never empty: pass_lines leaves no full buffer. */
    size_t room = OUTPUT_LINE_BYTES - output->used;
    if (output->forward && output->credit < room)
        room = output->credit;
    *buffer = uv_buf_init(output->line + output->used, (unsigned)room);
}

bool output_full(const struct output *output)
{
    return output->forward ? output->credit == 0 : output->sink && sink_full(output->sink);
}

/* Handles the bytes after the used part of the line buffer. */
static void accept_bytes(struct output *output, size_t length)
{
    const char *bytes = output->line + output->used;
    if (output->forward) {
        output->credit -= length;
        output->forward(output, bytes, length);
        return;
    }
    copy_to_file(output, bytes, length);
    if (!output->sink)
        return;
    output->used += length;
    pass_lines(output);
    sink_flush(output->sink);
}

void output_feed(struct output *output, const void *bytes, size_t length)
{
    for (size_t piece; output->open && length > 0; length -= piece) {
        piece = OUTPUT_LINE_BYTES - output->used;
        piece = length < piece ? length : piece;
        memcpy(output->line + output->used, bytes, piece);
        accept_bytes(output, piece);
        bytes = (const char *)bytes + piece;
        output->owed += piece;
    }
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)buffer;
    struct output *output = stream->data;
    if (count < 0) {
        output_close(output);
        return;
    }
    accept_bytes(output, (size_t)count);
    if (output_full(output)) {
        /* The pipe fills up, and the rank must wait: nothing is lost, and memory stays bounded. */
        uv_read_stop(stream);
        output->paused = true;
    }
}

hvd_code output_open_fed(struct output *output, hvd_status *status)
{
    output->line = malloc(OUTPUT_LINE_BYTES);
    if (!output->line)
        return status_no_memory(status);
    output->open = output->fed = true;
    return HVD_OK;
}

hvd_code output_open(struct output *output, uv_loop_t *loop, int *child, hvd_status *status)
{
    /* libuv's socket pair would not do: programs open /dev/stdout, which sockets refuse. */
    uv_file ends[2];
    int error = uv_pipe(ends, UV_NONBLOCK_PIPE, 0);
    if (error)
        return status_set_errno(status, -error, "can't make a pipe for rank %d's %s", output->rank,
                                output_name(output));
    *child = ends[1];
    hvd_code code = output_open_fed(output, status);
    if (code) {
        close(ends[0]);
        return code;
    }
    uv_pipe_init(loop, &output->pipe, 0);
    uv_pipe_open(&output->pipe, ends[0]);
    output->pipe.data = output;
    output->fed = false;
    uv_read_start((uv_stream_t *)&output->pipe, on_buffer, on_read);
    return HVD_OK;
}

const char *output_name(const struct output *output)
{
    static const char *const names[OUTPUTS] = {"stdout", "stderr", "result"};
    return names[output->index];
}

hvd_code output_copy_to(struct output *output, const char *path, hvd_status *status)
{
    output->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return output->file >= 0 ? HVD_OK : status_set_errno(status, errno, "can't write %s", path);
}

void output_resume(struct output *output)
{
    if (!output->open || !output->paused || output_full(output))
        return;
    output->paused = false;
    uv_read_start((uv_stream_t *)&output->pipe, on_buffer, on_read);
}

static void on_closed(uv_handle_t *pipe)
{
    struct output *output = pipe->data;
    output->closing = false;
}

void output_close(struct output *output)
{
    if (!output->open)
        return;
    if (output->used > 0)
        pass_line(output, output->line, output->used);
    output->used = 0;
    output->open = false;
    if (output->forward)
        output->forward(output, NULL, 0);
    else if (output->sink)
        sink_flush(output->sink);
    if (output->fed)
        return;
    output->closing = true;
    uv_close((uv_handle_t *)&output->pipe, on_closed);
}

void output_free(struct output *output)
{
    if (output->file >= 0)
        close(output->file);
    for (int i = 0; i < OUTPUT_LAST_LINES; i++)
        free(output->last[i]);
    free(output->line);
}

const char *output_last_line(const struct output *output, unsigned index)
{
    unsigned kept = output->lines < OUTPUT_LAST_LINES ? output->lines : OUTPUT_LAST_LINES;
    return index < kept ? output->last[(output->lines - kept + index) % OUTPUT_LAST_LINES] : NULL;
}
