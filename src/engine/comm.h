/* comm.h - the communicators of process sets: the edges of the coordinator, the communicator itself, and how
 * process sets come and go. */
#ifndef HVD_ENGINE_COMM_H
#define HVD_ENGINE_COMM_H

#include "backend/backend.h"
#include "base/socket.h"
#include "base/thread.h"
#include "base/topology.h"
#include "coordinate/coordinator.h"
#include "horovod.h"
#include "transport/mesh.h"
#include "transport/transport.h"
#include "watch/stall.h"

#include <stdbool.h>

/* ---- edge ------------------------------------------------------------------------------------------------
 * Messages over a link: a length, then so many bytes; lengths beyond the limit ask whether the peer
 * is there, and answer. Under the progress lock; nothing blocks. */

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

/* ---- comm ------------------------------------------------------------------------------------------------
 * One process set at work: its coordinator, its own connections, and the batches under way.
 * Communicators share nothing, so an operation of one set never waits for another set. Under the progress
 * lock, except comm_open. */

struct hvd_context;

/* Links to each peer: messages of the coordinator, long batches, short batches. */
enum comm_channel { CHANNEL_CONTROL, CHANNEL_LONG, CHANNEL_SHORT, CHANNELS };

struct comm {
    struct hvd_context *context;
    int id;         /* of the process set; 0: all ranks of the job */
    int rank, size; /* in the set */
    int *ranks;     /* of the job, ascending */
    struct topology topology;
    struct mesh *mesh;
    struct backends backends;
    struct coordinator *coordinator;
    struct edge *edges; /* to every peer of the mesh */
    int edge_count;
    struct edge *unsent;        /* edges with messages that have not left this process */
    uint64_t latency_threshold; /* the root's choice of algorithms */
    uint64_t ring_piece_bytes;
    struct tuning *tuning;       /* of the first communicator at its root, while values are looked for */
    struct stall_summary stalls; /* of the present flush */
    bool active;                 /* inputs since the last flush */
    bool suspended;              /* nothing to do until a request or a peer's news resumes it */
    unsigned idle_turns;         /* of progress, in a row */
    int64_t shrink_at;           /* when it returns memory, if it is still suspended then */
    bool shrinks;                /* it is in the context's `shrinking` */
    bool decides;                /* the present flush has decided something */
    int64_t next_flush;          /* clock time at which the coordinator needs one without inputs */
    hvd_code health;             /* of the coordinator, as far as it was acted on */
    bool closed;                 /* no member needs this rank any more */
    struct hvd_handle *remover;  /* the request that ends the set */
    struct set_counters *counters;
    int held; /* requests that were named and held back, and how many of each operation */
    uint64_t held_unnamed[UNNAMED_KINDS]; /* have a number for a name */
    struct atfork_handler
        watch;         /* a child must let go of the connections, which would hide this process's death */
    struct comm *next; /* in the context's list */
    struct comm *next_running; /* likewise, of those that are not suspended */
    struct comm *next_shrinking;
};

/* Connects to the other members; blocks until `deadline` at most, or the interrupt (NULL: none). Touches
 * nothing that is under the progress lock. */
hvd_code comm_open(struct hvd_context *context, int id, const int *ranks, int size, int64_t deadline,
                   const struct interrupt *interrupt, struct comm **comm, hvd_status *status);

/* comm.c: what the coordinator is given. */
struct coordinator_output comm_output(struct comm *comm);

/* After its batches have ended; NULL is fine. */
void comm_close(struct comm *comm);

/* Names the request if it has no name, so that later ones have later numbers, and leaves it to comm_take. */
void comm_hold(struct comm *comm, struct hvd_handle *handle);

/* Names the request if it has no name, and gives it to the coordinator; a refusal finishes the handle. */
void comm_take(struct comm *comm, struct hvd_handle *handle);

/* An idle communicator is left out of progress, arming and heartbeats, so it costs nothing. False when it is
 * not idle. */
bool comm_suspend(struct comm *comm);
void comm_resume(struct comm *comm);

/* This rank leaves the set: the coordinator ends it in order. */
void comm_leave(struct comm *comm);

/* Reports a fault to the coordinator. `lost_rank`, of the job: the lost one; -1: none. */
void comm_abort(struct comm *comm, int lost_rank, const hvd_status *cause);

/* Ends everything in it with this cause. */
void comm_end(struct comm *comm, const hvd_status *cause);

/* Sends what waits on the edges; true when any byte moved. */
bool comm_flush(struct comm *comm);

/* Whether all messages have left this process. */
bool comm_is_flushed(const struct comm *comm);

/* Whether this rank waits for nothing here and owes nothing: then only its next request is urgent. */
bool comm_is_quiet(const struct comm *comm);

/* Whether the next turn has something to do that no peer announces: then no thread may go to sleep. */
bool comm_is_ready(const struct comm *comm);

/* When it needs a turn though nothing arrives; CLOCK_NEVER: not at all. */
int64_t comm_deadline(const struct comm *comm);

/* Takes in what arrived, lets the coordinator act, sends, moves data. True when anything moved. `now` as in
 * progress. */
bool comm_progress(struct comm *comm, int64_t now);

/* ---- membership ------------------------------------------------------------------------------------------
 * Process sets come and go (hvd_process_set_add and _remove are in membership.c). Under the
 * progress lock. */

/* The communicator of a process set; NULL: there is none. */
struct comm *membership_find(const struct hvd_context *context, int id);

/* The batch of a request to add or remove a set: all ranks carry it out at the same place of their order. */
void membership_decided(struct hvd_context *context, struct hvd_handle *handle);

/* Communicators that user threads have opened join the list. */
void membership_adopt(struct hvd_context *context);

/* Removed sets that have closed leave the list. */
void membership_reap(struct hvd_context *context);

/* All communicators, at the end of the context. */
void membership_close(struct hvd_context *context);

#endif
