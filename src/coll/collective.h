/* collective.h - one batch in a back end: its tensors as vectors, the steps that move them, and the interface
 * of the host's algorithms. A collective belongs to its back end from start to `done`; only the thread that
 * makes progress, or the worker of a row that blocks, touches it meanwhile. */
#ifndef HVD_COLL_COLLECTIVE_H
#define HVD_COLL_COLLECTIVE_H

#include "base/settings.h"
#include "base/topology.h"
#include "base/types.h"
#include "device/memory.h"
#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* ---- vector ----------------------------------------------------------------------------------------------
 * Many pieces of memory as one vector of bytes. Fusion is only this: the tensors of a batch become spans, and
 * algorithms count the elements of the whole. */

struct vector {
    struct span *spans;
    size_t *starts; /* [count]: offset of each span in the whole */
    int count;
    size_t length; /* bytes in all */
};

/* Fills in starts and length from spans and count. */
void vector_measure(struct vector *vector);

/* Returns true if both are the same pieces of memory: the operation is in place. */
bool vector_same(const struct vector *a, const struct vector *b);

/* Returns the index of the span that has `offset` (< length). */
int vector_find(const struct vector *vector, size_t offset);

/* Fills in up to `limit` parts that cover [offset, offset + length), less if `limit` is too small; returns
 * how many. */
int vector_parts(const struct vector *vector, size_t offset, size_t length, struct iovec *parts, int limit);

/* ---- schedule --------------------------------------------------------------------------------------------
 * The steps of one rank in one phase of a collective, planned by an algorithm and run by the executor
 * (execute.h).
 *
 * Steps with the same peer and direction happen in the order in which they were added, here and over all
 * schedules of a communicator, and so do steps without a peer; all others may overlap. A step may be gated by
 * an earlier one of the same schedule: it then touches an element of the vector only after the gate has
 * finished with that element and those before it, so a ring flows without explicit chunks. The ranges of the
 * two may differ: elements in front of the gate's range are open at once, those behind it when the gate is
 * done.
 *
 * Ranges count elements of the collective's type, since a step may send them in another one: its wire type,
 * which both of its ends plan. */

/* A type in which elements travel, e.g. float16 for those of float32. Constant; any thread. */
struct wire_type {
    unsigned exponent; /* an element that travels has 1 << exponent bytes */
    void (*encode)(void *wire, const void *values, size_t elements);
    void (*decode)(void *values, const void *wire, size_t elements);
};

enum step_kind {
    STEP_SEND,    /* buffer[range] to the peer */
    STEP_RECEIVE, /* output[range] = what the peer sent */
    STEP_REDUCE,  /* output[range] = buffer[range] op what the peer sent, times the factor if `last` */
    STEP_COPY,    /* output[range] = input[from, from + length), prescaled, times the factor if `last` */
    STEP_COMPUTE  /* calls the algorithm's `compute` for each chunk of the range in turn */
};

enum step_buffer { BUFFER_INPUT, BUFFER_OUTPUT };

#define STEP_NO_GATE (-1)

struct step {
    enum step_kind kind;
    enum step_buffer buffer;
    bool last; /* the final value of this range: apply the average and the postscale factor */
    int peer;
    int gate;                     /* index of the gating step or STEP_NO_GATE */
    size_t offset, length;        /* elements of the vector */
    size_t from;                  /* STEP_COPY: start in the input, in elements */
    const struct wire_type *wire; /* NULL: elements travel as they are; also NULL without a peer */
    bool own_is_sum;              /* STEP_REDUCE: the buffer has a sum, not one rank's elements */
    bool received_is_sum;         /* STEP_REDUCE: the peer sends a sum, not one rank's elements */
};

struct schedule {
    struct step *steps;
    int count, capacity;
    bool failed; /* memory ran out while adding */
};

/* Returns true if the step moves nothing between ranks. */
bool step_is_local(const struct step *step);

void schedule_clear(struct schedule *schedule); /* keeps the memory */
void schedule_free(struct schedule *schedule);
int schedule_add(struct schedule *schedule,
                 struct step step); /* returns its index; also adds steps without elements */

/* ---- collective ------------------------------------------------------------------------------------------
 * One batch in a back end, and the interface of the host's algorithms. */

/* The struct and all that it points to stay until the collective is done. */
struct collective {
    hvd_operation operation;
    hvd_reduction reduction;
    hvd_dtype dtype;            /* of all elements; bytes for operations that don't reduce */
    double prescale, postscale; /* 1 when there is nothing to scale */
    double agreed_prescale;     /* that of all ranks; `prescale` is 1 on one that has joined */
    int root;
    int rank, size;                  /* in the process set */
    const struct topology *topology; /* of the process set */
    int channel;                     /* the communicator's */
    bool exclusive;                  /* runs alone: earlier ones have ended, later ones wait for its end */
    struct choice choice;            /* the back end, and its way to move the batch */
    struct vector input, output;     /* equal spans if in place */

    /* The functions of the memory of the spans, and the device of the first one; NULL: host memory. Only
     * these functions can use the addresses. The memory may be used once all of `ready` are done. A span of
     * the output without an address is room for steps, which only host memory needs. */
    const struct memory_ops *memory;
    int32_t device_id;
    struct memory_event *const *ready;
    int ready_count;

    /* Allgather: rows of this rank per tensor, bytes of a row per tensor (may be 0), and the rows of all
     * ranks: rows[rank * tensors + tensor]. The output is tensor 0 of rank 0, 1, ..., then tensor 1 of rank
     * 0, 1, ... This rank's rows may be the same memory in both vectors.
     * If `rows` is NULL the back end exchanges own_rows, and calls `gathered` with those of all ranks before
     * the first byte of the output arrives: it sets `output`. */
    int tensors;
    const uint64_t *own_rows, *row_bytes, *rows;
    hvd_code (*gathered)(struct collective *collective, const uint64_t *rows, hvd_status *status);

    /* Alltoall: the same with one tensor; own_rows[rank] are sent to that rank, rows[rank] are received from
     * it, in the order of ranks in both vectors; the output is one span. rows_even: each rank sends every
     * rank the same number of rows; false if `rows` is NULL. */
    bool rows_even;

    /* Reducescatter: start of each rank's block in both vectors, [size + 1]. The output has room for all
     * blocks; only this rank's block is its result, which may be the same memory in both. */
    const size_t *blocks;

    /* NULL, or a function that a back end may call when a phase of its algorithm starts. */
    void (*phased)(const struct collective *collective, int phase);

    /* Tensors of devices only: a back end calls it once the whole input is in host memory, and again when the
     * result is, which is then copied to the device. */
    void (*staged)(const struct collective *collective, bool is_result);

    /* Called by the back end once nothing touches the collective's memory anymore. */
    void (*done)(struct collective *collective, const hvd_status *status);
    void *owner;

    /* Members of the back end. */
    const struct algorithm *algorithm;
    size_t piece_bytes;      /* about, per rank, of the ring allreduce */
    void *scratch;           /* the algorithm's, freed with free() at the end */
    struct staging *staging; /* see staging.h; NULL: host memory */
    hvd_status status;       /* how the collective ended */
    struct collective *next;
};

struct collective_queue {
    struct collective *head, *tail;
};

static inline void collective_queue_push(struct collective_queue *queue, struct collective *collective)
{
    collective->next = NULL;
    if (queue->head)
        queue->tail->next = collective;
    else
        queue->head = collective;
    queue->tail = collective;
}

/* NULL when empty. */
static inline struct collective *collective_queue_pop(struct collective_queue *queue)
{
    struct collective *collective = queue->head;
    if (collective)
        queue->head = collective->next;
    return collective;
}

/* One algorithm: a constant of this type, and a row in algorithms.def. */
struct algorithm {
    const char *name;
    hvd_operation operation;
    /* Returns true if it should run a batch of this size on these ranks; rows are tried in order. NULL:
     * always. */
    bool (*fits)(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold);
    /* See algorithm_plan. *more is false at the call; reductions have at least two ranks. */
    hvd_code (*plan)(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status);
    /* Computes elements [done, done + length) of a STEP_COMPUTE; NULL: the algorithm has no such steps. */
    void (*compute)(struct collective *collective, const struct step *step, size_t done, size_t length);
    int ordered_ranks; /* on up to this many ranks it adds every element in the order of ranks */
    bool by_hosts;     /* goes host by host, so that a byte crosses each network as rarely as possible */
    bool adasum;       /* does only this reduction; the other algorithms do all except this one */
};

/* Rows of algorithms.def, by index; a decision has the index. */
extern const struct algorithm *const algorithm_table[];
extern const int algorithm_count;

/* Returns true if there is such a row and it does this. */
bool algorithm_does(int index, hvd_operation operation, hvd_reduction reduction);

/* Returns the first row that does this and fits, or the row that the settings force if it does this. In the
 * deterministic mode it returns only rows of allreduce that add in the order of ranks. The last row of an
 * operation always fits. Returns 0 for an operation without rows, which moves nothing. */
int algorithm_choose(hvd_operation operation, hvd_reduction reduction, uint64_t bytes,
                     const struct topology *topology, uint64_t latency_threshold,
                     const struct settings *settings);

/* Writes which algorithm runs each operation from which size on, in powers of two, as text for the log. */
void algorithm_describe(const struct topology *topology, const struct settings *settings, char *text,
                        size_t capacity);

/* Plans the steps of phase 0, 1, ... A phase starts when all steps of the previous one are done. *more:
 * another phase follows. */
hvd_code algorithm_plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                        hvd_status *status);

/* Returns HVD_INVALID_ARGUMENT, with the names, if the settings force an algorithm that does not exist, or
 * that the deterministic mode can't use on this number of ranks. */
hvd_code algorithm_check_settings(const struct settings *settings, hvd_status *status);

/* In a decision the size of pieces is a power of two. */
#define PIECE_EXPONENT_LEAST 12
#define PIECE_EXPONENT_MOST  30

/* Returns the exponent of the next power of two, within these limits. */
unsigned piece_exponent_of(uint64_t piece_bytes);

#endif
