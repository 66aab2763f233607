/* nonfinite.h - notices numbers that are not finite in what this rank gives to reductions. A NaN crosses
 * ranks only by collectives. So a rank that finds one in its own input, although no result has brought it
 * one, knows that it began here: it warns, and its page says so. No value is changed and no message is sent.
 *
 * Two kinds of numbers that are not finite are no alarm. While a loss scale is being found overflows are
 * normal: such a step is left out. And a metric may be NaN by design, from which nothing is computed. So the
 * warning follows once most of what this rank gives to reductions has not been finite for a whole step after
 * the one in which it began. That is enough if all steps that are reported have updated the parameters
 * (hvd_expect_steps); otherwise it must last for more steps than the search for a scale does. If no steps are
 * reported, a use of the same name is one. Under the progress lock. */
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

enum { NONFINITE_WARNED = 64 };

struct nonfinite {
    size_t limit;        /* tensors of more bytes are not checked; 0: none are */
    bool spreading;      /* numbers that are not finite were reduced, and may cause others from now on */
    enum finiteness own; /* the first of them, if it was this rank's */
    uint32_t name;       /* the id (page.h) of the name that had the first */
    uint32_t record;     /* the place of the record of that request; 0: it has none */
    char where[PAGE_NAN_TEXT];         /* the tensor that had it */
    int process_set;                   /* in which it was reduced */
    int64_t began;                     /* the number of the step of the first; 0: unknown */
    uint64_t last;                     /* steps that had been reported before the latest */
    uint64_t round;                    /* and before the inputs that are counted */
    unsigned wrong, finite;            /* tensors in these inputs that are not finite, and that are */
    int lasted;                        /* rounds so far in which most were not; -1: none has begun since */
    unsigned finite_results;           /* since the latest one that was not */
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

/* Checks the input of a reduction before it starts, and its result, both in host memory. */
void nonfinite_check_batch(const struct running_batch *running, bool is_result);

/* The same of a request whose data travel in messages, or of an allgather, which carries sparse gradients. */
void nonfinite_check_request(struct comm *comm, const struct hvd_handle *handle, bool is_result);

#endif
