/* sink.c - see sink.h. */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL_BYTES (1 << 20)

/* Whether a file blocks is shared with the other programs that have it from the same opening, so this opens
 * it again. That is refused for sockets, and for files of another user. A regular file has its position in
 * common with them, and room at any time. */
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
        fcntl(file, F_SETFL, flags); /* libuv has made it non-blocking for all who share it */
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

static bool has_room(const struct sink *sink)
{
    return !sink->polled || poll(&(struct pollfd){.fd = sink->file, .events = POLLOUT}, 1, 0) > 0;
}

/* How much was written. With room, PIPE_BUF bytes do not block a file that can. */
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
    (void)status; /* if it is an error the next write has it, too */
    (void)events;
    sink_flush(room->data);
}

void sink_flush(struct sink *sink)
{
    struct wire_writer *waiting = &sink->waiting;
    size_t done = 0, count = 1;
    while (count && done < waiting->length && has_room(sink)) {
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
