/* edge.c - see edge.h. The stream is never padded: what is read is copied out, so alignment does not matter.
 */
#include "engine/edge.h"

#include <string.h>

/* Instead of a length. */
#define QUESTION UINT32_MAX
#define ANSWER   (UINT32_MAX - 1)

void edge_init(struct edge *edge, int peer, struct link *link)
{
    *edge = (struct edge){.peer = peer, .link = link};
    link->want_read = true;
}

void edge_fini(struct edge *edge)
{
    wire_writer_free(&edge->out);
    wire_writer_free(&edge->in);
    *edge = (struct edge){0};
}

void edge_put(struct edge *edge, const uint8_t *bytes, size_t length)
{
    if (!edge->mute && wire_reserve(&edge->out, edge->out.length + sizeof(uint32_t) + length))
        wire_put_blob(&edge->out, bytes, (uint32_t)length);
}

void edge_ping(struct edge *edge)
{
    if (!edge->mute)
        wire_put_u32(&edge->out, QUESTION);
}

/* What is on its way already is answer enough, so that questions can't pile up answers. */
static void answer(struct edge *edge)
{
    if (!edge->mute && !edge->out.length)
        wire_put_u32(&edge->out, ANSWER);
}

bool edge_flush(struct edge *edge)
{
    size_t before = edge->sent;
    while (!edge->mute && edge->sent < edge->out.length) {
        struct iovec part = {edge->out.bytes + edge->sent, edge->out.length - edge->sent};
        ssize_t moved = link_send(edge->link, &part, 1);
        if (moved < 0)
            edge->mute = true;
        if (moved <= 0)
            break;
        edge->sent += (size_t)moved;
    }
    bool any = edge->sent > before;
    /* A link that is broken takes nothing more: what waits for it is dropped. */
    if (edge->mute || edge->sent == edge->out.length) {
        edge->sent = 0;
        wire_reset(&edge->out);
    }
    edge->link->want_write = edge->out.length > 0;
    return any;
}

bool edge_is_flushed(const struct edge *edge)
{
    return edge->mute || edge->out.length == 0;
}

bool edge_starved(struct edge *edge)
{
    bool starved = edge->out.failed || edge->in.failed;
    edge->out.failed = edge->in.failed = false;
    return starved;
}

/* Fills [*have, want) of `to`; true when it is full. */
static bool fill(struct edge *edge, uint8_t *to, size_t *have, size_t want)
{
    while (*have < want) {
        struct iovec part = {to + *have, want - *have};
        ssize_t moved = link_receive(edge->link, &part, 1);
        if (moved < 0) {
            edge->deaf = true;
            edge->link->want_read = false;
        }
        if (moved <= 0)
            return false;
        *have += (size_t)moved;
        edge->alive = true;
    }
    return true;
}

static bool take_sign_of_life(struct edge *edge, size_t sign)
{
    if (sign != QUESTION && sign != ANSWER)
        return false;
    if (sign == QUESTION)
        answer(edge);
    edge->header_length = 0;
    return true;
}

enum edge_event edge_next(struct edge *edge, const uint8_t **bytes, size_t *length)
{
    size_t wanted;
    do {
        /* Between two messages: the last one was the caller's until this call. */
        if (!edge->header_length)
            wire_reset(&edge->in);
        if (edge->deaf || !fill(edge, edge->header, &edge->header_length, sizeof edge->header))
            return EDGE_NOTHING;
        struct wire_reader reader = wire_reader_of(edge->header, sizeof edge->header);
        wanted = wire_get_u32(&reader);
    } while (take_sign_of_life(edge, wanted));
    if (wanted > EDGE_MESSAGE_LIMIT) {
        edge->deaf = true;
        return EDGE_GARBAGE;
    }
    if (!wire_reserve(&edge->in, wanted) || !fill(edge, edge->in.bytes, &edge->in.length, wanted))
        return EDGE_NOTHING;
    *bytes = edge->in.bytes;
    *length = wanted;
    edge->header_length = 0;
    return EDGE_MESSAGE;
}
