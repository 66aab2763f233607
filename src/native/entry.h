/* entry.h - how native code of frameworks uses the engine: kernels that hold no GIL, on any number of
 * threads, borrow the process's default context; a shutdown waits until all have given it back. Any thread,
 * except where it says otherwise. */
#ifndef HVD_NATIVE_ENTRY_H
#define HVD_NATIVE_ENTRY_H

#include "horovod.h"

#include <stdbool.h>

/* ---- for the owner of the context, one thread at a time ------------------------------------------------ */

/* Lends the context from now on. */
void entry_open(hvd_context *context);

/* Lends it no more, and returns when nobody holds it: hvd_shutdown may follow. Fine when it is not open. */
void entry_close(void);

/* In a child of fork(): those that held it do not exist here. */
void entry_forget_threads(void);

/* ---- for kernels -------------------------------------------------------------------------------------- */

/* The context, until entry_release; NULL with a status: there is none, or it is being shut down. May nest.
 * Hold it for a submission, never for a wait without a limit. */
hvd_context *entry_acquire(hvd_status *status);
void entry_release(void);

/* Whether this thread may wait: not inside entry_callback_begin. Then hvd_request.waits is right, and
 * entry_help has to follow. */
bool entry_may_help(void);

/* Makes progress with what was just submitted for at most 50 microseconds, as nothing else waits for it: a
 * small operation is mostly done by then, without the wake-up of a thread. Where another thread makes
 * progress this one returns at once. Between acquire and release. */
void entry_help(hvd_handle *handle);

/* Around what an hvd_done_fn calls in the framework, which may run the next kernels there: those must not
 * wait. */
void entry_callback_begin(void);
void entry_callback_end(void);

/* A code as frameworks number theirs that use absl: XLA and TensorFlow. */
int entry_absl_code(hvd_code code);

/* ---- for kernels in a library of their own, which nothing links to this one --------------------------- */

/* All that they call. New rows are added at the end. */
struct entry_table {
    size_t struct_size;
    hvd_context *(*acquire)(hvd_status *status);
    void (*release)(void);
    bool (*may_help)(void);
    void (*help)(hvd_handle *handle);
    void (*callback_begin)(void);
    void (*callback_end)(void);
    int (*absl_code)(hvd_code code);
    hvd_code (*submit)(hvd_context *, const hvd_request *, hvd_handle **, hvd_status *);
    hvd_code (*output_take)(hvd_handle *, int32_t, hvd_tensor *, hvd_status *);
    hvd_code (*joined_last)(hvd_handle *, int32_t *, hvd_status *);
    void (*handle_release)(hvd_handle *);
    void (*free)(void *);
    size_t (*dtype_size)(hvd_dtype);
    hvd_placement (*placement)(const hvd_context *);
    int32_t (*process_set_ranks)(hvd_context *, int32_t, int32_t *, int32_t);
};
extern const struct entry_table entry_table;

#endif
