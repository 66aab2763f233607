/* comm.h - one process set at work: its coordinator, its own connections, and the batches under way.
 * Communicators share nothing, so an operation of one set never waits for another set. Under the progress
 * lock, except comm_open. */
#ifndef HVD_ENGINE_COMM_H
#define HVD_ENGINE_COMM_H

#include "backend/backend.h"
#include "base/thread.h"
#include "base/topology.h"
#include "coordinate/coordinator.h"
#include "coordinate/stall.h"
#include "engine/edge.h"
#include "horovod.h"
#include "transport/mesh_open.h"

#include <stdbool.h>

struct hvd_handle;
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
    bool asks;                   /* a process set has asked for a turn since then: of set 0 */
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

/* Reports a fault to the coordinator; unless the set has closed, it ends everything in the next turn at the
 * latest. The first one counts. `lost_rank`, of the job: the lost one; -1: none. */
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

#endif
