/* comm.h - one process set at work: its coordinator, its own connections, and its running batches.
 * Communicators share no state, so an operation of one set never waits for another set. comm_open.h opens and
 * closes them. Under the progress lock. */
#ifndef HVD_ENGINE_COMM_H
#define HVD_ENGINE_COMM_H

#include "backend/backend.h"
#include "base/thread.h"
#include "base/topology.h"
#include "coordinate/coordinator.h"
#include "coordinate/stall.h"
#include "engine/edge.h"
#include "horovod.h"
#include "transport/mesh.h"

#include <stdbool.h>

struct hvd_handle;
struct hvd_context;

/* The links to each peer: for messages of the coordinator, long batches and short batches. */
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
    struct tuning *tuning;       /* at the root of set 0 while autotuning runs; otherwise NULL */
    struct stall_summary stalls; /* of the present flush */
    bool active;                 /* inputs since the last flush */
    bool asks;                   /* set 0 only: a process set has asked for a turn since the last flush */
    bool suspended;              /* idle until a request or a peer resumes it */
    unsigned idle_turns;         /* consecutive turns in which nothing moved */
    int64_t shrink_at;           /* when it returns memory, if it is still suspended then */
    bool shrinks;                /* it is in the context's `shrinking` */
    bool decides;                /* the present flush has decided something */
    int64_t next_flush;          /* clock time at which the coordinator needs a flush without inputs */
    hvd_code health;             /* the coordinator's health that was last acted on */
    bool closed;                 /* no member needs this rank any longer */
    struct hvd_handle *remover;  /* the request that ends the set */
    struct set_counters *counters;
    int held;                             /* requests that were named and held back */
    uint64_t held_unnamed[UNNAMED_KINDS]; /* the ones among them whose name is a number */
    struct atfork_handler watch; /* closes the connections in a child, which would hide this process's end */
    struct comm *next;           /* in the context's list */
    struct comm *next_running;   /* in the list of communicators that are not suspended */
    struct comm *next_shrinking;
};

/* Returns the connection to another rank of the set, or NULL if there is none. */
struct edge *comm_edge(const struct comm *comm, int rank);

/* Names the request if it has no name, so that later ones get later numbers; comm_submit gives it to the
 * coordinator later. */
void comm_hold(struct comm *comm, struct hvd_handle *handle);

/* Names the request if it has no name, and gives it to the coordinator; a refusal finishes the handle. */
void comm_submit(struct comm *comm, struct hvd_handle *handle);

/* A suspended communicator takes no part in progress, arming and heartbeats, so it costs nothing.
 * comm_suspend returns false if the communicator is not idle. */
bool comm_suspend(struct comm *comm);
void comm_resume(struct comm *comm);

/* This rank leaves the set: the coordinator closes it by the shutdown handshake. */
void comm_leave(struct comm *comm);

/* Reports a fault to the coordinator, which ends every request in the next turn at the latest, unless the set
 * has closed. The first fault counts. `lost_rank`: the lost rank of the job, or -1. */
void comm_abort(struct comm *comm, int lost_rank, const hvd_status *cause);

/* Ends all its requests and batches with this cause. */
void comm_end(struct comm *comm, const hvd_status *cause);

/* Sends queued messages; returns true if any byte moved. */
bool comm_flush(struct comm *comm);

/* Returns true if all messages have left this process. */
bool comm_is_flushed(const struct comm *comm);

/* Returns true if this rank has no pending request, running batch or unsent message here. */
bool comm_is_quiet(const struct comm *comm);

/* Returns true if the next turn has work that no peer announces: then no thread may go to sleep. */
bool comm_is_ready(const struct comm *comm);

/* Returns when it needs a turn even if nothing arrives; CLOCK_NEVER: not at all. */
int64_t comm_deadline(const struct comm *comm);

/* Receives messages, lets the coordinator act, sends, moves data. Returns true if anything moved. `now` is as
 * in progress(). */
bool comm_progress(struct comm *comm, int64_t now);

#endif
