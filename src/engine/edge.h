/* edge.h - messages over a link: a length, then that many bytes; lengths beyond the limit ask whether the
 * peer is there, and answer. Under the progress lock; nothing blocks. */
#ifndef HVD_ENGINE_EDGE_H
#define HVD_ENGINE_EDGE_H

#include "net/socket.h"
#include "transport/transport.h"

#include <stdbool.h>

#define EDGE_MESSAGE_LIMIT (16u << 20) /* bytes; more is taken for garbage */

#define EDGE_SILENT 12 /* heartbeats missed: the peer has not answered a request */

struct edge {
    struct stream stream; /* over the link; first, see read_link */
    int peer;
    struct link *link;
    bool deaf;                  /* nothing more comes */
    bool mute;                  /* nothing more goes; what the peer sent before may still come */
    bool alive;                 /* bytes came since the last check, which clears it (heartbeat.c) */
    unsigned missed_heartbeats; /* since then */
    struct edge **unsent;       /* the owner's list of edges to be flushed */
    struct edge *next_unsent;
    bool listed; /* in it */
};

void edge_init(struct edge *edge, int peer, struct link *link, struct edge **unsent);
void edge_fini(struct edge *edge);

/* Whole or, when memory is out, not at all: see edge_starved. */
void edge_put(struct edge *edge, const uint8_t *bytes, size_t length);

/* Makes the engine of a living peer answer. */
void edge_ping(struct edge *edge);

/* Whether the peer's host has all messages, or will never have them: what is silent takes nothing. */
bool edge_is_delivered(const struct edge *edge);

/* Gives the links as much as they take; true when any byte moved. An edge stays in the list while bytes are
 * left, or until edge_starved has returned that memory was out. */
bool edges_flush(struct edge **unsent);

enum edge_event { EDGE_NOTHING, EDGE_MESSAGE, EDGE_GARBAGE };

/* Whether memory for a message was out since the last call. Until then nothing more is put, and what came
 * waits. */
bool edge_starved(struct edge *edge);

/* The next whole message, valid until the next call. EDGE_GARBAGE: the peer announced an impossible length.
 */
enum edge_event edge_next(struct edge *edge, const uint8_t **bytes, size_t *length);

#endif
