/* sink.c - see sink.h. */
#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FULL_BYTES (1 << 20)

void sink_open(struct sink *sink, uv_loop_t *loop, int file)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    *sink = (struct sink){.loop = loop, .file = file};
    sink->colour = isatty(file) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
}

void sink_free(struct sink *sink)
{
    wire_writer_free(&sink->waiting);
    wire_writer_free(&sink->going);
}

void sink_put(struct sink *sink, const void *bytes, size_t length)
{
    if (sink->error)
        return;
    wire_put_raw(&sink->waiting, bytes, length);
    if (sink->waiting.failed)
        sink->error = ENOMEM;
}

static int write_all(int file, const uint8_t *bytes, size_t length)
{
    while (length > 0) {
        ssize_t count = write(file, bytes, length);
        /* Another program that shares the file may have made it non-blocking. */
        if (count < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = file, .events = POLLOUT}, 1, -1);
        else if (count < 0 && errno != EINTR)
            return errno;
        if (count < 0)
            continue;
        bytes += count;
        length -= (size_t)count;
    }
    return 0;
}

static void write_in_pool(uv_work_t *work)
{
    struct sink *sink = work->data;
    sink->outcome = write_all(sink->file, sink->going.bytes, sink->going.length);
}

static void sink_written(uv_work_t *work, int result)
{
    (void)result;
    struct sink *sink = work->data;
    sink->writing = false;
    sink->going.length = 0;
    if (sink->outcome)
        sink->error = sink->outcome;
    if (sink->error)
        sink->waiting.length = 0;
    sink_flush(sink);
}

void sink_flush(struct sink *sink)
{
    if (sink->writing || sink->waiting.length == 0)
        return;
    /* The two change places: what is going must stay put while the loop takes more. */
    struct wire_writer empty = sink->going;
    sink->going = sink->waiting;
    sink->waiting = empty;
    sink->work.data = sink;
    sink->writing = true;
    if (uv_queue_work(sink->loop, &sink->work, write_in_pool, sink_written)) {
        sink->writing = false;
        sink->error = ENOMEM;
    }
}

bool sink_full(const struct sink *sink)
{
    return sink->waiting.length >= FULL_BYTES;
}

bool sink_idle(const struct sink *sink)
{
    return !sink->writing && (sink->waiting.length == 0 || sink->error);
}
