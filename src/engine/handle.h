/* handle.h - one operation of this rank from submission to release. Functions say which threads may call
 * them; a handle is released by whichever thread drops the last reference. */
#ifndef HVD_ENGINE_HANDLE_H
#define HVD_ENGINE_HANDLE_H

#include "coordinate/coordinator.h"
#include "device/memory.h"
#include "engine/overlap.h"
#include "engine/parts.h"
#include "horovod.h"

#include <stdatomic.h>
#include <stdbool.h>

struct hvd_handle {
    atomic_int references; /* one of the caller, one of the engine */
    atomic_uint state;     /* HANDLE_*; a futex word */
    atomic_bool calls;     /* request.done must be called, by the finishing thread or by hvd_on_done */
    struct hvd_context *context;
    struct pending pending;
    int64_t submitted;  /* clock_now's, if there is a timeline */
    bool observed;      /* its submission is in the timeline */
    atomic_uint record; /* the place of its record in the page, set by the thread that takes it; 0: none */
    bool searched;      /* nonfinite_search_ahead has looked at its input */
    bool is_finite;     /* and all of it is finite */
    bool claims;        /* its name is in the context's map; under that lock */
    uint32_t bytes;     /* of this block, which holds the request's lists, the name and the signature */
    struct operation_counters *counters; /* NULL: not yet named by its communicator, or a stand-in */
    hvd_request request;
    double prescale, postscale; /* the request points to them, if it has them */
    hvd_status *failure;        /* NULL: it succeeded, or is not done */
    hvd_tensor *results;        /* the engine's outputs; results in the caller's memory have no data here */
    int result_count;
    int value;            /* join: the last rank; adding a process set: its id */
    int collectives_left; /* of a group: those that have not ended, except for one; under the progress lock */
    const struct memory_ops *memory; /* of its tensors */
    struct memory_event **ready;     /* its tensors may be used once all of these events are done */
    int ready_count;                 /* one event for each stream; 0 in memory of the host */
    void *own_data;                  /* of tensors that the engine made; freed with the handle */
    struct footprint footprint;      /* its memory; under the progress lock */
    struct parts parts;              /* of a group whose tensors share memory */
    struct hvd_handle *held_back;    /* handles that wait for the end of this one */
    struct hvd_handle *next; /* in the submission queue, then among handles held back, then finished calls */
    uint32_t name_length;    /* without the NUL */
    int32_t process_set;     /* its name is unique in this set; with the name, the key in the map */
    char name[];             /* as users know it: "grouped_allreduce.grad" */
};

enum { HANDLE_IN_FLIGHT, HANDLE_AWAITED, HANDLE_DONE };

/* Creates a handle from a copy of the request, whose root is a rank of a set of `size` ranks, with one
 * reference for the caller and one for the engine. `claims`: returns HVD_DUPLICATE_NAME while another handle
 * that claims the name is not done. */
hvd_code handle_create(struct hvd_context *context, const hvd_request *request, int size, bool claims,
                       struct hvd_handle **handle, hvd_status *status);

/* Under the progress lock: progress_resume hands over again the handles held back for this one. */
void handle_release_held(struct hvd_handle *handle);

/* Called by the thread that carries the operation out: this rank's part of it continues, but its outcome will
 * be this failure, if it is the first. */
void handle_fail(struct hvd_handle *handle, const hvd_status *failure);

/* Under the progress lock: records the outcome, wakes waiting threads, and puts it on the list of finished
 * calls or drops the engine's reference. */
void handle_finish(struct hvd_handle *handle, const hvd_status *status);

void handle_release(struct hvd_handle *handle);

/* Any thread. Returns the outcome of a handle that is done. */
hvd_code handle_outcome(struct hvd_handle *handle, hvd_status *status);

/* Any thread, at any time; for texts. Returns the operation if the user gave no name, since the thread that
 * makes progress may number the request at any time before the end. */
const char *handle_name(const struct hvd_handle *handle);

/* Any thread. Returns true for one caller only, which must call request.done. */
bool handle_claim_call(struct hvd_handle *handle);

/* Reverses a list: lists of handles are pushed at the head and served oldest first. */
struct hvd_handle *handle_reverse(struct hvd_handle *newest);

static inline bool handle_is_done(struct hvd_handle *handle)
{
    return atomic_load_explicit(&handle->state, memory_order_acquire) == HANDLE_DONE;
}

#endif
