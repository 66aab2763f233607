/* edge.h - messages over a link: a length, then that many bytes. Two lengths beyond the limit are a ping, by
 * which a rank asks whether its peer is alive, and its answer. Under the progress lock; no call blocks. */
#ifndef HVD_ENGINE_EDGE_H
#define HVD_ENGINE_EDGE_H

#include "net/socket.h"
#include "transport/transport.h"

#include <stdbool.h>

#define EDGE_MESSAGE_LIMIT (16u << 20) /* bytes; a longer one is garbage */

#define EDGE_SILENT 12 /* heartbeats missed: the peer has not answered a request */

struct edge {
    struct stream stream; /* over the link; the first member, see read_link */
    int peer;
    struct link *link;
    bool deaf;                  /* no more bytes are received */
    bool mute;                  /* no more bytes are sent; bytes that the peer sent before may still arrive */
    bool alive;                 /* bytes were received since the last check, which clears it (heartbeat.c) */
    unsigned missed_heartbeats; /* consecutive checks without received bytes */
    struct edge **unsent;       /* the owner's list of edges to be flushed */
    struct edge *next_unsent;
    bool listed; /* the edge is in that list */
};

void edge_init(struct edge *edge, int peer, struct link *link, struct edge **unsent);
void edge_fini(struct edge *edge);

/* Queues the whole message, or nothing if memory is out: see edge_starved. */
void edge_put(struct edge *edge, const uint8_t *bytes, size_t length);

/* Makes the engine of a living peer answer. */
void edge_ping(struct edge *edge);

/* Returns true if the peer's host has all messages, or will never have them because the peer is silent. */
bool edge_is_delivered(const struct edge *edge);

/* Sends as much as the links accept; returns true if any byte moved. An edge stays in the list while bytes
 * are left, or until edge_starved has reported that memory was out. */
bool edges_flush(struct edge **unsent);

enum edge_event { EDGE_NOTHING, EDGE_MESSAGE, EDGE_GARBAGE };

/* Returns true if memory for a message was out since the last call. Until this call no message is queued, and
 * received messages wait. */
bool edge_starved(struct edge *edge);

/* Returns the next whole message, which is valid until the next call. EDGE_GARBAGE: the peer announced an
 * impossible length. */
enum edge_event edge_next(struct edge *edge, const uint8_t **bytes, size_t *length);

#endif
