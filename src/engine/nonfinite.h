/* nonfinite.h - notices numbers that are not finite in what this rank gives to others. A NaN crosses ranks
 * only by collectives. A rank that finds one in its own input lets the others know before they can give what
 * was computed from it (coordinator_found); if nobody did, it knows that the NaN began here: it warns, and
 * its page says so. No value is changed, and results are searched only while there are suspects.
 *
 * Two kinds of numbers that are not finite are no alarm. While a loss scale is being found overflows are
 * normal: such a step is left out. And a metric may be NaN by design, from which nothing is computed. So each
 * name under which one was found, by any rank, is a suspect, in the order of time. The first is believed to
 * be the cause of the others while most of what this rank gives is not finite in each whole step after the
 * one in which it began. Otherwise it is acquitted: the next one takes its place, and the name no longer
 * counts until it was finite again. The warning follows if the first suspect was an input of this rank. One
 * step is enough if all steps that are reported have updated the parameters (hvd_expect_steps); otherwise it
 * must last for more steps than the search for a scale does. If no steps are reported, a use of the same name
 * is one. Under the progress lock.
 *
 * What only the reduction makes, e.g. by a sum that is too large for float16, is in the inputs of all ranks
 * one step later: all warn. */
#ifndef HVD_ENGINE_NONFINITE_H
#define HVD_ENGINE_NONFINITE_H

#include "device/finite.h"
#include "horovod.h"
#include "watch/page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;
struct hvd_context;
struct hvd_handle;
struct running_batch;

enum { NONFINITE_WARNED = 64, NONFINITE_SUSPECTS = 8, NONFINITE_HARMLESS = 64 };

/* A name under which a number was not finite, from which others may have been computed. */
struct nonfinite_suspect {
    enum finiteness own; /* the first number, if it was in this rank's input; else ALL_FINITE */
    hvd_operation operation;
    uint32_t name;             /* its id (page.h) */
    uint32_t uses;             /* of it up to the latest number that was not finite */
    uint32_t record;           /* the place of the record of the first request; 0: it has none */
    int process_set;           /* in which it was */
    char where[PAGE_NAN_TEXT]; /* the tensor that had it */
    int64_t began;             /* the number of its step; 0: unknown */
    uint64_t steps;            /* that had been reported before it */
    uint64_t round;            /* and before the inputs that are counted */
    unsigned wrong, finite;    /* tensors in these inputs that are not finite, and that are */
    int lasted;                /* rounds so far in which most were not; -1: none has begun since */
};

struct nonfinite_name {
    uint32_t name, uses; /* as in struct nonfinite_suspect */
};

struct nonfinite {
    size_t limit; /* tensors of more bytes are not checked; 0: none are */
    int count;    /* of suspects, the first in time first; later ones find no place if it is full */
    struct nonfinite_suspect suspects[NONFINITE_SUSPECTS];
    uint64_t last;           /* steps that had been reported before the latest number of a suspect */
    unsigned finite_results; /* since then */
    struct nonfinite_name harmless[NONFINITE_HARMLESS]; /* the latest that were acquitted */
    unsigned harmless_count;
    uint32_t warned[NONFINITE_WARNED]; /* ids of names */
    int warned_count;
    bool is_full; /* said that no more are remembered */
};

/* Reads HOROVOD_CHECK_NONFINITE. */
hvd_code nonfinite_open(struct hvd_context *context, hvd_status *status);

/* Warns of a number that has begun here if the job ends before it has lasted that long, but most inputs of
 * every whole round since were not finite. No operation is in flight. */
void nonfinite_end(struct hvd_context *context);

/* Searches the input of this rank's only request while the decision about it is on its way: of several
 * requests the batch is searched at once. Called in each turn. */
void nonfinite_search_ahead(struct comm *comm);

/* Another rank of the set has found a number in its input of a request. `name`: its id here; 0: unknown. */
void nonfinite_found(struct comm *comm, int rank, hvd_operation operation, uint32_t name);

/* Returns true if inputs, or results, are searched now. */
static inline bool nonfinite_searches(const struct nonfinite *state, bool is_result)
{
    return state->limit && (!is_result || state->count);
}

/* Checks the input of a reduction before it starts, and its result, both in host memory. */
void nonfinite_check_batch(const struct running_batch *running, bool is_result);

/* The same of a request whose data travel in messages, or of one that only moves values: an allgather, which
 * carries sparse gradients, a broadcast of a root that may have loaded a NaN, an alltoall. */
void nonfinite_check_request(struct comm *comm, const struct hvd_handle *handle, bool is_result);

#endif
