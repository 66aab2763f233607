/* output.c - see output.h. */
#include "output.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEPT_LINE_BYTES 1000 /* of each of the last lines */

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
    append_text(text, sizeof text, "[%d]<%s>:%s ", output->rank, output->stream,
                sink->colour ? "\033[0m" : "");
    sink_put(sink, text, strlen(text));
}

static void keep_line(struct output *output, const char *text, size_t length)
{
    char **place = &output->last[output->lines++ % OUTPUT_LAST_LINES];
    free(*place);
    *place = strndup(text, length < KEPT_LINE_BYTES ? length : KEPT_LINE_BYTES);
}

static void pass_line(struct output *output, const char *text, size_t length)
{
    put_prefix(output);
    sink_put(output->sink, text, length);
    sink_put(output->sink, "\n", 1);
    keep_line(output, text, length);
}

static size_t line_length(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && text[at] != '\n' && text[at] != '\r')
        at++;
    return at;
}

/* Passes on every whole line of the buffer. A carriage return ends a line too, so that progress bars show. */
static void pass_lines(struct output *output)
{
    size_t start = 0;
    while (start < output->used) {
        const char *text = output->line + start;
        /* The rest of "\r\n", which may come with a later read. */
        if (output->after_return && *text == '\n') {
            output->after_return = false;
            start++;
            continue;
        }
        size_t length = line_length(text, output->used - start);
        if (start + length == output->used)
            break;
        output->after_return = text[length] == '\r';
        /* An empty line is one only if it ends in '\n': progress bars begin with '\r'. */
        if (length > 0 || !output->after_return)
            pass_line(output, text, length);
        start += length + 1;
    }
    output->used -= start;
    memmove(output->line, output->line + start, output->used);
    if (output->used == OUTPUT_LINE_BYTES) {
        pass_line(output, output->line, output->used);
        output->used = 0;
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

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct output *output = handle->data;
    /* Never empty: pass_lines leaves no full buffer behind. */
    *buffer = uv_buf_init(output->line + output->used, (unsigned)(OUTPUT_LINE_BYTES - output->used));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    struct output *output = stream->data;
    if (count < 0) {
        output_close(output);
        return;
    }
    copy_to_file(output, buffer->base, (size_t)count);
    output->used += (size_t)count;
    pass_lines(output);
    sink_flush(output->sink);
    if (sink_full(output->sink)) {
        /* The pipe fills up then, and the rank has to wait: nothing is lost, and memory stays bounded. */
        uv_read_stop(stream);
        output->paused = true;
    }
}

hvd_code output_open(struct output *output, uv_loop_t *loop, int *child, hvd_status *status)
{
    /* A pipe, not libuv's socket pair: programs open /dev/stdout, which sockets refuse. */
    uv_file ends[2];
    int error = uv_pipe(ends, UV_NONBLOCK_PIPE, 0);
    if (error)
        return status_set_errno(status, -error, "can't make a pipe for rank %d's %s", output->rank,
                                output->stream);
    *child = ends[1];
    output->line = malloc(OUTPUT_LINE_BYTES);
    if (!output->line) {
        close(ends[0]);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for rank %d's %s", output->rank,
                          output->stream);
    }
    uv_pipe_init(loop, &output->pipe, 0);
    uv_pipe_open(&output->pipe, ends[0]);
    output->pipe.data = output;
    output->open = true;
    uv_read_start((uv_stream_t *)&output->pipe, on_room, on_read);
    return HVD_OK;
}

hvd_code output_copy_to(struct output *output, const char *folder, hvd_status *status)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, output->stream);
    output->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return output->file >= 0 ? HVD_OK : status_set_errno(status, errno, "can't write %s", path);
}

void output_resume(struct output *output)
{
    if (!output->open || !output->paused || sink_full(output->sink))
        return;
    output->paused = false;
    uv_read_start((uv_stream_t *)&output->pipe, on_room, on_read);
}

void output_close(struct output *output)
{
    if (!output->open)
        return;
    if (output->used > 0)
        pass_line(output, output->line, output->used);
    output->used = 0;
    output->open = false;
    sink_flush(output->sink);
    uv_close((uv_handle_t *)&output->pipe, NULL);
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
