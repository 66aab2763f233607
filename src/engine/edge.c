/* edge.c - the stream of messages on a link, and the pings and pongs that show that a peer is alive.
 * The stream is never padded: bytes are copied out of it, so alignment does not matter. Under the progress
 * lock. */
#include "engine/edge.h"

#include <errno.h>

/* They are sent instead of the length of a message. */
#define PING UINT32_MAX
#define PONG (UINT32_MAX - 1)

static ssize_t as_of_a_socket(ssize_t moved)
{
    if (moved > 0)
        return moved;
    errno = moved ? EPIPE : EAGAIN;
    return -1;
}

static ssize_t read_link(struct stream *stream, void *bytes, size_t length)
{
    struct edge *edge = (struct edge *)stream;
    struct iovec part = {bytes, length};
    ssize_t moved = link_receive(edge->link, &part, 1);
    edge->alive |= moved > 0;
    return as_of_a_socket(moved);
}

static ssize_t write_link(struct stream *stream, const void *bytes, size_t length)
{
    struct iovec part = {(void *)bytes, length};
    return as_of_a_socket(link_send(((struct edge *)stream)->link, &part, 1));
}

void edge_init(struct edge *edge, int peer, struct link *link, struct edge **unsent)
{
    static const struct stream_io io = {read_link, write_link};
    *edge = (struct edge){.stream = {.io = &io}, .peer = peer, .link = link, .unsent = unsent};
}

void edge_fini(struct edge *edge)
{
    stream_free(&edge->stream);
    *edge = (struct edge){0};
}

/* Returns NULL if the link is broken: then nothing more is sent. */
static struct wire_writer *begin_put(struct edge *edge)
{
    if (edge->mute)
        return NULL;
    if (!edge->listed) {
        edge->listed = true;
        edge->next_unsent = *edge->unsent;
        *edge->unsent = edge;
    }
    return &edge->stream.out;
}

void edge_put(struct edge *edge, const uint8_t *bytes, size_t length)
{
    struct wire_writer *out = begin_put(edge);
    if (out && wire_reserve(out, out->length + STREAM_HEADER_BYTES + length))
        wire_put_blob(out, bytes, (uint32_t)length);
}

void edge_ping(struct edge *edge)
{
    struct wire_writer *out = begin_put(edge);
    if (out)
        wire_put_u32(out, PING);
}

static bool flush(struct edge *edge)
{
    struct wire_writer *out = &edge->stream.out;
    size_t unsent = out->length - edge->stream.sent;
    edge->mute = edge->mute || stream_write(&edge->stream) > STREAM_AGAIN;
    bool any = out->length - edge->stream.sent < unsent;
    if (edge->mute) {
        edge->stream.sent = 0;
        wire_reset(out);
    }
    edge->link->want_write = out->length > 0;
    link_await(edge->link);
    return any;
}

bool edges_flush(struct edge **unsent)
{
    bool any = false;
    for (struct edge **place = unsent, *edge; (edge = *place);) {
        any |= flush(edge);
        edge->listed = edge->stream.out.length || edge->stream.out.failed;
        if (edge->listed)
            place = &edge->next_unsent;
        else
            *place = edge->next_unsent;
    }
    return any;
}

bool edge_is_delivered(const struct edge *edge)
{
    bool (*is_delivered)(const struct link *) = edge->link->operations->is_delivered;
    bool gone = edge->mute || edge->deaf || edge->missed_heartbeats >= EDGE_SILENT;
    return gone || (!edge->stream.out.length && (!is_delivered || is_delivered(edge->link)));
}

bool edge_starved(struct edge *edge)
{
    bool starved = edge->stream.out.failed || edge->stream.in.failed;
    edge->stream.out.failed = edge->stream.in.failed = false;
    return starved;
}

/* Returns true if the length is a ping, which it answers, or a pong. Unsent bytes are an answer already, so
 * pings can't pile up answers. */
static bool is_sign_of_life(struct edge *edge, size_t length)
{
    if (length == PING) {
        struct wire_writer *out = begin_put(edge);
        if (out && !out->length)
            wire_put_u32(out, PONG);
    }
    return length == PING || length == PONG;
}

enum edge_event edge_next(struct edge *edge, const uint8_t **bytes, size_t *length)
{
    enum stream_outcome outcome;
    if (edge->deaf || link_is_empty(edge->link))
        return EDGE_NOTHING;
    do
        outcome = stream_read(&edge->stream, EDGE_MESSAGE_LIMIT, bytes, length);
    while (outcome == STREAM_TOO_LONG && is_sign_of_life(edge, *length));
    if (outcome == STREAM_FAILED)
        edge->link->want_read = false;
    edge->deaf = outcome == STREAM_FAILED || outcome == STREAM_TOO_LONG;
    if (outcome == STREAM_TOO_LONG)
        return EDGE_GARBAGE;
    return outcome ? EDGE_NOTHING : EDGE_MESSAGE;
}
