/* stream.c - see stream.h. No state beside the struct. */
#include "base/stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static ssize_t socket_read(struct stream *stream, void *bytes, size_t length)
{
    return recv(stream->fd, bytes, length, 0);
}

static ssize_t socket_write(struct stream *stream, const void *bytes, size_t length)
{
    return send(stream->fd, bytes, length, MSG_NOSIGNAL);
}

const struct stream_io stream_socket = {socket_read, socket_write};

void stream_free(struct stream *stream)
{
    wire_writer_free(&stream->in);
    wire_writer_free(&stream->out);
}

/* After a call that returned n; STREAM_DONE: one more may move something. */
static enum stream_outcome outcome_of(ssize_t n)
{
    if (n > 0 || (n < 0 && errno == EINTR))
        return STREAM_DONE;
    if (n == 0)
        return STREAM_ENDED;
    return errno == EAGAIN ? STREAM_AGAIN : STREAM_FAILED;
}

enum stream_outcome stream_write(struct stream *stream)
{
    struct wire_writer *out = &stream->out;
    enum stream_outcome outcome = STREAM_DONE;
    while (!outcome && stream->sent < out->length) {
        ssize_t n = stream->io->write(stream, out->bytes + stream->sent, out->length - stream->sent);
        stream->sent += n > 0 ? (size_t)n : 0;
        outcome = outcome_of(n);
    }
    if (stream->sent == out->length) {
        stream->sent = 0;
        wire_reset(out);
    } else if (stream->sent >= out->length - stream->sent) {
        /* Else it would grow as long as some of it always waits. */
        out->length -= stream->sent;
        memmove(out->bytes, out->bytes + stream->sent, out->length);
        stream->sent = 0;
    }
    return outcome;
}

enum stream_outcome stream_fill(struct stream *stream, size_t bytes)
{
    struct wire_writer *in = &stream->in;
    enum stream_outcome outcome = wire_reserve(in, bytes) ? STREAM_DONE : STREAM_NO_MEMORY;
    while (!outcome && in->length < bytes) {
        ssize_t n = stream->io->read(stream, in->bytes + in->length, bytes - in->length);
        in->length += n > 0 ? (size_t)n : 0;
        outcome = outcome_of(n);
    }
    return outcome;
}

enum stream_outcome stream_read(struct stream *stream, size_t limit, const uint8_t **frame, size_t *length)
{
    if (stream->returned)
        wire_reset(&stream->in);
    stream->returned = false;
    enum stream_outcome outcome = stream_fill(stream, STREAM_HEADER_BYTES);
    if (outcome)
        return outcome;
    struct wire_reader header = wire_reader_of(stream->in.bytes, STREAM_HEADER_BYTES);
    *length = wire_get_u32(&header);
    outcome = *length > limit ? STREAM_TOO_LONG : stream_fill(stream, STREAM_HEADER_BYTES + *length);
    *frame = stream->in.bytes + STREAM_HEADER_BYTES;
    stream->returned = outcome == STREAM_DONE || outcome == STREAM_TOO_LONG;
    return outcome;
}

short stream_events(const struct stream *stream)
{
    return stream->sent < stream->out.length ? POLLOUT : POLLIN;
}
