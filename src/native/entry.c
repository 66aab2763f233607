/* entry.c - lends the process's context to native kernels without a lock: one atomic word has the flag OPEN
 * and the number of holders. Any thread may borrow; one thread at a time opens and closes. Once OPEN is
 * cleared and the count is zero, no kernel uses the context. */
#include "native/entry.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define HELP_SECONDS 50e-6

/* A holder returns the context after about HELP_SECONDS, so a shutdown may poll. */
#define CLOSE_POLL_NS 100000

enum { OPEN = 1, HOLDER = 2 };

static atomic_uint state;
static hvd_context *lent; /* changes only without OPEN and without admitted holders */
static _Thread_local int callbacks;

void entry_open(hvd_context *context)
{
    lent = context;
    atomic_fetch_or_explicit(&state, OPEN, memory_order_release);
}

void entry_close(void)
{
    atomic_fetch_and(&state, ~(unsigned)OPEN);
    while (atomic_load(&state))
        nanosleep(&(struct timespec){.tv_nsec = CLOSE_POLL_NS}, NULL);
}

void entry_forget_threads(void)
{
    atomic_store(&state, 0);
}

hvd_context *entry_acquire(hvd_status *status)
{
    if (atomic_fetch_add(&state, HOLDER) & OPEN)
        return lent;
    entry_release();
    status->code = HVD_INVALID_ARGUMENT;
    snprintf(status->text, sizeof status->text, "Horovod has not been initialized; use hvd.init().");
    return NULL;
}

void entry_release(void)
{
    atomic_fetch_sub(&state, HOLDER);
}

bool entry_may_help(void)
{
    return callbacks == 0;
}

void entry_help(hvd_handle *handle)
{
    if (entry_may_help())
        hvd_help(handle, HELP_SECONDS);
}

void entry_callback_begin(void)
{
    callbacks++;
}

void entry_callback_end(void)
{
    callbacks--;
}

int entry_absl_code(hvd_code code)
{
    switch (code) {
    case HVD_OK:
        return 0;
    case HVD_INVALID_ARGUMENT:
        return 3;
    case HVD_TIMED_OUT:
        return 4;
    case HVD_OUT_OF_MEMORY:
        return 8;
    case HVD_DUPLICATE_NAME:
    case HVD_MISMATCH:
        return 9; /* failed precondition */
    case HVD_PEER_LOST:
    case HVD_SHUT_DOWN:
        return 10; /* aborted */
    case HVD_UNSUPPORTED:
        return 12;
    default:
        return 13; /* internal */
    }
}

const struct entry_table entry_table = {
    .struct_size = sizeof entry_table,
    .acquire = entry_acquire,
    .release = entry_release,
    .may_help = entry_may_help,
    .help = entry_help,
    .callback_begin = entry_callback_begin,
    .callback_end = entry_callback_end,
    .absl_code = entry_absl_code,
    .submit = hvd_submit,
    .output_take = hvd_output_take,
    .joined_last = hvd_joined_last,
    .handle_release = hvd_release,
    .free = hvd_free,
    .dtype_size = hvd_dtype_size,
    .placement = hvd_get_placement,
    .process_set_ranks = hvd_process_set_ranks,
    .optimizer_step = hvd_optimizer_step,
};
