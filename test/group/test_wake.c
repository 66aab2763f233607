/* test_wake.c - wake-ups that a race could lose: what one thread leaves to another that is about to sleep.
 * The model in test/model found them; each is here as the program that shows it. */
#include "base/clock.h"
#include "group.h"

#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SOON 60.0 /* s; no rank looks by itself, see join_job */

static _Atomic(int) rank_0_waits, rank_0_done;

static void wait_for_rank_0(void) /* at most as long as the group may take */
{
    while (!atomic_exchange(&rank_0_done, 0))
        usleep(1000);
}

static hvd_handle *submit(hvd_context *context, const char *name, float *value, hvd_done_fn done, bool waits)
{
    static const int64_t shape[] = {1};
    hvd_handle *handle;
    hvd_tensor tensor = tensor_of(value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.done = done;
    request.waits = waits;
    CHECK_OK(hvd_submit(context, &request, &handle, &check_status));
    return handle;
}

/* ---- a shutdown while the progress thread goes to sleep ------------------------------------------------ */

enum { UNKNOWN = -1, HELD = -2 };
static atomic_int bell = UNKNOWN; /* of rank 0's hub */
static _Thread_local bool is_caller;

/* Replaces the engine's calls as well. A caller that acquires the lock removes the poller from the bell. The
 * call that restores it is made between the last turn of progress and the release of the lock: there the
 * progress thread is held for longer than a caller yields. */
int epoll_ctl(int poller, int operation, int descriptor, struct epoll_event *event)
{
    int expected = is_caller ? UNKNOWN : poller;
    if (operation == EPOLL_CTL_MOD && (is_caller || event->events) &&
        atomic_compare_exchange_strong(&bell, &expected, is_caller ? poller : HELD) && !is_caller)
        usleep(100000);
    return (int)syscall(SYS_epoll_ctl, poller, operation, descriptor, event);
}

/* After a call of rank 0 its progress thread polls periodically; when no other one follows it arms. */
static void leave_beside_arming(struct member *member)
{
    hvd_context *context = join_job(member, "left", member->rank, member->size);
    int64_t deadline = clock_after(SOON);
    hvd_code code;
    is_caller = member->rank == 0;
    if (is_caller)
        atomic_store(&bell, UNKNOWN);
    do {
        float value = 1;
        hvd_status status;
        hvd_handle *handle = submit(context, "again", &value, NULL, true);
        code = hvd_wait(handle, -1, &status);
        hvd_release(handle);
        if (member->rank == 0)
            usleep(20000);
        CHECK(clock_now() < deadline, "no arming");
    } while (member->rank == 0 ? atomic_load(&bell) != HELD : code == HVD_OK);
    CHECK(code == (member->rank == 0 ? HVD_OK : HVD_SHUT_DOWN), "%d", code);
    deadline = clock_after(SOON);
    hvd_shutdown(context);
    CHECK(clock_now() < deadline, "the shutdown woke nobody");
    check_allreduce_works(member, "end");
}

/* ---- a deadline that comes up while a `done` function is called ---------------------------------------- */

static void note_call(void *argument, const hvd_status *status)
{
    (void)status;
    (void)argument;
}

/* The deadline of the request that stalls is earlier than the one that the progress thread sleeps until. */
static void stall_beside_call(struct member *member)
{
    /* Rank 1 may get no processor for some seconds. */
    const char *const settings[] = {"stall_shutdown_seconds", "5", NULL};
    struct member stalls = *member;
    stalls.settings = settings;
    hvd_context *context = join_job(&stalls, "stalls", member->rank, member->size);
    float value = 1, other = 1;
    if (member->rank == 0) {
        usleep(50000); /* both progress threads sleep, without a deadline */
        hvd_handle *alone = submit(context, "alone", &value, NULL, true);
        hvd_handle *both = submit(context, "both", &other, note_call, true);
        atomic_store(&rank_0_waits, 1);
        finish(both);
        hvd_status status;
        int64_t deadline = clock_after(SOON);
        while (hvd_test(alone, &status) == HVD_IN_PROGRESS) {
            CHECK(clock_now() < deadline, "nobody looks at the request that stalls");
            usleep(1000);
        }
        CHECK(hvd_test(alone, &status) == HVD_TIMED_OUT, "%s", status.text);
        hvd_release(alone);
        atomic_store(&rank_0_done, 1);
    } else {
        while (!atomic_exchange(&rank_0_waits, 0))
            ;
        int64_t moment = clock_now() + 200000; /* rank 0 drives by now, and does not sleep yet */
        while (clock_now() < moment)
            ;
        hvd_handle *both = submit(context, "both", &other, NULL, true);
        finish(both);
        wait_for_rank_0();
    }
    hvd_shutdown(context);
    check_allreduce_works(member, "end");
}

/* ---- waiting for the network ----------------------------------------------------------------------- */

enum { LATE_TURNS = 20 };

static atomic_long yields;

/* The engine's calls, too; without giving up the core, so that other programs do not change the count. */
int sched_yield(void)
{
    atomic_fetch_add(&yields, 1);
    return 0;
}

/* Rank 1 submits each operation late. In 5 us a rank can't yield often; in 1 ms it yields thousands of times.
 */
static void wait_for_a_late_host(struct member *member)
{
    float value = 1;
    long before = 0;
    for (int i = -1; i < LATE_TURNS; i++) {
        if (member->rank == 1)
            usleep(5000);
        hvd_handle *handle = submit(member->context, "late", &value, NULL, true);
        CHECK_OK(hvd_wait(handle, -1, &check_status));
        hvd_release(handle);
        before = i < 0 ? atomic_load(&yields) : before;
    }
    long count = atomic_load(&yields) - before;
    CHECK(count < 2000L * LATE_TURNS, "%ld turns of yielding in %d operations", count, LATE_TURNS);
}

static const char *const two_hosts[] = {"a", "b"};
GROUP_TEST(test_callers_sleep_until_the_network_has_news, wait_for_a_late_host, 2, 2, .transport = "auto",
           .hosts = two_hosts)
GROUP_TEST(test_leave_beside_arming, leave_beside_arming, 2, 2, .transport = "tcp")
GROUP_TEST(test_stall_beside_call, stall_beside_call, 2, 2, EVERY_TRANSPORT)
