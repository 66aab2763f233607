/* entry.h - how native code of frameworks uses the engine: kernels without the GIL, on any number of threads,
 * borrow the process's default context; a shutdown waits until all have returned it. Any thread, except as
 * stated. */
#ifndef HVD_NATIVE_ENTRY_H
#define HVD_NATIVE_ENTRY_H

#include "horovod.h"

#include <stdbool.h>

/* ---- for the owner of the context, one thread at a time ------------------------------------------------ */

/* Starts lending the context. */
void entry_open(hvd_context *context);

/* Stops lending it and returns when no kernel holds it: hvd_shutdown may follow. Does nothing if it is not
 * open. */
void entry_close(void);

/* Forgets all holders; for a child of fork(), where their threads do not exist. */
void entry_forget_threads(void);

/* ---- for kernels -------------------------------------------------------------------------------------- */

/* Borrows the context until entry_release; NULL with a status: there is none, or it is being shut down. May
 * nest. Hold it for a submission, never for a wait without a limit. */
hvd_context *entry_acquire(hvd_status *status);
void entry_release(void);

/* Returns true if this thread may wait, which is not inside entry_callback_begin. Set hvd_request.waits in
 * that case, and call entry_help after the submission. */
bool entry_may_help(void);

/* Makes progress with the operation just submitted for at most 50 microseconds, as no thread waits for it: a
 * small operation is usually done by then, without waking a thread. Returns at once if another thread makes
 * progress. Call it between acquire and release. */
void entry_help(hvd_handle *handle);

/* Call these around calls of an hvd_done_fn into the framework, which may run the next kernels inside: those
 * must not wait. */
void entry_callback_begin(void);
void entry_callback_end(void);

/* Returns the number of the code in frameworks that use absl: XLA and TensorFlow. */
int entry_absl_code(hvd_code code);

/* ---- for kernels in a library of their own, which nothing links to this one --------------------------- */

/* All functions that they call. New rows are added at the end. */
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
    hvd_code (*optimizer_step)(hvd_context *, const char *, hvd_status *);
};
extern const struct entry_table entry_table;

#endif
