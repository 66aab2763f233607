/* drive.c - "whoever waits, works" (docs/architecture.md).
 *
 * The word `driver` is free or taken. Whoever frees it arms the mesh first, so that peers ring; the
 * background thread, asleep inside mesh_sleep, hears them. While callers drive again and again it naps
 * instead: it looks every NAP whether they still do, and a caller that leaves nothing to be done need not be
 * rung for. So a blocking call takes the word with one compare-and-swap, and makes no system call unless it
 * has to wait long. */
#include "engine/drive.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/affinity.h"
#include "engine/progress.h"
#include "engine/silence.h"

#include <sched.h>

enum { DRIVER_FREE, DRIVER_TAKEN };

/* How late a rank that waits for nothing hears of a fault or a request of others, in ns. */
#define NAP 2000000

/* A caller that sleeps has to be rung for, and keeps others waiting until they sleep, too; so it yields for
 * longer than a wake-up takes, in ns. */
#define YIELD_TIME_OF_CALLER     1000000
#define YIELD_TIME_OF_BACKGROUND 5000

/* So many waits in a row beside a peer on the same core: the system leaves them there for up to seconds. */
#define CROWDED 64

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Polls for `spin` ns, then yields for `yield` ns; then it is time to sleep. */
struct patience {
    struct mesh *mesh;
    int64_t spin, yield, start; /* 0: not yet */
    bool shares_core;           /* with whom it may wait for: polling would keep that one waiting */
    int *crowded;               /* waits in a row that began so; NULL: this thread stays where it is */
};

static void patience_renew(struct patience *patience)
{
    patience->start = 0;
}

static void patience_start(struct patience *patience, int64_t now)
{
    patience->start = now;
    /* Who never polls keeps nobody on its core waiting, and need not know. */
    int core = patience->spin ? sched_getcpu() : -1;
    patience->shares_core = core >= 0 && mesh_shares_core(patience->mesh, core);
    if (!patience->crowded)
        return;
    *patience->crowded = patience->shares_core ? *patience->crowded + 1 : 0;
    if (*patience->crowded == CROWDED) {
        *patience->crowded = 0;
        mesh_leave_core(patience->mesh, core);
    }
}

/* False when patience has run out. */
static bool patience_spend(struct patience *patience)
{
    int64_t now = clock_now();
    if (!patience->start)
        patience_start(patience, now);
    if (now < patience->start + patience->spin && !patience->shares_core)
        cpu_relax();
    else if (now < patience->start + patience->spin + patience->yield)
        sched_yield();
    else
        return false;
    return true;
}

/* From here on all peers ring; false when there is something to do already. */
static bool arm(struct hvd_context *context)
{
    bool quiet = true;
    for (struct lane *lane = context->world; lane; lane = lane->next)
        quiet &= mesh_arm(lane->mesh) && !lane_is_ready(lane);
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
    /* A look first: a compare-and-swap that fails would still take the cache line from the one who drives. */
    if (atomic_load_explicit(&context->driver, memory_order_relaxed) != DRIVER_FREE ||
        !atomic_compare_exchange_strong(&context->driver, &expected, DRIVER_TAKEN))
        return false;
    disarm(context);
    return true;
}

static bool is_quiet(const struct hvd_context *context)
{
    const struct lane *lane = context->world;
    while (lane && lane_is_quiet(lane))
        lane = lane->next;
    return !lane;
}

static void wake_listener(struct hvd_context *context)
{
    if (atomic_load(&context->listener_waits))
        futex_wake_all(&context->driver);
}

/* Frees the word. True when there is something to do that nobody would ring for: then the background thread
 * has to be woken, or the caller drives on. */
static bool driver_leave(struct hvd_context *context)
{
    bool quiet = is_quiet(context);
    /* The background thread looks again within NAP, and nothing here waits for a peer: peers need not
     * ring. */
    bool nap = context->napping && quiet;
    bool news = !nap && !arm(context);
    int64_t deadline = clock_earlier(progress_deadline(context), silence_deadline(context, !quiet));
    bool left = context->leave_said; /* the driver's, so read before the word is free */
    /* The background thread may sleep until the deadline that it read before: an earlier one needs it
     * awake. */
    bool sooner = deadline < atomic_exchange(&context->deadline, deadline) && !nap;
    /* This store and the loads behind it, as the push and the load of `driver` of who submits, are all
     * sequentially consistent: at least one of the two sides sees what the other did. */
    atomic_store(&context->driver, DRIVER_FREE);
    if (!nap)
        wake_listener(context);
    /* Here, not by the caller: a thread that took the word meanwhile finds the deadline stored already. */
    if (sooner)
        mesh_wake(context->world->mesh);
    /* A submission pushed before that store found the word taken and rang nobody: look again. */
    return news || atomic_load(&context->queue) || atomic_load(&context->added) ||
           (!left && atomic_load(&context->leaving));
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
    driver_leave(context); /* what is to be done then, this thread or the one that takes over finds again */
    call_finished(handles);
    return driver_try(context);
}

void drive_finish_calls(struct hvd_context *context)
{
    struct hvd_handle *handles = handle_reverse(context->finished_calls);
    context->finished_calls = NULL;
    call_finished(handles);
}

void drive_notify(struct hvd_context *context)
{
    /* Who drives looks into the queue once more after it has freed the word: see driver_leave. */
    if (atomic_load(&context->driver) != DRIVER_FREE)
        return;
    mesh_wake(context->world->mesh);
    wake_listener(context);
}

/* Drives until the word has its value, patience or time is over; the driver's word is free afterwards. */
static void drive_as_caller(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline)
{
    struct patience patience = {.mesh = context->world->mesh,
                                .spin = context->caller_spin,
                                .yield = YIELD_TIME_OF_CALLER,
                                .crowded = &context->crowded};
    patience_renew(&patience);
    context->driven = true;
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
        bool moved = progress(context);
        if (!run_finished_calls(context))
            return; /* another thread has the word by now */
        if (moved)
            patience_renew(&patience);
        else if (!patience_spend(&patience))
            break;
        if (deadline != CLOCK_NEVER && clock_now() >= deadline)
            break;
    }
    if (!is_quiet(context)) { /* the end of a batch may let the next one start */
        progress(context);
        if (!run_finished_calls(context))
            return;
    }
    if (driver_leave(context))
        drive_notify(context);
}

/* Somebody else drives: waits a little for the word or for the place at the wheel. True when it may drive
 * now. */
static bool wait_for_driver(struct hvd_context *context, atomic_uint *word, unsigned value)
{
    /* never polling: the one who drives may need this core */
    struct patience patience = {.mesh = context->world->mesh, .yield = YIELD_TIME_OF_CALLER};
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

static void count_wait(struct hvd_handle *handle, bool done, int64_t time)
{
    const hvd_request *request = &handle->request;
    struct operation_counters *counters = NULL;
    if (done) {
        counters = handle->counters;
    } else { /* the progress thread may not have taken it yet */
        struct set_counters *set = counters_of(&handle->context->counters, request->process_set);
        counters = set ? &set->operations[request->operation] : NULL;
    }
    if (counters)
        counter_add(&counters->wait_ns, (uint64_t)time);
}

hvd_code hvd_wait(hvd_handle *handle, double seconds, hvd_status *status)
{
    if (!handle)
        return status_set(status, HVD_INVALID_ARGUMENT, "the handle is NULL");
    hvd_code code = handle_is_done(handle) ? HVD_OK : context_check_process(handle->context, status);
    if (code)
        return code;
    if (handle_is_done(handle))
        return hvd_test(handle, status);
    int64_t start = clock_now();
    bool done = drive_until(handle->context, &handle->state, HANDLE_DONE,
                            seconds < 0 ? CLOCK_NEVER : clock_after(seconds));
    count_wait(handle, done, clock_now() - start);
    return hvd_test(handle, status);
}

/* ---- the background thread ------------------------------------------------------------------------ */

/* True when it shall nap. */
static bool drive_in_background(struct hvd_context *context)
{
    struct patience patience = {.mesh = context->world->mesh, .yield = YIELD_TIME_OF_BACKGROUND};
    patience_renew(&patience);
    do {
        if (progress(context))
            patience_renew(&patience);
        /* Only here: a caller that sees nothing move for a while leaves the driving to this thread. */
        silence_look(context);
        if (!run_finished_calls(context))
            return true;
    } while (!atomic_load_explicit(&context->wanted, memory_order_relaxed) && patience_spend(&patience));
    /* A caller has driven since the last look, so it will probably come back: this thread only looks in. */
    bool naps = context->napping = context->driven;
    context->driven = false;
    if (driver_leave(context))
        mesh_wake(context->world->mesh); /* comes back at once, unless a caller takes over */
    return naps;
}

/* Sleeps until the one who drives stops, unless it leaves nothing to be done. */
static void wait_until_free(struct hvd_context *context, int64_t deadline)
{
    /* Said before the wait: who frees the word later rings, who freed it before has changed it, and the futex
     * does not sleep. */
    atomic_store(&context->listener_waits, 1);
    futex_wait(&context->driver, DRIVER_TAKEN, deadline);
    atomic_store(&context->listener_waits, 0);
}

static void *listen_and_drive(void *argument)
{
    struct hvd_context *context = argument;
    const hvd_placement *placement = &context->placement;
    affinity_apply(context->settings.thread_affinity, placement->rank, placement->local_rank,
                   placement->local_size);
    bool naps = false;
    while (!atomic_load(&context->stop)) {
        if (driver_try(context))
            naps = drive_in_background(context);
        else
            wait_until_free(context, naps ? clock_now() + NAP : CLOCK_NEVER);
        /* While a caller drives, the word is what to sleep on: peers do not ring a mesh that is not armed. */
        if (atomic_load(&context->stop) || atomic_load(&context->driver) != DRIVER_FREE)
            continue;
        int64_t deadline = atomic_load(&context->deadline), nap_end = clock_now() + NAP;
        mesh_sleep(context->world->mesh, naps ? clock_earlier(nap_end, deadline) : deadline);
    }
    return NULL;
}

hvd_code drive_start_background(struct hvd_context *context, hvd_status *status)
{
    int error = thread_start(&context->background, listen_and_drive, context);
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
