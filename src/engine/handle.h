/* handle.h - one operation of this rank from submission to release. */
#ifndef HVD_ENGINE_HANDLE_H
#define HVD_ENGINE_HANDLE_H

#include "coordinate/coordinator.h"
#include "device/memory.h"
#include "engine/overlap.h"
#include "horovod.h"

#include <stdatomic.h>
#include <stdbool.h>

/* A group whose tensors share memory runs as several collectives, its parts, one after the other: each writes
 * only what no other tensor of the part reads or writes. The ranks agree on the division, which is in the
 * signature, and all parts belong to one request, so nothing can run between them. */
struct parts {
    uint16_t *of; /* the part of each tensor, from 0 on; NULL: all are in one */
    int count;
};

struct hvd_handle {
    atomic_int references; /* the caller's and the engine's */
    atomic_uint state;     /* HANDLE_*; a futex word */
    atomic_bool calls; /* request.done is to be called: by the thread that finishes it, or by hvd_on_done */
    struct hvd_context *context;
    struct pending pending;
    int64_t submitted; /* clock_now's, when somebody observes */
    bool observed;     /* its submission is in the timeline */
    bool claims;       /* its name is in the context's map; under that lock */
    uint32_t bytes;    /* of this block, in which the request's lists, the name and the signature lie */
    struct operation_counters *counters; /* once the progress thread has taken it; NULL: a stand-in */
    hvd_request request;
    double prescale, postscale; /* that the request points to, where it has them */
    hvd_status *failure;        /* NULL when all went well or nothing is known yet */
    hvd_tensor *results; /* the engine's outputs, once done; those in the caller's memory have no data here */
    int result_count;
    int value;     /* join: the last rank; adding a process set: its id */
    int following; /* of a group: its collectives still to end, except for one; under the progress lock */
    const struct memory_ops *memory; /* of its tensors */
    struct memory_event **ready;     /* its tensors may be used once all of these are done, */
    int ready_count;                 /* one for each stream; 0 in memory of the host */
    void *own_data;         /* what the tensors point to where it is the engine's; freed with the handle */
    struct touched touched; /* its memory; under the progress lock */
    struct parts parts;     /* of a group whose tensors share memory */
    struct hvd_handle *held_back; /* those that wait for the end of this one */
    struct hvd_handle *next; /* in the submission queue, of those held back, later of the finished calls */
    uint32_t name_length;    /* without the NUL */
    int32_t process_set;     /* what its name is unique in, and with it the key in the map */
    char name[];             /* as users know it: "grouped_allreduce.grad" */
};

enum { HANDLE_IN_FLIGHT, HANDLE_AWAITED, HANDLE_DONE };

/* A copy of the request, for a set of `size` ranks and with a root of that set, with one reference for the
 * caller and one for the engine. `claims`: HVD_DUPLICATE_NAME while a handle that claims the name, too, is
 * not done. */
hvd_code handle_create(struct hvd_context *context, const hvd_request *request, int size, bool claims,
                       struct hvd_handle **handle, hvd_status *status);

/* Under the progress lock: those held back for it are looked at again, in progress_resume. */
void handle_let_go(struct hvd_handle *handle);

/* By the thread that carries the operation out: this rank's part of it goes on, but its outcome will be this
 * failure, if it is the first. */
void handle_fail(struct hvd_handle *handle, const hvd_status *failure);

/* Under the progress lock: records the outcome, wakes waiting threads, and puts it on the list of finished
 * calls or drops the engine's reference. */
void handle_finish(struct hvd_handle *handle, const hvd_status *status);

void handle_release(struct hvd_handle *handle);

void parts_free(struct parts *parts); /* fine where there are none */

/* Any thread. The outcome of one that is done. */
hvd_code handle_outcome(struct hvd_handle *handle, hvd_status *status);

/* Any thread. For texts, at any time: the thread that makes progress numbers what has no name before the end.
 */
const char *handle_name(const struct hvd_handle *handle);

/* Any thread. True for one caller only: it has to call request.done. */
bool handle_take_call(struct hvd_handle *handle);

/* Turns a list round: both lists of handles are pushed at the head and served oldest first. */
struct hvd_handle *handle_reverse(struct hvd_handle *newest);

static inline bool handle_is_done(struct hvd_handle *handle)
{
    return atomic_load_explicit(&handle->state, memory_order_acquire) == HANDLE_DONE;
}

/* Any thread. `bytes` of memory that result_free takes, on a device of this type, beside a copy of the
 * shape that lives as long. NULL when memory is out. */
void *result_allocate(const struct memory_ops *memory, int32_t device_id, const int64_t *shape, int ndim,
                      size_t bytes, const int64_t **kept_shape);
void result_free(void *data); /* NULL is fine */

#endif
