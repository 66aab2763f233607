/* test_done.c - what a `done` function may do with the handle of its own operation. */
#include "group.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static hvd_request sum_request(const char *name, const hvd_tensor *tensor, hvd_done_fn done, void *argument)
{
    hvd_request request = request_of(HVD_ALLREDUCE, name, tensor);
    request.done = done;
    request.done_argument = argument;
    return request;
}

/* ---- the handle is written before `done` can be called ------------------------------------------------ */

/* A submission that stops where it writes its handle, as that page is write-protected until `done` has run,
 * or other threads have had time for it. */
struct held_submission {
    hvd_handle **slot; /* a page */
    size_t page;
    hvd_handle *driven; /* an operation that another thread waits for, so makes progress */
    atomic_bool submitted;
    _Atomic(int) calls, calls_without_handle;
};

enum { HELD_FOR = 100 }; /* ms */

static _Thread_local struct held_submission *held_here;

static void let_others_run(int number, siginfo_t *fault, void *context)
{
    struct held_submission *held = held_here;
    (void)context;
    if (!held || fault->si_addr != (void *)held->slot) {
        signal(number, SIG_DFL); /* the fault comes again, and ends the program */
        return;
    }
    for (int i = 0; i < HELD_FOR && !atomic_load(&held->calls); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    mprotect(held->slot, held->page, PROT_READ | PROT_WRITE);
}

static void look_at_handle(void *argument, const hvd_status *status)
{
    struct held_submission *held = argument;
    CHECK(status->code == HVD_OK, "%s", status->text);
    if (!*held->slot || hvd_test(*held->slot, NULL))
        atomic_fetch_add(&held->calls_without_handle, 1);
    atomic_fetch_add(&held->calls, 1);
}

static void *drive(void *argument)
{
    struct held_submission *held = argument;
    while (!atomic_load(&held->submitted))
        hvd_wait(held->driven, 0.001, NULL);
    return NULL;
}

/* On every rank but 0, which completes `driven` only afterwards. */
static void submit_held(struct member *member, const hvd_request *request, struct held_submission *held)
{
    pthread_t driver;
    CHECK(!pthread_create(&driver, NULL, drive, held), "no thread");
    held_here = held;
    CHECK(!mprotect(held->slot, held->page, PROT_READ), "mprotect");
    CHECK_OK(hvd_submit(member->context, request, held->slot, &check_status));
    held_here = NULL;
    atomic_store(&held->submitted, true);
    pthread_join(driver, NULL);
}

static void handle_before_done(struct member *member)
{
    float driven = 1, value = 1;
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    struct held_submission held = {.page = (size_t)sysconf(_SC_PAGESIZE)};
    hvd_request request = sum_request("held", &tensor, look_at_handle, &held);
    held.slot = mmap(NULL, held.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(held.slot != MAP_FAILED, "mmap");
    if (member->rank) {
        held.driven = submit_sum(member, "driven", &driven, 1, 0);
        submit_held(member, &request, &held);
        finish(held.driven);
    } else {
        CHECK_OK(hvd_submit(member->context, &request, held.slot, &check_status));
        CHECK_OK(hvd_wait(*held.slot, 60, &check_status));
        finish(submit_sum(member, "driven", &driven, 1, 0));
    }
    for (int waited = 0; !atomic_load(&held.calls); waited++) {
        CHECK(waited < 60000, "the done function was not called within 60 s");
        usleep(1000);
    }
    CHECK(!atomic_load(&held.calls_without_handle), "the done function found no handle");
    hvd_release(*held.slot);
    munmap(held.slot, held.page);
    check_allreduce_works(member, "nobody leaves before all were called");
}

TEST(a_handle_is_written_before_done_is_called)
{
    struct sigaction own = {.sa_sigaction = let_others_run, .sa_flags = SA_SIGINFO}, before;
    sigaction(SIGSEGV, &own, &before);
    group_run_sizes(&(struct group_options){EVERY_TRANSPORT}, 2, 3, handle_before_done);
    sigaction(SIGSEGV, &before, NULL);
}

/* ---- `done` releases the handle ----------------------------------------------------------------------- */

enum { RELEASED = 300 };

static void release_own(void *argument, const hvd_status *status)
{
    hvd_handle **handle = argument;
    CHECK(status->code == HVD_OK, "%s", status->text);
    hvd_release(*handle);
    *handle = NULL;
}

/* In hvd_submit's done function or in one set later, which another thread may call before hvd_on_done
 * returns. */
static void released_by_done(struct member *member)
{
    static _Thread_local float values[RELEASED];
    static _Thread_local hvd_handle *handles[RELEASED];
    int64_t shape[] = {1};
    for (int i = 0; i < RELEASED; i++) {
        hvd_tensor tensor = tensor_of(&values[i], HVD_FLOAT32, shape, 1);
        hvd_request request = sum_request(NULL, &tensor, i % 3 ? NULL : release_own, &handles[i]);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        if (i % 3)
            CHECK_OK(hvd_on_done(handles[i], release_own, &handles[i], &check_status));
    }
    /* Done functions of one rank are called in the order of their operations' ends; the end of the context
     * waits for all of them. */
    check_allreduce_works(member, "nobody leaves before");
    hvd_shutdown(member->context);
    member->context = NULL;
    for (int i = 0; i < RELEASED; i++)
        CHECK(!handles[i], "the done function of operation %d was not called", i);
}

GROUP_TEST(test_released_by_done, released_by_done, 1, 3, EVERY_TRANSPORT)
