/* drive.c - "whoever waits, works" (docs/architecture.md).
 *
 * The word `driver` is free, taken, or taken with the background thread asleep on it. Whoever frees it arms
 * the mesh first, so that peers ring; the background thread, asleep inside mesh_sleep, hears them. A caller
 * that waits takes the word with one exchange, and no system call is made unless somebody has to be woken. */
#include "engine/drive.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "engine/affinity.h"
#include "engine/progress.h"

#include <sched.h>
#include <signal.h>

enum { DRIVER_FREE, DRIVER_TAKEN, DRIVER_TAKEN_LISTENER_WAITS };

#define YIELDS_OF_CALLER     200
#define YIELDS_OF_BACKGROUND 20

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Polls for `spin` ns, then yields a bounded number of times; then it is time to sleep. */
struct patience {
    int64_t spin, spin_end;
    int yields, yields_left;
};

static void patience_renew(struct patience *patience)
{
    patience->spin_end = 0;
    patience->yields_left = patience->yields;
}

/* False when patience has run out. */
static bool patience_spend(struct patience *patience)
{
    if (patience->spin) {
        int64_t now = clock_now();
        if (!patience->spin_end)
            patience->spin_end = now + patience->spin;
        if (now < patience->spin_end) {
            cpu_relax();
            return true;
        }
    }
    if (patience->yields_left-- > 0) {
        sched_yield();
        return true;
    }
    return false;
}

/* From here on all peers ring; false when there is news already. */
static bool arm(struct hvd_context *context)
{
    bool quiet = true;
    for (struct lane *lane = context->world; lane; lane = lane->next)
        quiet &= mesh_arm(lane->mesh);
    return quiet;
}

static void disarm(struct hvd_context *context)
{
    for (struct lane *lane = context->world; lane; lane = lane->next)
        mesh_disarm(lane->mesh);
}

static bool driver_try(struct hvd_context *context)
{
    unsigned expected = DRIVER_FREE;
    if (atomic_load_explicit(&context->driver, memory_order_relaxed) != DRIVER_FREE ||
        !atomic_compare_exchange_strong(&context->driver, &expected, DRIVER_TAKEN))
        return false;
    disarm(context);
    return true;
}

/* Frees the word. True when there is something to do that nobody would ring for: then the background thread
 * has to be woken, or the caller drives on. */
static bool driver_leave(struct hvd_context *context)
{
    bool news = !arm(context);
    int64_t deadline = progress_deadline(context);
    bool sooner = deadline < atomic_exchange(&context->deadline, deadline);
    if (atomic_exchange(&context->driver, DRIVER_FREE) == DRIVER_TAKEN_LISTENER_WAITS)
        futex_wake_all(&context->driver);
    /* A submission pushed before the exchange saw the word taken and rang nobody: look again. */
    return news || sooner || atomic_load(&context->queue) || atomic_load(&context->added);
}

static void call_finished(struct hvd_handle *handle)
{
    while (handle) {
        struct hvd_handle *next = handle->next;
        hvd_status status;
        hvd_test(handle, &status);
        handle->request.done(handle->request.done_argument, &status);
        handle_release(handle);
        handle = next;
    }
}

/* User code of finished operations runs while nobody drives. False when another thread took over meanwhile.
 */
static bool run_finished_calls(struct hvd_context *context)
{
    struct hvd_handle *handles = handle_reverse(context->finished_calls);
    if (!handles)
        return true;
    context->finished_calls = NULL;
    bool pending = driver_leave(context);
    call_finished(handles);
    if (driver_try(context))
        return true;
    if (pending)
        mesh_wake(context->world->mesh);
    return false;
}

void drive_finish_calls(struct hvd_context *context)
{
    struct hvd_handle *handles = handle_reverse(context->finished_calls);
    context->finished_calls = NULL;
    call_finished(handles);
}

void drive_notify(struct hvd_context *context)
{
    if (atomic_load(&context->driver) == DRIVER_FREE)
        mesh_wake(context->world->mesh);
}

/* Drives until the word has its value, patience or time is over; the driver's word is free afterwards. */
static void drive_as_caller(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline)
{
    struct patience patience = {.spin = context->caller_spin, .yields = YIELDS_OF_CALLER};
    patience_renew(&patience);
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
        bool moved = progress(context);
        if (!run_finished_calls(context))
            return;
        if (moved)
            patience_renew(&patience);
        else if (!patience_spend(&patience))
            break;
        if (deadline != CLOCK_NEVER && clock_now() >= deadline)
            break;
    }
    if (driver_leave(context))
        mesh_wake(context->world->mesh);
}

/* Somebody else drives: waits a little for the word or for the place at the wheel. True when it may drive
 * now. */
static bool wait_for_driver(struct hvd_context *context, atomic_uint *word, unsigned value)
{
    struct patience patience = {.spin = context->caller_spin, .yields = YIELDS_OF_CALLER};
    patience_renew(&patience);
    bool mine = false;
    atomic_fetch_add(&context->wanted, 1);
    do {
        if (atomic_load_explicit(word, memory_order_acquire) == value)
            break;
        mine = driver_try(context);
    } while (!mine && patience_spend(&patience));
    atomic_fetch_sub(&context->wanted, 1);
    return mine;
}

bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
        if (driver_try(context) || wait_for_driver(context, word, value))
            drive_as_caller(context, word, value, deadline);
        unsigned seen = atomic_load_explicit(word, memory_order_acquire);
        if (seen == value)
            break;
        if (deadline != CLOCK_NEVER && clock_now() >= deadline)
            return false;
        /* Out of patience: sleep until whoever drives changes the word. It must know that somebody sleeps. */
        if (seen != HANDLE_AWAITED && !atomic_compare_exchange_strong(word, &seen, HANDLE_AWAITED))
            continue;
        futex_wait(word, HANDLE_AWAITED, deadline);
    }
    return true;
}

hvd_code hvd_wait(hvd_handle *handle, double seconds, hvd_status *status)
{
    if (!handle)
        return status_set(status, HVD_INVALID_ARGUMENT, "the handle is NULL");
    hvd_code code = handle_is_done(handle) ? HVD_OK : context_check_process(handle->context, status);
    if (code)
        return code;
    drive_until(handle->context, &handle->state, HANDLE_DONE, clock_after(seconds));
    return hvd_test(handle, status);
}

/* ---- the background thread ------------------------------------------------------------------------ */

static void drive_in_background(struct hvd_context *context)
{
    struct patience patience = {.spin = context->background_spin, .yields = YIELDS_OF_BACKGROUND};
    patience_renew(&patience);
    do {
        if (progress(context))
            patience_renew(&patience);
        if (!run_finished_calls(context))
            return;
    } while (!atomic_load_explicit(&context->wanted, memory_order_relaxed) && patience_spend(&patience));
    if (driver_leave(context))
        mesh_wake(context->world->mesh); /* comes back at once, unless a caller takes over */
}

/* Sleeps until the one who drives stops. */
static void wait_until_free(struct hvd_context *context)
{
    unsigned seen = atomic_load(&context->driver);
    if (seen == DRIVER_TAKEN &&
        !atomic_compare_exchange_strong(&context->driver, &seen, DRIVER_TAKEN_LISTENER_WAITS))
        return;
    if (seen != DRIVER_FREE)
        futex_wait(&context->driver, DRIVER_TAKEN_LISTENER_WAITS, CLOCK_NEVER);
}

static void *listen_and_drive(void *argument)
{
    struct hvd_context *context = argument;
    const hvd_placement *placement = &context->placement;
    affinity_apply(context->settings.thread_affinity, placement->rank, placement->local_rank,
                   placement->local_size);
    while (!atomic_load(&context->stop)) {
        if (driver_try(context))
            drive_in_background(context);
        else
            wait_until_free(context);
        if (!atomic_load(&context->stop) && atomic_load(&context->driver) == DRIVER_FREE)
            mesh_sleep(context->world->mesh, atomic_load(&context->deadline));
    }
    return NULL;
}

hvd_code drive_start_background(struct hvd_context *context, hvd_status *status)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread inherits: signals are the program's */
    int error = pthread_create(&context->background, NULL, listen_and_drive, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return status_set_errno(status, error, "rank %d can't start its background thread",
                                context->placement.rank);
    context->background_running = true;
    return HVD_OK;
}

void drive_stop_background(struct hvd_context *context)
{
    if (!context->background_running)
        return;
    atomic_store(&context->stop, true);
    mesh_wake(context->world->mesh);
    pthread_join(context->background, NULL);
    context->background_running = false;
}
