/* drive.c - which thread makes progress, which threads sleep, and how they are woken. Any thread.
 *
 * One thread at a time holds the progress lock and calls progress(): a caller that waits for a handle, since
 * handing its work to another thread would cost two context switches, otherwise the progress thread. A
 * waiting thread first polls, then yields, then sleeps (backoff). A blocking call takes the lock with one
 * compare-and-swap and makes no system call unless it must wait long.
 *
 *   state            lock   mesh      progress thread sleeps in  woken by
 *   IDLE_ARMED       free   armed     mesh_sleep                 doorbell, socket, event, deadline,
 *                                                               back end's descriptor
 *   PROGRESS_THREAD  taken  disarmed  -                          -
 *   CALLER           taken  disarmed  wait_for_release           release
 *                                     or mesh_sleep              event, deadline
 *   POLLING          free   disarmed  mesh_sleep                 POLL_PERIOD, event, deadline
 *
 * POLLING replaces IDLE_ARMED on a rank whose callers return again and again, while no operation is under way
 * or a caller runs a collective that it has claimed: arming, and one wake-up of a thread per message, would
 * cost more than a peer's message that waits for POLL_PERIOD.
 *
 * Invariants; test/model checks them in all interleavings:
 *  1. Only the holder of the lock touches the meshes, the communicators, the back ends and the fields of
 *     struct hvd_context so marked. All shared words here are sequentially consistent, except hints.
 *  2. A release MUST arm every mesh before it checks for arrived data and local work for the last time, and
 *     MUST do both before it stores UNLOCKED: data that arrive later ring. Without arming, the progress
 *     thread MUST poll periodically, and no operation may be under way unless the releasing thread
 *     returns. A back end's descriptor needs no arming: it stays readable until progress clears it. A
 *     back end that must be polled sets a deadline (progress_deadline).
 *  3. A thread that adds work (queue, added, returned, leaving) MUST store it before it loads the lock. If it
 *     finds the lock taken it need not wake a thread: a release MUST check for such work after it has stored
 *     UNLOCKED.
 *  4. Work found by a release MUST be left to a thread that is awake: the releasing thread wakes the progress
 *     thread. Another thread may take the lock first; its own release finds the remaining work.
 *  5. The progress thread sleeps until the deadline it has loaded. The release that stores an earlier one
 *     MUST wake it, whichever thread takes the lock next: no later release can see that it was earlier.
 *  6. A thread MUST announce a sleep in the word that the other side reads (thread_waits, HANDLE_AWAITED by
 *     compare-and-swap) before the futex compares the value that the other side changes.
 *  7. After mesh_sleep the progress thread MUST try the lock: the event it has cleared may have been for it.
 *  8. `done` functions run with the lock free and may take it themselves through a submission.
 *
 * A waiting caller claims a collective whose library blocks under the lock, and runs it with the lock free;
 * its end is work that a thread adds (`returned`, invariant 3). A release leaves unclaimed collectives to the
 * back end's worker (backend/worker.c). */
#include "engine/drive.h"

#include "backend/worker.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/platform_cores.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"
#include "engine/heartbeat.h"
#include "engine/progress.h"
#include "engine/recorder.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { UNLOCKED, LOCKED };

#ifdef NDEBUG
#define note_holder(drive, thread) ((void)0)
#else
#define note_holder(drive, thread)                                                                           \
    atomic_store_explicit(&(drive)->holder, (uintptr_t)(thread), memory_order_relaxed)
#endif

/* How late an idle rank notices a fault or a request of other ranks while it polls periodically, in ns. */
#define POLL_PERIOD 2000000

/* A caller that sleeps needs a wake-up, and so delays other ranks of its host until they sleep as well; on
 * one host it therefore yields for longer than a wake-up takes, in ns. Data from a network take longer than
 * that, and a thread that yields on a core shared with busy programs loses it for milliseconds: with several
 * hosts it sleeps at once, and the wake-up returns the core to it. */
#define CALLER_YIELD 1000000
#define THREAD_YIELD 5000

/* The clock is read once in this many turns of polling: they are so short that reading it each time would
 * cost a good part of them. */
#define TURNS_PER_CLOCK 8

/* After this many consecutive waits on a core shared with a peer, the thread migrates: the scheduler leaves
 * both there for up to seconds. Where busy programs share the core as well, a wait takes milliseconds: then
 * the thread migrates after fewer, if they have taken this long, in ns. */
#define SAME_CORE_WAITS  64
#define SAME_CORE_FEWEST 8
#define SAME_CORE_TIME   8000000

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The thread polls for `spin` ns, then yields for `yield` ns, then sleeps. */
struct backoff {
    struct mesh *mesh;
    int64_t spin, yield;
    int64_t start;               /* of the polling; 0: not yet */
    int64_t now;                 /* when the clock was last read; 0: not since the last reset */
    bool polls;                  /* it polled when the clock was last read */
    unsigned turns;              /* of polling */
    bool shares_core;            /* a peer is on this core: polling would delay it */
    struct same_core *same_core; /* NULL: this thread never migrates */
    int64_t *idle_since;         /* see drive_until */
};

static int64_t yield_of(const struct hvd_context *context, int64_t on_one_host)
{
    return context->world->topology.hosts > 1 ? 0 : on_one_host;
}

static void backoff_reset(struct backoff *backoff)
{
    backoff->start = backoff->now = 0;
    backoff->polls = false;
}

static void backoff_start(struct backoff *backoff)
{
    backoff->start = backoff->now;
    if (backoff->idle_since && !*backoff->idle_since)
        *backoff->idle_since = backoff->now;
    /* A thread that does not poll delays no peer on its core. */
    int core = backoff->spin ? sched_getcpu() : -1;
    backoff->shares_core = core >= 0 && mesh_shares_core(backoff->mesh, core);
    struct same_core *same = backoff->same_core;
    if (!same)
        return;
    same->waits = backoff->shares_core ? same->waits + 1 : 0;
    if (same->waits == 1)
        same->since = backoff->now;
    if (same->waits == SAME_CORE_WAITS ||
        (same->waits >= SAME_CORE_FEWEST && backoff->now - same->since >= SAME_CORE_TIME)) {
        same->waits = 0;
        mesh_leave_core(backoff->mesh, core);
    }
}

/* Returns false when it is time to sleep. */
static bool backoff_step(struct backoff *backoff)
{
    if (!backoff->polls || ++backoff->turns % TURNS_PER_CLOCK == 0) {
        backoff->now = clock_now();
        if (!backoff->start)
            backoff_start(backoff);
        backoff->polls = backoff->now < backoff->start + backoff->spin && !backoff->shares_core;
    }
    if (backoff->polls)
        cpu_relax();
    else if (backoff->now < backoff->start + backoff->spin + backoff->yield)
        sched_yield();
    else
        return false;
    return true;
}

/* From here on peers ring, and workers run collectives that no caller has claimed. Returns false if data have
 * arrived already, or there is local work. */
static bool arm(struct hvd_context *context)
{
    bool quiet = true;
    progress_suspend(context, 0);
    for (struct comm *comm = context->world; comm; comm = comm->next_running) {
        worker_delegate(comm->backends.workers);
        quiet &= mesh_arm(comm->mesh) && !comm_is_ready(comm);
    }
    return quiet;
}

static void disarm(struct hvd_context *context)
{
    for (struct comm *comm = context->world; comm; comm = comm->next_running)
        mesh_disarm(comm->mesh);
}

static bool lock_try(struct hvd_context *context)
{
    struct drive *drive = &context->drive;
    unsigned expected = UNLOCKED;
    /* A load first: a compare-and-swap that fails would still move the cache line away from the holder. */
    if (atomic_load_explicit(&drive->lock, memory_order_relaxed) != UNLOCKED ||
        !atomic_compare_exchange_strong(&drive->lock, &expected, LOCKED))
        return false;
    note_holder(drive, pthread_self());
    disarm(context);
    return true;
}

static bool is_quiet(const struct hvd_context *context)
{
    const struct comm *comm = context->world;
    while (comm && comm_is_quiet(comm))
        comm = comm->next_running;
    return !comm;
}

static void wake_lock_waiter(struct hvd_context *context)
{
    struct drive *drive = &context->drive;
    if (atomic_load(&drive->thread_waits))
        futex_wake_all(&drive->lock);
}

/* Returns true if there is work that no wake-up announces: then the caller wakes the progress thread, or does
 * the work itself. `comes_back`: it has claimed a collective, and returns after it. See invariants 2 to 5. */
static bool lock_release(struct hvd_context *context, bool comes_back)
{
    struct drive *drive = &context->drive;
    bool quiet = is_quiet(context);
    bool periodic = drive->polls_periodically && (quiet || comes_back);
    bool news = false;
    if (periodic)
        mesh_mask(context->world->mesh);
    else
        news = !arm(context);
    int64_t deadline = clock_earlier(progress_deadline(context), heartbeat_deadline(context, quiet));
    bool left = context->leave_said; /* under the lock, so read before the release */
    bool sooner = deadline < atomic_exchange(&drive->deadline, deadline) && !periodic;
    note_holder(drive, 0);
    /* This store and the loads after it are sequentially consistent, as are the push of a submission and its
     * load of the lock: at least one of the two sides sees the other's store. */
    atomic_store(&drive->lock, UNLOCKED);
    if (!periodic)
        wake_lock_waiter(context);
    /* Woken here, not by the caller: a thread that took the lock in between finds the deadline stored. */
    if (sooner)
        mesh_wake(context->world->mesh);
    /* Work added before that store found the lock taken and woke no thread. */
    return news || atomic_load(&context->queue) || atomic_load(&context->added) ||
           atomic_load(&context->returned) || (!left && atomic_load(&context->leaving));
}

static void call_finished(struct hvd_handle *handle)
{
    while (handle) {
        struct hvd_handle *next = handle->next;
        hvd_status status;
        handle_outcome(handle, &status);
        handle->request.done(handle->request.done_argument, &status);
        handle_release(handle);
        handle = next;
    }
}

/* Calls the `done` functions of finished operations, with the lock free. Returns false if another thread took
 * the lock meanwhile. */
static bool run_finished_calls(struct hvd_context *context)
{
    struct hvd_handle *handles = handle_reverse(context->finished_calls);
    if (!handles)
        return true;
    context->finished_calls = NULL;
    lock_release(context, false); /* the next holder, this thread or another, finds the remaining work */
    call_finished(handles);
    return lock_try(context);
}

void drive_finish_calls(struct hvd_context *context)
{
    struct hvd_handle *handles = handle_reverse(context->finished_calls);
    context->finished_calls = NULL;
    call_finished(handles);
}

void drive_notify(struct hvd_context *context)
{
    struct drive *drive = &context->drive;
    /* The holder's release checks for added work: invariant 3. */
    if (atomic_load(&drive->lock) != UNLOCKED)
        return;
    mesh_wake(context->world->mesh);
    wake_lock_waiter(context);
}

static struct worker *claim(struct hvd_context *context)
{
    struct worker *worker = NULL;
    for (struct comm *comm = context->world; comm && !worker; comm = comm->next_running)
        worker = worker_claim(comm->backends.workers);
    return worker;
}

/* Makes progress until the word has its value, or it is time to sleep, or the deadline passes; releases the
 * lock. Returns a collective that this thread must run next, or NULL; NULL unless `may_block`. */
static struct worker *progress_as_caller(struct hvd_context *context, atomic_uint *word, unsigned value,
                                         int64_t deadline, int64_t *idle_since, bool may_block)
{
    struct drive *drive = &context->drive;
    struct backoff backoff = {.mesh = context->world->mesh,
                              .spin = drive->caller_spin,
                              .yield = yield_of(context, CALLER_YIELD),
                              .same_core = &drive->same_core,
                              .idle_since = idle_since};
    struct worker *claimed = NULL;
    backoff_reset(&backoff);
    drive->caller_active = true;
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
        bool moved = progress(context, backoff.now);
        if (!run_finished_calls(context))
            return NULL; /* another thread has the lock by now */
        if (deadline != CLOCK_NEVER && clock_now() >= deadline)
            break;
        if (moved)
            backoff_reset(&backoff);
        else if ((may_block && (claimed = claim(context))) || !backoff_step(&backoff))
            break;
    }
    if (!is_quiet(context)) { /* the end of a batch may let the next one start */
        progress(context, 0);
        if (!run_finished_calls(context))
            return claimed;
    }
    if (lock_release(context, claimed != NULL))
        drive_notify(context);
    return claimed;
}

/* Yields for a while until the word has its value or the lock is free; returns true if it has the lock. */
static bool wait_for_lock(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline,
                          int64_t *idle_since)
{
    struct drive *drive = &context->drive;
    /* without polling: the holder may need this core */
    struct backoff backoff = {
        .mesh = context->world->mesh, .yield = yield_of(context, CALLER_YIELD), .idle_since = idle_since};
    if (deadline != CLOCK_NEVER)
        backoff.yield = clock_earlier(backoff.yield, deadline - clock_now());
    backoff_reset(&backoff);
    bool mine = false;
    atomic_fetch_add(&drive->waiters, 1);
    do {
        if (atomic_load_explicit(word, memory_order_acquire) == value)
            break;
        mine = lock_try(context);
    } while (!mine && backoff_step(&backoff));
    atomic_fetch_sub(&drive->waiters, 1);
    return mine;
}

static void note_idle(int64_t *idle_since)
{
    if (idle_since && !*idle_since)
        *idle_since = clock_now();
}

bool drive_until(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline,
                 int64_t *idle_since)
{
    struct worker *claimed = NULL;
    /* A collective that this thread has run needs a turn, by it or by the holder of the lock, even if the
     * word has its value. */
    while (claimed || atomic_load_explicit(word, memory_order_acquire) != value) {
        claimed = NULL;
        if (lock_try(context) || wait_for_lock(context, word, value, deadline, idle_since))
            claimed = progress_as_caller(context, word, value, deadline, idle_since, true);
        if (claimed) {
            note_idle(idle_since);
            unsigned caller = recorder_sleeps(context, word);
            worker_run(claimed);
            recorder_woken(context, caller);
            atomic_store(&context->returned, true);
            continue;
        }
        unsigned seen = atomic_load_explicit(word, memory_order_acquire);
        if (seen == value)
            break;
        if (deadline != CLOCK_NEVER && clock_now() >= deadline)
            return false;
        /* Sleep until the holder changes the word: invariant 6. */
        if (seen != HANDLE_AWAITED && !atomic_compare_exchange_strong(word, &seen, HANDLE_AWAITED))
            continue;
        note_idle(idle_since); /* there was no backoff: another thread took the lock */
        unsigned caller = recorder_sleeps(context, word);
        futex_wait(word, HANDLE_AWAITED, deadline);
        if (atomic_load_explicit(word, memory_order_acquire) == value)
            recorder_woken(context, caller);
        else
            recorder_paused(context, caller);
    }
    return true;
}

/* A second thread would only contend for the lock with the first one, whose release finds submissions:
 * invariant 3. */
void drive_once(struct hvd_context *context, atomic_uint *word, unsigned value, int64_t deadline)
{
    if (lock_try(context))
        progress_as_caller(context, word, value, deadline, NULL, false);
}

/* ---- the progress thread -------------------------------------------------------------------------- */

/* Returns true if the thread polls periodically from now on. */
static bool progress_in_thread(struct hvd_context *context)
{
    struct drive *drive = &context->drive;
    struct backoff backoff = {.mesh = context->world->mesh, .yield = yield_of(context, THREAD_YIELD)};
    backoff_reset(&backoff);
    drive->turns = 0; /* so that the first one polls the sockets: one of them may have ended the sleep */
    bool moved;
    do {
        moved = progress(context, backoff.now);
        if (moved)
            backoff_reset(&backoff);
        /* Checked only here: a caller that moves nothing for a while leaves the lock to this thread. */
        heartbeat_check(context);
        if (!run_finished_calls(context))
            return true;
    } while (!atomic_load_explicit(&drive->waiters, memory_order_relaxed) &&
             (moved || backoff_step(&backoff)));
    /* A caller that made progress since this thread last did will probably return. */
    bool periodic = drive->polls_periodically = drive->caller_active;
    drive->caller_active = false;
    if (lock_release(context, false))
        mesh_wake(context->world->mesh); /* mesh_sleep returns at once */
    return periodic;
}

/* Sleeps until the holder releases the lock, unless the release leaves no work for this thread. */
static void wait_for_release(struct hvd_context *context, int64_t deadline)
{
    struct drive *drive = &context->drive;
    /* Set before FUTEX_WAIT: a later release sees it and wakes this thread; an earlier release has changed
     * the lock. */
    atomic_store(&drive->thread_waits, 1);
    futex_wait(&drive->lock, LOCKED, deadline);
    atomic_store(&drive->thread_waits, 0);
}

static void *run_progress_thread(void *argument)
{
    struct hvd_context *context = argument;
    struct drive *drive = &context->drive;
    const hvd_placement *placement = &context->placement;
    page_set_progress_thread(&context->page);
    affinity_apply(context->settings.thread_affinity, placement->rank, placement->local_rank,
                   placement->local_size);
    bool periodic = false;
    while (!atomic_load(&drive->stop)) {
        if (lock_try(context))
            periodic = progress_in_thread(context);
        else
            wait_for_release(context, periodic ? clock_now() + POLL_PERIOD : CLOCK_NEVER);
        /* While a caller has the lock, sleep on that: peers do not ring a mesh that is not armed. */
        if (atomic_load(&drive->stop) || atomic_load(&drive->lock) != UNLOCKED)
            continue;
        int64_t deadline = atomic_load(&drive->deadline), next_poll = clock_now() + POLL_PERIOD;
        mesh_sleep(context->world->mesh, periodic ? clock_earlier(next_poll, deadline) : deadline);
    }
    return NULL;
}

hvd_code drive_start_thread(struct hvd_context *context, hvd_status *status)
{
    struct drive *drive = &context->drive;
    drive->thread_runs = true; /* from here on the lock counts */
    int error = thread_start(&drive->thread, run_progress_thread, context);
    if (!error)
        return HVD_OK;
    drive->thread_runs = false;
    return status_set_errno(status, error, "rank %d can't start its progress thread",
                            context->placement.rank);
}

void drive_stop_thread(struct hvd_context *context)
{
    struct drive *drive = &context->drive;
    if (!drive->thread_runs)
        return;
    atomic_store(&drive->stop, true);
    mesh_wake(context->world->mesh);
    pthread_join(drive->thread, NULL);
    drive->thread_runs = false;
}

/* ---- affinity -------------------------------------------------------------------------------------- */

int affinity_core(const char *list, int local_rank, int local_size)
{
    int count = 0, own = -1;
    while (*list) {
        char *end;
        errno = 0;
        long core = strtol(list, &end, 10);
        if (end == list || (*end && *end != ',') || core < 0 || core > 1 << 20 || errno)
            return -1;
        if (count++ == local_rank)
            own = (int)core;
        list = end + (*end == ',');
    }
    return count < local_size ? -1 : own;
}

void affinity_apply(const char *list, int rank, int local_rank, int local_size)
{
    if (!*list)
        return;
    int core = affinity_core(list, local_rank, local_size);
    if (core < 0)
        log_error(rank,
                  "HOROVOD_THREAD_AFFINITY=%s is ignored: it has to name one core for each of the %d ranks "
                  "of this host, e.g. 0,2,4,6",
                  list, local_size);
    else if (!platform_thread_bind(core))
        log_error(rank,
                  "HOROVOD_THREAD_AFFINITY=%s is ignored: can't bind the engine's thread to core %d: %s",
                  list, core, strerror(errno));
}
