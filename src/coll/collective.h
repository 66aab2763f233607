/* collective.h - one batch on its way through a back end: its tensors, the steps that move them, and the
 * interface of an algorithm of the host's. */
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
 * Many pieces of memory seen as one vector of bytes. Fusion is nothing but this: the tensors of a
 * batch become spans, and algorithms count the elements of the whole. */

struct span {
    char *data;
    size_t length; /* bytes */
};

struct vector {
    struct span *spans;
    size_t *starts; /* [count]: offset of each span in the whole */
    int count;
    size_t length; /* bytes in all */
};

/* Fills in starts and length from spans and count. */
void vector_measure(struct vector *vector);

/* Whether both are the same pieces of memory: the operation is in place. */
bool vector_same(const struct vector *a, const struct vector *b);

/* Index of the span that holds `offset` (< length). */
int vector_find(const struct vector *vector, size_t offset);

/* Up to `limit` parts that cover [offset, offset + length); returns how many parts were filled. They cover
 * less when `limit` is too small. */
int vector_parts(const struct vector *vector, size_t offset, size_t length, struct iovec *parts, int limit);

/* ---- schedule --------------------------------------------------------------------------------------------
 * What one rank does in one phase of a collective: a list of steps, written by an algorithm,
 * carried out by the executor (execute.h).
 *
 * Steps with the same peer and direction happen in the order in which they were added, here and over all
 * schedules of a communicator, and so do steps without a peer; all others may overlap. A step may be gated by
 * an earlier one of the same schedule: it then touches an element of the vector only after the gate has
 * finished with that element and those before it, so a ring flows without being cut into chunks by hand. The
 * ranges of the two may differ: elements in front of the gate's range are open at once, those behind it when
 * the gate is done.
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
    STEP_COMPUTE  /* calls the algorithm's `compute` for one chunk of the range after the other */
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
    size_t from;                  /* STEP_COPY: where in the input, in elements */
    const struct wire_type *wire; /* NULL: elements travel as they are; NULL where there is no peer */
    /* STEP_REDUCE: whether the buffer, and what the peer sends, is a sum; otherwise one rank's elements. */
    bool own_is_sum, received_is_sum;
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
                 struct step step); /* its index; steps of no elements are added also */

/* ---- collective ------------------------------------------------------------------------------------------
 * One batch on its way through a back end, and the interface of an algorithm of the host's. */

/* All of it stays put until the collective is done. */
struct collective {
    hvd_operation operation;
    hvd_reduction reduction;
    hvd_dtype dtype;            /* of all elements; bytes for operations that don't reduce */
    double prescale, postscale; /* 1 when there is nothing to scale */
    int root;
    int rank, size;                  /* in the process set */
    const struct topology *topology; /* of the process set */
    int channel;                     /* the communicator's */
    bool apart;                  /* starts when all before it have ended, and those behind it when it has */
    struct choice choice;        /* the back end, and how that is to move it */
    struct vector input, output; /* equal spans when in place; `gathered` makes the output where it is set */

    /* The functions of the memory that the spans point to, and the device of the first; NULL: the host's.
     * Their addresses mean something to these functions only. The memory may be used once all of `ready` are
     * done; a span of the output without an address is room for steps, which the host's memory needs only. */
    const struct memory_ops *memory;
    int32_t device_id;
    struct memory_event *const *ready;
    int ready_count;

    /* Allgather: rows of this rank per tensor, bytes of a row per tensor (0 is fine), and what to call once
     * the rows of all ranks are known, before the first byte of the output arrives: rows[rank * tensors +
     * tensor]. It sets `output`: tensor 0 of rank 0, 1, ..., then tensor 1 of rank 0, 1, ... This rank's rows
     * may be the same memory in both vectors. */
    int tensors;
    const uint64_t *own_rows, *row_bytes;
    hvd_code (*gathered)(struct collective *collective, const uint64_t *rows, hvd_status *status);

    /* Alltoall: the same with one tensor; own_rows[rank] go to that rank, rows[rank] come from it, in the
     * order of ranks in both vectors; the output is one span. */

    /* Reducescatter: where the ranks' blocks start in both vectors, [size + 1]. The output has room for all
     * of them; only this rank's is its result, which may be the same memory in both. */
    const size_t *blocks;

    /* NULL, or what a back end may call when a phase of its algorithm begins. */
    void (*phased)(const struct collective *collective, int phase);

    /* Called by the back end once nothing touches the collective's memory any more. */
    void (*done)(struct collective *collective, const hvd_status *status);
    void *owner;

    /* The back end's. */
    const struct algorithm *algorithm;
    size_t piece_bytes;      /* of the ring allreduce, per rank, about */
    void *scratch;           /* the algorithm's, freed with free() at the end */
    struct staging *staging; /* see task.h */
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
    /* Whether it should run a batch of so many bytes on these ranks; rows are tried in order. NULL: always.
     */
    bool (*fits)(uint64_t bytes, const struct topology *topology, uint64_t latency_threshold);
    /* See algorithm_plan. *more is false before; reductions have two ranks at least. */
    hvd_code (*plan)(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status);
    /* Computes elements [done, done + length) of a STEP_COMPUTE; NULL: it plans none. */
    void (*compute)(struct collective *collective, const struct step *step, size_t done, size_t length);
    int ordered_ranks; /* on so many ranks at most it adds up every element in the order of ranks */
    bool by_hosts;     /* goes host by host, so that a byte crosses each network no more often than it must */
    bool adasum;       /* does this reduction and no other; the others do all but this one */
};

/* Rows of algorithms.def, by index; the index is what travels in a decision. */
extern const struct algorithm *const algorithm_table[];
extern const int algorithm_count;

/* Whether there is such a row, and it does this. */
bool algorithm_does(int index, hvd_operation operation, hvd_reduction reduction);

/* The first row that does this and fits, or the row that the settings force when it does it; in the
 * deterministic mode only rows of allreduce that add in the order of ranks. The last row of an operation fits
 * always. 0 for an operation without rows, which moves nothing. */
int algorithm_choose(hvd_operation operation, hvd_reduction reduction, uint64_t bytes,
                     const struct topology *topology, uint64_t latency_threshold,
                     const struct settings *settings);

/* Which algorithm runs each operation from which size on, in powers of two, as text for the log. */
void algorithm_describe(const struct topology *topology, const struct settings *settings, char *text,
                        size_t capacity);

/* Writes the steps of phase 0, 1, ... A phase starts when all steps of the one before are done. *more tells
 * whether another phase follows. */
hvd_code algorithm_plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                        hvd_status *status);

/* HVD_INVALID_ARGUMENT, listing the names, when the settings force what there is not, or what the
 * deterministic mode can't use on so many ranks. */
hvd_code algorithm_check_settings(const struct settings *settings, hvd_status *status);

/* In a decision the size of pieces is a power of two. */
#define PIECE_EXPONENT_LEAST 12
#define PIECE_EXPONENT_MOST  30

/* Rounds up. */
unsigned piece_exponent_of(uint64_t piece_bytes);

#endif
