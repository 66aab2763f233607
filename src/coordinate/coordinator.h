/* coordinator.h - finds out when every rank of a process set has submitted the same request, and decides the
 * order in which the set runs them. A pure state machine: no socket, thread, clock or randomness. The engine,
 * the unit tests, the fuzzer and the simulator drive the same code.
 *
 * There is one coordinator per rank and process set. Ranks here are ranks of the set. Not thread-safe: called
 * with the progress lock held. Output functions must not call back into the coordinator, except that `run`
 * may call coordinator_batch_done for its batch.
 *
 * docs/coordination.md has the protocol: tree, decisions, `seen`, cache, mismatch, close. */
#ifndef HVD_COORDINATE_COORDINATOR_H
#define HVD_COORDINATE_COORDINATOR_H

#include "base/types.h"
#include "coordinate/request.h"
#include "coordinate/runs.h"
#include "coordinate/tree.h"

#include <stdbool.h>
#include <stdint.h>

/* One request of this rank from submission until it is run or finished. The submitter owns the memory, which
 * must not move or be freed before. */
struct pending {
    const char *name; /* on the wire, e.g. ".conv1.weight"; not NULL, shorter than REQUEST_NAME_LIMIT */
    struct signature signature;
    bool unnamed;                    /* `name` was made from coordinator_unnamed */
    bool apart;                      /* alone in its batch, and runs after all that were ready before it */
    uint32_t eager_bytes;            /* the coordinator's: bytes of data in the report; 0: none */
    void *owner;                     /* the submitter's */
    struct entry *entry;             /* the coordinator's: the name under which it is counted */
    struct pending *previous, *next; /* the coordinator's: in the list of this rank's requests */
};

/* A request that the ranks have agreed on. */
struct member {
    const char *name;
    const struct signature *signature;
    /* Allgather, alltoall: the numbers of rows of all ranks, by place; 0 of a rank that has joined. Allgather
     * has a number for each tensor, alltoall one for each rank that receives. NULL: unknown. */
    const struct runs *rows;
};

/* One decision to run: requests in the agreed order. Valid during the call only. */
struct batch {
    uint64_t sequence;               /* number of the decision */
    struct pending *const *requests; /* an element is NULL if this rank has joined and has no data for it */
    const struct member *members;
    int count;
    struct choice choice; /* the root's */
    bool is_short;        /* may run concurrently with earlier long batches; the same on all ranks */
    /* The data of the only request, reduced over all ranks, before average and postscale: they were in the
     * decision, and the batch has ended when `run` returns. NULL: the batch moves its data. */
    const uint8_t *result;
};

#define SILENCE_PAIRS 8 /* at most this many are named */

/* The ranks between which no bytes arrive, according to the reports and answers that this rank has received.
 * Places and hosts are those of base/topology.h. */
struct silence {
    struct rank_set lost; /* places that no message reaches; all of a host whose ranks are all silent */
    bool cut_off;         /* no rank outside of this rank's host has answered */
    int pairs[SILENCE_PAIRS][2]; /* if none is lost: hosts that reach this rank, but not each other */
    int pair_count;
};

/* For how long this node has waited for one reporter (this rank, or a child with its subtree) and no other
 * one, for whatever number of requests at a time. */
struct lateness {
    int64_t total;   /* ns; below 0: it waits now, and the present time must be added */
    int64_t longest; /* ns without a break, before the present wait */
    uint64_t count;  /* waits, with the present one */
};

struct coordinator_output {
    void *owner;
    /* Sends one message to the parent or a child; messages of one edge arrive in order. */
    void (*send)(void *owner, int rank, const uint8_t *bytes, size_t length);
    /* Sends one message to every rank that this one has a connection to, neighbours in the tree and others,
     * except to `except` (-1: to all). `fatal`: it contains the cause that ends the job; afterwards the
     * requests are finished, and this process may end at once. */
    void (*flood)(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal);
    /* Writes this rank's input, prescaled. Needed unless eager_threshold is 0. */
    void (*contribute)(void *owner, const struct pending *request, uint8_t *data);
    /* Returns the number of rows of tensor `index` of an allgather, or that rank `index` receives in an
     * alltoall. */
    uint64_t (*rows)(void *owner, const struct pending *request, int index);
    /* Computes sum = sum op other, of `what->bytes` each. */
    void (*combine)(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other);
    /* All members run this batch, in the order of these calls. The requests leave the coordinator. */
    void (*run)(void *owner, const struct batch *batch);
    /* The request ends without having run. It leaves the coordinator. */
    void (*finish)(void *owner, struct pending *request, const hvd_status *status);
    /* A process set that asked for a turn has it now: all ranks get these calls, and those of `run`, in one
     * order. NULL: no rank calls coordinator_ask_turn. */
    void (*turn)(void *owner, int set);
    /* A rank of the set, maybe this one, has found NaN or infinity in its input of a request:
     * coordinator_found. `mark`: that of the name here (coordinator_mark), 0 if it is unknown. NULL is fine.
     */
    void (*found)(void *owner, int rank, hvd_operation operation, uint32_t mark);
    /* A request to join ends: all ranks have joined, `last_rank` (of the job) as the last. The request leaves
     * the coordinator. */
    void (*joined)(void *owner, struct pending *request, int last_rank);
    /* At the root, during a flush: some ranks submitted the request about `waited` ns ago, and `missing`,
     * ranks of the job, have not. Called for every such request once in a stall_time; needed unless that is
     * 0. */
    void (*stalled)(void *owner, const char *title, int64_t waited, const struct rank_set *missing);
    /* Writes the cause: the job ends because of this silence. */
    void (*silent)(void *owner, const struct silence *silence, hvd_status *cause);
    /* At the root: chooses how a batch of such requests, of `bytes` in all, moves. `rows_unknown`: the ranks
     * must exchange their numbers of rows first. */
    struct choice (*choose)(void *owner, const struct signature_summary *what, uint64_t bytes,
                            bool rows_unknown);
    /* The shutdown handshake is done: every member has run its batches. This is the last call. */
    void (*closed)(void *owner);
    /* At the root: a rank other than this one has submitted the request. NULL is fine. */
    void (*ready)(void *owner, const char *name, const struct signature_summary *what, int rank);
    /* This node starts or stops to wait for one reporter alone, or has done both: 0 is this rank, others are
     * children, which `rank` leads. NULL: nothing of that is measured. */
    void (*late)(void *owner, int reporter, int rank, const struct lateness *lateness);
    /* At the root: all ranks have submitted a request, the last one this many ns after the first one. NULL is
     * fine. */
    void (*negotiated)(void *owner, int64_t time);
};

struct coordinator_config {
    int process_set;           /* id, for texts */
    const int *names;          /* ranks of the job of the set's members, for texts; NULL: the same numbers */
    struct tree_node tree;     /* the coordinator's from coordinator_create on */
    uint64_t fusion_threshold; /* bytes; the root's counts */
    bool groups_alone;         /* a group never shares a batch; the root's counts */
    bool adasum_alone;         /* an Adasum, whose rounding depends on the whole batch, never shares one */
    int64_t cycle_time;        /* ns; the root's counts */
    uint32_t cache_capacity;   /* agreed requests kept; the root's counts */
    uint32_t eager_threshold;  /* at most this many bytes in flight travel in reports; 0: none */
    int64_t stall_time;        /* ns after which a waiting name is reported as stalled; 0: never */
    int64_t stall_shutdown_time; /* ns after which the root ends the job; 0: never */
    int64_t settling_time;       /* ns from the last report of silence to the end; see coordinator_silent */
    bool join_all;               /* every operation runs without ranks that have joined; the root's counts */
    struct coordinator_output output;
};

struct coordinator;

hvd_code coordinator_create(const struct coordinator_config *config, struct coordinator **coordinator,
                            hvd_status *status);
/* Forgets remaining requests: abort or close first. NULL is fine. */
void coordinator_destroy(struct coordinator *coordinator);

/* Accepts a request, or refuses it: its name is in flight (HVD_DUPLICATE_NAME), or the coordinator has failed
 * or closed (the first cause). It is sent by coordinator_flush. `now` here and below: any monotonic time in
 * ns, which is never earlier than at the call before. */
hvd_code coordinator_submit(struct coordinator *coordinator, struct pending *request, int64_t now,
                            hvd_status *status);

/* Returns this rank's request of that name that waits for a decision; NULL: there is none. */
const struct pending *coordinator_find(const struct coordinator *coordinator, const char *name);

/* Returns a number that the request's name keeps while the coordinator remembers the name, 0 at first; NULL:
 * it does not know the name. The request need not have been submitted yet. */
uint32_t *coordinator_mark(const struct coordinator *coordinator, const struct pending *request);

/* Returns the bytes of this rank's data in a request that was just submitted; 0: there are none, or they are
 * not known here. */
uint64_t coordinator_bytes(const struct pending *request);

/* Returns this rank's request that waits for a decision; NULL: none does, or several do. */
const struct pending *coordinator_only(const struct coordinator *coordinator);

#define UNNAMED_KINDS 16 /* more than operations */

/* Unnamed requests that have tensors are counted together, so that ranks whose programs differ notice it at
 * once; each other operation is counted by itself. */
static inline int unnamed_kind(hvd_operation operation)
{
    return operation_table[operation].shape == SHAPE_no_tensors ? (int)operation : HVD_ALLREDUCE;
}

/* Returns the number of this rank's next unnamed request of this operation: how many of its kind were
 * accepted so far. After a join it is the same on all ranks. */
uint64_t coordinator_unnamed(const struct coordinator *coordinator, hvd_operation operation);

/* Receives a message from the parent or a child, or a flooded one from any rank. Malformed bytes abort the
 * coordinator with a text that names the sender. */
void coordinator_receive(struct coordinator *coordinator, int from, const uint8_t *bytes, size_t length,
                         int64_t now);

/* Acts on the inputs since the last flush: sends readiness upward as one message, decisions downward. Call it
 * after each round of inputs. */
void coordinator_flush(struct coordinator *coordinator, int64_t now);

/* Returns when coordinator_flush must be called again even without inputs; INT64_MAX: never. */
int64_t coordinator_next_flush(const struct coordinator *coordinator);

/* At the root: sets limits from the next batch on; time in ns. */
void coordinator_tune(struct coordinator *coordinator, uint64_t fusion_threshold, int64_t cycle_time);

/* Asks the root to give another process set a turn in the order of these decisions; each call asks for one
 * turn. Turns that were not given before the coordinator closes are never given. */
void coordinator_ask_turn(struct coordinator *coordinator, int set);

/* This rank has found NaN or infinity in its input of a request. All members get the call `found`, before any
 * decision about requests that this rank submits later. */
void coordinator_found(struct coordinator *coordinator, const struct pending *request);

/* This rank finished the batch of that number. */
void coordinator_batch_done(struct coordinator *coordinator, uint64_t sequence);

/* The connection to `lost_rank` (a neighbour in the tree, or any other peer of the data path) is lost, or, at
 * -1, the data path has failed: ends every request with `cause`, sends an abort to all live neighbours once,
 * and refuses later requests. The first cause wins; later calls do nothing. */
void coordinator_abort(struct coordinator *coordinator, int lost_rank, const hvd_status *cause, int64_t now);

/* This rank has waited too long for an answer of `rank`. All ranks are informed, and reported ranks answer if
 * they can. Once no more reports have been received for the settling time, the reports together are the cause
 * that ends the job. */
void coordinator_silent(struct coordinator *coordinator, int rank);

/* A network path between this rank and a peer is broken, though both may be alive. All ranks are informed,
 * and after the settling time the job ends with the first such text, unless ranks were silent: the text names
 * both ends. */
void coordinator_broken(struct coordinator *coordinator, const char *text);

/* Returns true if any rank has reported a silent rank or a broken path. */
bool coordinator_has_silent(const struct coordinator *coordinator);

/* This rank leaves: requests of all ranks that are not yet decided end with HVD_SHUT_DOWN. `closed` is called
 * once all members have run their batches. Idempotent. */
void coordinator_leave(struct coordinator *coordinator);

/* Returns HVD_OK while requests are accepted, otherwise the first cause. */
hvd_code coordinator_health(const struct coordinator *coordinator, hvd_status *status);

/* Returns this rank's request that has waited longest for a decision; NULL: there is none. */
const struct pending *coordinator_oldest(const struct coordinator *coordinator);

/* Returns the number of this rank's requests in the coordinator. */
int coordinator_pending_count(const struct coordinator *coordinator);

#endif
