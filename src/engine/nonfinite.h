/* nonfinite.h - notices numbers that are not finite in what this rank gives to reductions. A NaN crosses
 * ranks only by collectives. So a rank that finds one in its own input, although no result has brought it
 * one, knows that this NaN began here: it warns, and its page says so. Infinity is normal while a loss scale
 * is being found; it is counted only, and excuses the NaNs that follow from it. No value is changed and no
 * message is sent. Under the progress lock. */
#ifndef HVD_ENGINE_NONFINITE_H
#define HVD_ENGINE_NONFINITE_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm;
struct hvd_context;
struct hvd_handle;
struct running_batch;

enum { NONFINITE_WARNED = 64 };

struct nonfinite {
    size_t limit;      /* tensors of more bytes are not checked; 0: none are */
    bool spreading;    /* numbers that are not finite were reduced, and may cause others from now on */
    bool own_infinity; /* an infinity of this rank was the first of them */
    uint32_t name;     /* the id (page.h) of the name that had the first */
    unsigned rounds;   /* inputs of that name since, which were not finite either */
    int64_t began;     /* the step of the first, see page_step */
    int64_t last;      /* that of the latest */
    uint32_t warned[NONFINITE_WARNED]; /* ids of names */
    int warned_count;
};

/* Reads HOROVOD_CHECK_NONFINITE. */
hvd_code nonfinite_open(struct hvd_context *context, hvd_status *status);

/* Checks the input of a reduction before it starts, and its result, both in host memory. */
void nonfinite_check_batch(const struct running_batch *running, bool is_result);

/* The same of a request whose data travel in messages. */
void nonfinite_check_eager(struct comm *comm, const struct hvd_handle *handle, bool is_result);

#endif
