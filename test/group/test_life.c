/* test_life.c - whole lives of a job, one after another: no barrier between rounds, several jobs at once in
 * one process, a smaller job after a fault. A life must leave nothing behind.
 *
 * HOROVOD_TEST_LIVES is the number of rounds; `make soak` runs 1,000. */
#include "group.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const transports[] = {"shm", "tcp"};

static int lives(void)
{
    const char *text = getenv("HOROVOD_TEST_LIVES");
    return text ? atoi(text) : 40;
}

static void one_reduction(struct member *member)
{
    check_allreduce_works(member, "alive");
}

/* ---- what is left behind ------------------------------------------------------------------------------ */

struct holdings {
    int descriptors, threads, mappings;
    long resident; /* KiB */
};

/* A sanitizer maps memory of its own, which has no file. */
static int count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    CHECK(file, "/proc/self/maps");
    char line[5000];
    int mappings = 0;
    while (fgets(line, sizeof line, file))
        mappings += !SANITIZED || strchr(line, '/');
    fclose(file);
    return mappings;
}

static long resident_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file, "/proc/self/status");
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld", &kib);
    fclose(file);
    return kib;
}

/* A thread that was joined is listed until the system has ended it. */
static void wait_for_threads(int count)
{
    for (int waited = 0; count_entries("/proc/self/task") > count; waited++) {
        CHECK(waited < 60000, "%d threads, before: %d", count_entries("/proc/self/task"), count);
        usleep(1000);
    }
}

static struct holdings take_stock(void)
{
    return (struct holdings){count_entries("/proc/self/fd"), count_entries("/proc/self/task"),
                             count_mappings(), resident_kib()};
}

/* KiB; a sanitizer keeps for a while what was freed. Stacks and arenas are as many as threads ran at once:
 * fewer than the 40 that one mapping left behind by each life would make. */
enum { MORE_RESIDENT = SANITIZED ? 1 << 20 : 8 << 10, MORE_MAPPINGS = 32 };

/* The first lives fill what is kept on purpose: the allocator's arenas, the C library's caches. What lives
 * leave behind they leave in each of three attempts. */
TEST(test_nothing_is_left_behind)
{
    for (int t = 0; t < 2; t++) {
        struct group_options options = {.transport = transports[t], .seconds = 600, .lives = 10};
        group_run(&options, 3, one_reduction, NULL);
        options.lives = lives();
        bool more = true;
        for (int attempt = 0; more; attempt++) {
            struct holdings before = take_stock();
            group_run(&options, 3, one_reduction, NULL);
            wait_for_threads(before.threads);
            struct holdings after = take_stock();
            CHECK(after.descriptors == before.descriptors, "%d descriptors, before: %d", after.descriptors,
                  before.descriptors);
            more = after.mappings > before.mappings + MORE_MAPPINGS ||
                   after.resident > before.resident + MORE_RESIDENT;
            CHECK(!more || attempt < 2, "%d mappings, before: %d; %ld KiB resident, before: %ld",
                  after.mappings, before.mappings, after.resident, before.resident);
        }
    }
}

/* ---- many lives --------------------------------------------------------------------------------------- */

GROUP_TEST(test_lives_without_barriers, one_reduction, 2, 4, .seconds = 600, .lives = lives())

/* ---- settings ------------------------------------------------------------------------------------------ */

static char long_value[5000]; /* of a setting that nothing uses here */

static void set_long_value(hvd_config *config, int rank)
{
    (void)rank;
    CHECK_OK(hvd_config_set(config, "mpi_library", long_value, &check_status));
}

static void read_settings(struct member *member)
{
    char text[sizeof long_value];
    int32_t length = (int32_t)strlen(long_value);
    CHECK(hvd_get_setting(member->context, "mpi_library", NULL, 0) == length, "another length");
    CHECK(hvd_get_setting(member->context, "mpi_library", text, 5) == length, "another length");
    CHECK(strcmp(text, "////") == 0, "%s", text);
    CHECK(hvd_get_setting(member->context, "mpi_library", text, sizeof text) == length, "another length");
    CHECK(strcmp(text, long_value) == 0, "%s", text);
    CHECK(hvd_get_setting(member->context, "rank", text, sizeof text) == 1, "another length");
    CHECK(text[0] - '0' == member->rank, "%s", text);
    CHECK(hvd_get_setting(member->context, "no such one", text, sizeof text) == -1, "%s", text);
}

TEST(test_long_settings)
{
    memset(long_value, '/', sizeof long_value - 1);
    group_run(&(struct group_options){.transport = "shm", .configure = set_long_value}, 2, read_settings,
              NULL);
}

/* ---- several jobs at once ----------------------------------------------------------------------------- */

static void reduce_in(hvd_context *context, int rank, int size)
{
    struct member other = {.context = context, .rank = rank, .size = size};
    check_allreduce_works(&other, "one of two jobs");
}

/* In the second job the ranks are counted backwards. */
static void two_jobs(struct member *member)
{
    int rank = member->size - 1 - member->rank;
    hvd_context *second = join_job(member, "second", rank, member->size);
    for (int i = 0; i < 10; i++) {
        check_allreduce_works(member, "the other of two jobs");
        reduce_in(second, rank, member->size);
    }
    hvd_shutdown(second);
    check_allreduce_works(member, "the first goes on");
}

GROUP_TEST(test_two_jobs, two_jobs, 3, 3, .lives = 5)

/* ---- after a fault ------------------------------------------------------------------------------------ */

/* The last rank leaves; the others notice, and go on as a smaller job, under a name of its own. */
static void shrink(struct member *member)
{
    hvd_status status;
    float value = 1;
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "never", &tensor);
    check_allreduce_works(member, "all here");
    if (member->rank == member->size - 1)
        return;
    CHECK(hvd_run(member->context, &request, NULL, &status) == HVD_SHUT_DOWN, "%s", status.text);
    hvd_shutdown(member->context);
    int size = member->size - 1;
    hvd_context *smaller = join_job(member, "smaller", member->rank, size);
    reduce_in(smaller, member->rank, size);
    hvd_shutdown(smaller);
    member->context = NULL; /* nothing is left to shut down */
}

GROUP_TEST(test_smaller_job_afterwards, shrink, 2, 4, EVERY_TRANSPORT)

/* ---- beside a frozen root ----------------------------------------------------------------------------- */

static atomic_bool frozen, thawed;

static void wait_until(atomic_bool *flag)
{
    for (int waited = 0; !atomic_load(flag); waited++) {
        CHECK(waited < 50000, "nothing happened within 50 s");
        usleep(1000);
    }
}

/* While it runs nobody drives. */
static void freeze(void *argument, const hvd_status *status)
{
    (void)argument;
    (void)status;
    atomic_store(&frozen, true);
    wait_until(&thawed);
}

static hvd_code submit_with_call(hvd_context *context, const char *name, float *value, hvd_done_fn done,
                                 void *argument, hvd_status *status)
{
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.done = done;
    request.done_argument = argument;
    return hvd_submit(context, &request, NULL, status);
}

static void not_called(void *argument, const hvd_status *status)
{
    (void)argument;
    CHECK(false, "an operation that was refused ended: %s", status->text);
}

static void submit_again(void *argument, const hvd_status *status)
{
    static float value;
    struct member *member = argument;
    hvd_status own;
    CHECK(status->code == HVD_SHUT_DOWN, "%s: %s", hvd_code_name(status->code), status->text);
    hvd_code code = submit_with_call(member->context, "again", &value, not_called, NULL, &own);
    CHECK(code == HVD_SHUT_DOWN && strstr(own.text, "rank 1 has shut down"), "%s: %s", hvd_code_name(code),
          own.text);
    member->argument = member; /* it was called */
}

/* The root acknowledges no shutdown, so rank 1 times out and refuses what its callbacks submit then. */
static void shut_down_beside_frozen_root(struct member *member)
{
    float value = 1, never = 1;
    if (member->rank == 0) {
        CHECK_OK(submit_with_call(member->context, "freeze", &value, freeze, NULL, &check_status));
        wait_until(&thawed);
        return;
    }
    check_allreduce_works(member, "freeze");
    wait_until(&frozen);
    CHECK_OK(submit_with_call(member->context, "never", &never, submit_again, member, &check_status));
    hvd_shutdown(member->context);
    CHECK(member->argument, "no callback");
    member->context = NULL;
    atomic_store(&thawed, true);
}

GROUP_TEST(test_frozen_root, shut_down_beside_frozen_root, 2, 2, .transport = "shm")
