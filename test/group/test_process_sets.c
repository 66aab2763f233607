/* test_process_sets.c - sets of some ranks: their values, their independence, coming, going and failing. */
#define member coordinator_member /* group.h has another struct of this name */
#include "engine/comm.h"
#include "engine/context.h"
#undef member
#include "base/clock.h"
#include "engine/drive.h"
#include "group.h"
#include "transport/peer.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int add_set(struct member *member, const int32_t *ranks, int count)
{
    int32_t id = -1;
    CHECK_OK(hvd_process_set_add(member->context, ranks, count, &id, &check_status));
    return id;
}

static bool is_among(int rank, const int32_t *ranks, int count)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] == rank)
            return true;
    }
    return false;
}

/* The sum of (rank of the job + 1) over a set. */
static void check_sum(struct member *member, int id, const char *name, const int32_t *ranks, int count)
{
    int32_t value = member->rank + 1, expected = 0;
    for (int i = 0; i < count; i++)
        expected += ranks[i] + 1;
    hvd_tensor tensor = tensor_of(&value, HVD_INT32, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.process_set = id;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(value == expected, "set %d: the sum is %d, not %d", id, value, expected);
}

/* Every non-empty set of the ranks, all alive at once, each used by its members only. */
static void every_subset(struct member *member)
{
    int32_t ranks[4], ids[15], count[15] = {0}, members[15][4];
    for (int subset = 1; subset < 1 << member->size; subset++) {
        int n = 0;
        for (int rank = member->size - 1; rank >= 0; rank--) {
            if (subset >> rank & 1)
                ranks[n++] = rank; /* descending: the order must not matter */
        }
        ids[subset - 1] = add_set(member, ranks, n);
        count[subset - 1] = n;
        memcpy(members[subset - 1], ranks, sizeof ranks);
        CHECK(ids[subset - 1] == subset, "the id is %d", ids[subset - 1]);
    }
    for (int set = 0; set < (1 << member->size) - 1; set++) {
        if (is_among(member->rank, members[set], count[set]))
            check_sum(member, ids[set], "x", members[set], count[set]);
    }
    check_allreduce_works(member, "end");
}

/* {0,1,2}, {1,2,3}, {2,3,0}, {3,0,1}: every rank starts its sets in an order of its own, all at once. */
static void overlapping(struct member *member)
{
    enum { ROUNDS = 30 };
    int ids[4];
    for (int set = 0; set < 4; set++)
        ids[set] = add_set(member, (int32_t[]){set, (set + 1) % 4, (set + 2) % 4}, 3);
    uint64_t state = (uint64_t)member->rank + 77;
    for (int round = 0; round < ROUNDS; round++) {
        static _Thread_local float data[4][5000];
        hvd_handle *handles[4] = {NULL};
        int first = (int)(random_next(&state) % 4);
        for (int i = 0; i < 4; i++) {
            int set = (first + i) % 4;
            if ((member->rank - set + 4) % 4 == 3)
                continue;
            int length = round % 3 ? 5000 : 1;
            for (int e = 0; e < length; e++)
                data[set][e] = (float)(member->rank + e);
            handles[set] = submit_sum(member, "x", data[set], length, ids[set]);
        }
        for (int set = 0; set < 4; set++) {
            if (!handles[set])
                continue;
            finish(handles[set]);
            float expected = (float)(set + (set + 1) % 4 + (set + 2) % 4);
            CHECK(data[set][0] == expected, "set %d: %g, not %g", set, data[set][0], expected);
        }
    }
    check_allreduce_works(member, "end");
}

static void roots_and_splits(struct member *member)
{
    hvd_status status;
    const int32_t ranks[] = {1, 3};
    int id = add_set(member, ranks, 2);
    int32_t value = member->rank;
    hvd_tensor tensor = tensor_of(&value, HVD_INT32, NULL, 0);
    hvd_request request = request_of(HVD_BROADCAST, "b", &tensor);
    request.process_set = id;
    request.root = 3;
    hvd_code code = hvd_run(member->context, &request, NULL, &status);
    if (!is_among(member->rank, ranks, 2)) {
        CHECK(code == HVD_INVALID_ARGUMENT && strstr(status.text, "not a member"), "%s", status.text);
        check_allreduce_works(member, "end");
        return;
    }
    CHECK(!code && value == 3, "%s", status.text);
    request.root = 2;
    code = hvd_run(member->context, &request, NULL, &status);
    CHECK(code == HVD_INVALID_ARGUMENT && strstr(status.text, "rank 2"), "%s", status.text);
    int64_t shape[] = {3}, splits[] = {1, 2};
    int32_t rows[] = {member->rank * 10, member->rank * 10 + 1, member->rank * 10 + 2};
    hvd_tensor input = tensor_of(rows, HVD_INT32, shape, 1), outputs[2];
    request = request_of(HVD_ALLTOALL, "a", &input);
    request.process_set = id;
    request.splits = splits;
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    const int32_t *got = outputs[0].data;
    int n = member->rank == 1 ? 1 : 2;
    CHECK(outputs[0].shape[0] == 2 * n && got[0] == (n == 1 ? 10 : 11) && got[n] == (n == 1 ? 30 : 31),
          "got something else");
    hvd_free(outputs[0].data);
    hvd_free(outputs[1].data);
    check_allreduce_works(member, "end");
}

static void mismatch(struct member *member)
{
    hvd_status status;
    int32_t ranks[] = {0, member->rank == 1 ? 1 : 2}, id;
    for (int end = 0; end < 2; end++) {
        int32_t least = end ? HVD_OPENED_SETS : -1;
        hvd_code code = hvd_process_set_add_from(member->context, least, (int32_t[]){0}, 1, &id, &status);
        CHECK(code == HVD_INVALID_ARGUMENT, "least id %d: %s", (int)least, status.text);
    }
    hvd_code code = hvd_process_set_add(member->context, ranks, 2, &id, &status);
    CHECK(code == HVD_MISMATCH && strstr(status.text, "[0, 1]") && strstr(status.text, "[0, 2]"), "%s",
          status.text);
    check_allreduce_works(member, "after");
    int32_t least = 5 + member->rank;
    code = hvd_process_set_add_from(member->context, least, (int32_t[]){0, 1}, 2, &id, &status);
    CHECK(code == HVD_MISMATCH && strstr(status.text, "the least id: rank 0 has 5"), "%s", status.text);
    CHECK(hvd_process_set_add(member->context, (int32_t[]){0, 0}, 2, &id, &status) == HVD_INVALID_ARGUMENT,
          "got something else");
    CHECK(hvd_process_set_add(member->context, (int32_t[]){0, 99}, 2, &id, &status) == HVD_INVALID_ARGUMENT,
          "got something else");
    int32_t extremes[] = {1, INT32_MIN, INT32_MAX};
    CHECK(hvd_process_set_add(member->context, extremes, 3, &id, &status) == HVD_INVALID_ARGUMENT,
          "got something else");
    CHECK(hvd_process_set_remove(member->context, 0, &status) == HVD_INVALID_ARGUMENT, "got something else");
    CHECK(hvd_process_set_remove(member->context, 7, &status) == HVD_INVALID_ARGUMENT, "got something else");
}

/* As in an epoch after one in which other sets had the ids between. */
static void least_ids(struct member *member)
{
    static const int32_t leasts[] = {3, 40, 7, 41, 43}, expected[] = {3, 40, 41, 42, 43};
    const int32_t ranks[] = {0, 2};
    for (int i = 0; i < 5; i++) {
        int32_t id = -1;
        CHECK_OK(hvd_process_set_add_from(member->context, leasts[i], ranks, 2, &id, &check_status));
        CHECK(id == expected[i], "the id is %d, not %d", (int)id, (int)expected[i]);
        if (is_among(member->rank, ranks, 2))
            check_sum(member, id, "x", ranks, 2);
    }
    CHECK(add_set(member, ranks, 2) == 44, "the id is another one");
    check_allreduce_works(member, "end");
}

static void inquiries(struct member *member)
{
    int id = add_set(member, (int32_t[]){2, 0}, 2);
    int32_t ids[4] = {-1, -1, -1, -1}, ranks[4] = {-1, -1, -1, -1};
    CHECK(hvd_process_set_ids(member->context, ids, 4) == 2 && ids[0] == 0 && ids[1] == id && ids[2] == -1,
          "got something else");
    CHECK(hvd_process_set_ranks(member->context, id, ranks, 4) == 2 && ranks[0] == 0 && ranks[1] == 2,
          "got something else");
    CHECK(hvd_process_set_ranks(member->context, 0, ranks, 1) == member->size, "got something else");
    CHECK(hvd_process_set_ranks(member->context, 9, ranks, 4) == -1, "got something else");
    CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
    CHECK(hvd_process_set_ids(member->context, NULL, 0) == 1, "got something else");
    CHECK(hvd_process_set_ids(member->context, ids, 4) == 1, "got something else");
    CHECK(hvd_process_set_ranks(member->context, id, ranks, 4) == -1, "got something else");
    CHECK(add_set(member, (int32_t[]){2, 0}, 2) == id + 1, "an id was used again");
}

/* Sets come and go while the world works without a pause. */
static void come_and_go(struct member *member)
{
    for (int round = 0; round < 12; round++) {
        int32_t ranks[] = {round % member->size, (round + 1) % member->size};
        hvd_handle *handles[8];
        float data[8];
        for (int i = 0; i < 8; i++) {
            char name[16];
            data[i] = 1;
            snprintf(name, sizeof name, "w%d", i);
            handles[i] = submit_sum(member, name, &data[i], 1, 0);
        }
        int id = add_set(member, ranks, 2);
        if (is_among(member->rank, ranks, 2))
            check_sum(member, id, "in the set", ranks, 2);
        CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
        for (int i = 0; i < 8; i++) {
            finish(handles[i]);
            CHECK(data[i] == (float)member->size, "got something else");
        }
    }
}

/* What had not started on all members ends with an error on those that have submitted it. */
static void remove_with_pending(struct member *member)
{
    hvd_status status;
    const int32_t ranks[] = {0, 2};
    int id = add_set(member, ranks, 2);
    float value = 1;
    hvd_handle *handle = NULL;
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, "lonely", &tensor);
    request.process_set = id;
    if (member->rank == 0)
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
    if (handle) {
        CHECK(hvd_wait(handle, 30, &status) == HVD_SHUT_DOWN, "%s", status.text);
        hvd_release(handle);
    }
    CHECK(hvd_submit(member->context, &request, &handle, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    check_allreduce_works(member, "after");
}

/* A rank that is no member takes no part, and works on; sets are removed in any order. */
static void opened_by_members(struct member *member)
{
    enum { ROUNDS = 5 };
    static const int32_t pairs[3][2] = {{0, 1}, {1, 2}, {2, 0}};
    hvd_status status;
    int32_t ids[16];
    for (int round = 0; round < ROUNDS; round++) {
        int base = HVD_OPENED_SETS + 100 - 3 * round; /* not in ascending order */
        for (int i = 0; i < 3; i++) {
            if (!is_among(member->rank, pairs[i], 2))
                continue;
            CHECK_OK(hvd_process_set_open(member->context, base + i, pairs[i], 2, &check_status));
            check_sum(member, base + i, "x", pairs[i], 2);
        }
        int known = hvd_process_set_ids(member->context, ids, 16);
        for (int i = 1; i < known; i++)
            CHECK(ids[i - 1] < ids[i], "ids are not ascending");
        CHECK(known == (member->rank < 3 ? 3 : 1), "%d sets are known", known);
        for (int i = 0; i < 3; i++) {
            int set = (i + member->rank) % 3;
            if (is_among(member->rank, pairs[set], 2))
                CHECK_OK(hvd_process_set_remove(member->context, base + set, &check_status));
        }
        int id = add_set(member, pairs[round % 3], 2); /* removals were local */
        CHECK_OK(hvd_process_set_remove(member->context, id, &check_status));
        check_allreduce_works(member, "end of round");
    }
    CHECK(hvd_process_set_open(member->context, 9, pairs[0], 2, &status) == HVD_INVALID_ARGUMENT,
          "got something else");
    int32_t other = (member->rank + 1) % member->size;
    CHECK(hvd_process_set_open(member->context, HVD_OPENED_SETS, &other, 1, &status) == HVD_INVALID_ARGUMENT,
          "got something else");
    CHECK_OK(hvd_process_set_open(member->context, HVD_OPENED_SETS, &member->rank, 1, &check_status));
    check_sum(member, HVD_OPENED_SETS, "alone", &member->rank, 1);
    check_allreduce_works(member, "end");
    /* group_run shuts down now, with that set open */
}

static void leave_with_sets(struct member *member)
{
    const int32_t ranks[] = {1, 2};
    int id = add_set(member, ranks, 2);
    if (is_among(member->rank, ranks, 2))
        check_sum(member, id, "x", ranks, 2);
    check_allreduce_works(member, "end"); /* who leaves ends the job for all */
    /* group_run shuts down now, each rank at its own time */
}

static double cpu_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

/* Nothing is submitted after the set was added, and no thread may poll forever: there is a second in which
 * both ranks use nothing. It is not always the first one, as the other rank may still add the set. */
static void add_and_idle(struct member *member)
{
    static const int32_t ranks[] = {0, 1};
    double used = 1;
    add_set(member, ranks, 2);
    for (int seconds = 0; used >= 0.03; seconds++) {
        CHECK(seconds < 60, "idle ranks used %.3f s of the processor within a second", used);
        double before = cpu_seconds();
        usleep(1000000);
        used = cpu_seconds() - before;
    }
}

/* ---- what a set costs ---------------------------------------------------------------------------------- */

enum { MANY = 20 };

/* As a thread that makes progress: no other one changes the context until the lock is released. */
static void take_progress_lock(struct hvd_context *context)
{
    unsigned expected = 0;
    while (!atomic_compare_exchange_weak(&context->drive.lock, &expected, 1)) {
        expected = 0;
        sched_yield();
    }
}

static void release_progress_lock(struct hvd_context *context)
{
    atomic_store(&context->drive.lock, 0);
    drive_notify(context); /* the progress thread may wait for the lock */
}

static bool is_over_sockets(struct hvd_context *context)
{
    take_progress_lock(context);
    bool over_sockets = context->world->mesh->watches_links;
    release_progress_lock(context);
    return over_sockets;
}

/* Links over sockets need theirs, three at each end; nothing else needs a descriptor. */
static void descriptors_of_sets(struct member *member)
{
    check_allreduce_works(member, "start");
    int before = count_entries("/proc/self/fd");
    check_allreduce_works(member, "counted");
    for (int i = 0; i < MANY; i++)
        add_set(member, (int32_t[]){0, 1}, 2);
    int wanted = is_over_sockets(member->context) ? before + 2 * 3 * MANY : before;
    check_allreduce_works(member, "added");
    int open;
    int64_t deadline =
        clock_after(60); /* the rendezvous closes connections later; the other rank may count now */
    while ((open = count_entries("/proc/self/fd")) > wanted + 1 && clock_now() < deadline)
        usleep(10000);
    CHECK(open <= wanted + 1, "%d descriptors, not %d", open, wanted);
    check_allreduce_works(member, "counted again");
}

/* Sets that each turn of progress visits. */
static int count_running(struct member *member)
{
    struct hvd_context *context = member->context;
    int count = 0;
    take_progress_lock(context);
    for (const struct comm *comm = context->world->next_running; comm; comm = comm->next_running)
        count++;
    release_progress_lock(context);
    return count;
}

static void idle_sets_are_not_visited(struct member *member)
{
    int ids[MANY], running = 0;
    for (int i = 0; i < MANY; i++)
        ids[i] = add_set(member, (int32_t[]){0, 1}, 2);
    check_sum(member, ids[3], "x", (int32_t[]){0, 1}, 2);
    for (int i = 0; i < 6000 && (running = count_running(member)); i++)
        usleep(10000);
    CHECK(!running, "%d sets are still visited", running);
    for (int i = 0; i < 30; i++)
        check_allreduce_works(member, "world");
    running = count_running(member);
    CHECK(!running, "the work of the world has resumed %d sets", running);
    check_allreduce_works(member, "counted"); /* the other rank's request would resume the set here */
    check_sum(member, ids[3], "x", (int32_t[]){0, 1}, 2);
}

/* Sets are suspended and resumed all the time: by requests here, by news from peers, while both sleep. */
static void idle_now_and_then(struct member *member)
{
    enum { SETS = 6, ROUNDS = 150 };
    int ids[SETS];
    uint64_t common = 5, own = (uint64_t)member->rank;
    for (int i = 0; i < SETS; i++)
        ids[i] = add_set(member, (int32_t[]){i % 3, (i + 1) % 3}, 2);
    for (int round = 0; round < ROUNDS; round++) {
        int i = (int)(random_next(&common) % SETS);
        uint64_t pause = random_next(&own) % 8;
        int32_t ranks[] = {i % 3, (i + 1) % 3};
        if (!is_among(member->rank, ranks, 2))
            continue;
        if (pause < 4)
            usleep((useconds_t)(pause * 2000));
        check_sum(member, ids[i], "x", ranks, 2);
    }
    check_allreduce_works(member, "end");
}

#ifndef __SANITIZE_THREAD__ /* takes minutes there */
/* In larger jobs the world does not connect every pair: rank 0 talks to rank 3 in their sets only. */
static void pairs_without_a_link(struct member *member)
{
    int ids[2] = {add_set(member, (int32_t[]){0, 3}, 2), add_set(member, (int32_t[]){0, 3, 4}, 3)};
    for (int round = 0; round < 5; round++) {
        if (is_among(member->rank, (int32_t[]){0, 3}, 2))
            check_sum(member, ids[0], "x", (int32_t[]){0, 3}, 2);
        if (is_among(member->rank, (int32_t[]){0, 3, 4}, 3))
            check_sum(member, ids[1], "x", (int32_t[]){0, 3, 4}, 3);
        usleep(20000);
    }
    CHECK_OK(hvd_process_set_remove(member->context, ids[0], &check_status));
    if (is_among(member->rank, (int32_t[]){0, 3, 4}, 3))
        check_sum(member, ids[1], "y", (int32_t[]){0, 3, 4}, 3);
    check_allreduce_works(member, "end");
}
#endif

/* ---- a member that is late ----------------------------------------------------------------------------- */

/* More than the calls, every INTERRUPT_INTERVAL, while the first look for a record waits. */
enum { LATE_CALLS = 6 };

struct late_member {
    atomic_bool held; /* rank 1 is in its interrupt function */
    atomic_int calls; /* of rank 0's interrupt function */
};

static int count_calls(void *argument)
{
    struct late_member *lateness = argument;
    atomic_fetch_add(&lateness->calls, 1);
    return 0;
}

/* Once: after its request was submitted, before it connects. Its progress thread goes on. */
static int hold(void *argument)
{
    struct late_member *lateness = argument;
    int64_t deadline = clock_after(60);
    atomic_store(&lateness->held, true);
    while (atomic_load(&lateness->calls) < LATE_CALLS) {
        CHECK(clock_now() < deadline, "rank 0 does not wait");
        usleep(1000);
    }
    return 0;
}

/* Rank 0 connects long before rank 1 has published its addresses. */
static void late_member(struct member *member)
{
    struct late_member *lateness = member->argument;
    int64_t deadline = clock_after(60);
    member->context->interrupt = (struct interrupt){member->rank ? hold : count_calls, lateness};
    while (member->rank == 0 && !atomic_load(&lateness->held)) {
        CHECK(clock_now() < deadline, "rank 1 does not wait");
        usleep(1000);
    }
    int id = add_set(member, (int32_t[]){0, 1}, 2);
    check_sum(member, id, "x", (int32_t[]){0, 1}, 2);
}

TEST(test_late_member)
{
    static const char *const transports[] = {"shm", "tcp"};
    for (int i = 0; i < 2; i++) {
        struct late_member lateness = {0};
        struct group_options options = {.transport = transports[i]};
        group_run(&options, 2, late_member, &lateness);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------- */

/* What the shared memory of all ranks of this process takes, used or only reserved; -1: no permission. */
static long shared_bytes(void)
{
    long bytes = 0;
    char line[512], path[96];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && bytes >= 0 && fgets(line, sizeof line, maps)) {
        char range[64];
        struct stat info;
        if (!strstr(line, "memfd:horovod") || sscanf(line, "%63s", range) != 1)
            continue;
        snprintf(path, sizeof path, "/proc/self/map_files/%s", range);
        if (stat(path, &info) == 0)
            bytes += (long)info.st_blocks * 512;
        else if (errno != ENOENT) /* unmapped meanwhile */
            bytes = -1;
    }
    fclose(maps);
    return bytes;
}

/* Until both have counted nobody goes on. */
static long count_shared(struct member *member)
{
    check_allreduce_works(member, "before the count");
    long bytes = shared_bytes();
    check_allreduce_works(member, "counted");
    return bytes;
}

/* A set takes the memory that its tensors need, and returns it once it is idle. */
static void memory_follows_use(struct member *member)
{
    enum { COUNT = 1 << 20, EACH = 2 * 32 << 10, PIECES = 2 * 2 * 64 << 10 };
    int64_t shape[] = {COUNT};
    const int32_t ranks[] = {0, 1};
    int ids[MANY];
    long before = count_shared(member);
    if (before < 0)
        return;
    for (int i = 0; i < MANY; i++)
        ids[i] = add_set(member, ranks, 2);
    long idle = count_shared(member);
    CHECK(idle <= before + MANY * EACH, "an idle set takes %ld KiB", (idle - before) / MANY >> 10);
    check_sum(member, ids[0], "small", ranks, 2);
    long small = count_shared(member);
    CHECK(small <= idle + PIECES, "small tensors take %ld KiB", (small - idle) >> 10);
    float *data = calloc(COUNT, sizeof *data);
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "large", &tensor);
    request.process_set = ids[1];
    for (int round = 0; round < 2; round++) {
        int64_t start = clock_now();
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        long large = shared_bytes();
        bool late = clock_now() - start > CLOCK_SECOND; /* under a sanitizer: some may have gone again */
        CHECK(late || large > idle + (1 << 20), "large tensors take %ld KiB", (large - idle) >> 10);
        for (int wait = 0; wait < 300 && shared_bytes() > idle; wait++)
            usleep(100000);
        CHECK(shared_bytes() <= idle, "an idle set has kept its memory");
    }
    free(data);
}

/* Rank 0 gets no more memory for a set than its limit allows. */
static void without_memory(struct member *member)
{
    enum { COUNT = 1 << 20 };
    struct rlimit before, little;
    float *data = calloc(COUNT, sizeof *data);
    CHECK(data && getrlimit(RLIMIT_FSIZE, &before) == 0, "no limit");
    little = (struct rlimit){4096, before.rlim_max};
    check_allreduce_works(member, "start");
    if (member->rank == 0)
        CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0, "can't set a limit");
    int id = add_set(member, (int32_t[]){0, 1}, 2);
    check_allreduce_works(member, "added");
    if (member->rank == 0)
        CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "can't set a limit");
    for (int round = 1; round <= 5; round++) {
        int64_t shape[] = {COUNT};
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor);
        request.process_set = id;
        for (int i = 0; i < COUNT; i++)
            data[i] = (float)round;
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        CHECK(data[COUNT - 1] == (float)(2 * round), "%g, not %d", data[COUNT - 1], 2 * round);
    }
    free(data);
}

/* ---- out of descriptors -------------------------------------------------------------------------------- */

#if !defined(__SANITIZE_THREAD__) && !defined(HVD_ON_CUDA) /* which bear no threads in a child of fork() */

/* Takes each descriptor that becomes free, as a thread of the user's program might. */
static void *take_descriptors(void *argument)
{
    const atomic_bool *enough = argument;
    int taken[256], count = 0;
    while (!*enough && count < 256) {
        int fd = dup(STDERR_FILENO);
        if (fd >= 0)
            taken[count++] = fd;
    }
    while (count)
        close(taken[--count]);
    return NULL;
}

/* One rank may have `more` descriptors than it has now: whatever fails for want of one, both ranks learn why
 * at once, and the job goes on. Returns whether it was enough for a set. */
static bool add_with_few_descriptors(struct member *member, int limited, unsigned more)
{
    struct rlimit before, few;
    hvd_status status;
    int32_t id;
    int open = count_entries("/proc/self/fd") - 3; /* without ".", ".." and the folder's own */
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0, "no limit");
    few = (struct rlimit){(rlim_t)open + more, before.rlim_max};
    if (member->rank == limited)
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "can't set a limit");
    hvd_code code = hvd_process_set_add(member->context, (int32_t[]){0, 1}, 2, &id, &status);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "can't set a limit");
    /* The other rank may have been connected before this one failed. */
    bool refers = member->rank != limited && strstr(status.text, "its own error says why");
    CHECK(!code || refers || strstr(status.text, "ulimit -n"), "%u more: %s", more, status.text);
    CHECK(!code || member->rank == limited || strstr(status.text, limited ? "rank 1" : "rank 0"), "%s",
          status.text);
    check_allreduce_works(member, "after");
    if (!code)
        check_sum(member, id, "x", (int32_t[]){0, 1}, 2);
    return !code;
}

/* Not even one that the engine itself would close is left to report the failure with. */
static void add_beside_a_taker(struct member *member, int limited)
{
    pthread_t taker;
    atomic_bool enough = false;
    struct rlimit before, none;
    hvd_status status;
    int32_t id;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0, "no limit");
    none = (struct rlimit){(rlim_t)count_entries("/proc/self/fd") - 3, before.rlim_max};
    if (member->rank == limited) {
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "can't set a limit");
        CHECK(!pthread_create(&taker, NULL, take_descriptors, &enough), "no thread");
    }
    for (int round = 0; round < 4; round++) {
        hvd_code code = hvd_process_set_add(member->context, (int32_t[]){0, 1}, 2, &id, &status);
        CHECK(code == HVD_SYSTEM && strstr(status.text, "ulimit -n"), "%d: %s", code, status.text);
    }
    if (member->rank == limited) {
        enough = true;
        pthread_join(taker, NULL);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "can't set a limit");
    }
    check_allreduce_works(member, "after the taker");
}

static void run_limited(struct member *member, int limited)
{
    unsigned more = 0;
    member->context = join_job(member, "limited", member->rank, 2);
    check_allreduce_works(member, "before");
    int open = count_entries("/proc/self/fd");
    if (strcmp(member->transport, "tcp") == 0)
        add_beside_a_taker(member, limited);
    /* The connections of the sets that failed are closed by another thread: none of them may count as open.
     */
    for (int i = 0; count_entries("/proc/self/fd") > open; i++) {
        CHECK(i < 6000, "the sets that failed keep descriptors");
        usleep(10000);
    }
    while (!add_with_few_descriptors(member, limited, more))
        CHECK(++more < 30, "a set needs more than 30 descriptors");
    CHECK(more > 0, "it needs none");
    hvd_shutdown(member->context);
}

static void limit_one_rank(const char *transport, int limited)
{
    static const char *const settings[] = {NULL};
    hvd_rendezvous *rendezvous;
    char address[64] = "";
    pid_t children[2];
    int addresses[2];
    CHECK(pipe(addresses) == 0, "no pipe");
    /* Both are forked before there is another thread: a child would inherit the locks that it holds. */
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        CHECK(children[rank] >= 0, "no fork");
        if (children[rank])
            continue;
        alarm(300); /* a rank that waits for the other's time to start to pass does not live to see it */
        CHECK(read(addresses[0], address, sizeof address) == sizeof address, "no address");
        close(addresses[0]);
        close(addresses[1]);
        struct member member = {
            .rank = rank, .size = 2, .transport = transport, .settings = settings, .address = address};
        run_limited(&member, limited);
        _exit(0);
    }
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int rank = 0; rank < 2; rank++)
        CHECK(write(addresses[1], address, sizeof address) == sizeof address, "the pipe is broken");
    close(addresses[0]);
    close(addresses[1]);
    for (int rank = 0; rank < 2; rank++) {
        int outcome;
        CHECK(waitpid(children[rank], &outcome, 0) == children[rank], "lost a child");
        CHECK(outcome == 0, "%s, rank %d limited: rank %d ended with %d (%d: it still waited)", transport,
              limited, rank, outcome, SIGALRM);
    }
    hvd_rendezvous_stop(rendezvous);
}

TEST(test_out_of_descriptors)
{
    for (int limited = 0; limited < 2; limited++) {
        limit_one_rank("shm", limited);
        limit_one_rank("tcp", limited);
        limit_one_rank("auto", limited);
    }
}

#endif

GROUP_TEST(test_every_subset, every_subset, 4, 4, EVERY_TRANSPORT)
GROUP_TEST(test_overlapping, overlapping, 4, 4, EVERY_TRANSPORT)
GROUP_TEST(test_overlapping_over_faulty_shm, overlapping, 4, 4, .transport = "faulty-shm")
GROUP_TEST(test_overlapping_over_faulty_tcp, overlapping, 4, 4, .transport = "faulty-tcp")
GROUP_TEST(test_a_set_without_memory_uses_tcp, without_memory, 2, 2, .transport = "auto")
GROUP_TEST(test_roots_and_splits, roots_and_splits, 4, 4, EVERY_TRANSPORT)
GROUP_TEST(test_mismatch, mismatch, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_least_ids, least_ids, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_inquiries, inquiries, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_come_and_go, come_and_go, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_remove_with_pending, remove_with_pending, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_opened_by_members, opened_by_members, 3, 4, EVERY_TRANSPORT)
GROUP_TEST(test_leave_with_sets, leave_with_sets, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_add_and_idle, add_and_idle, 2, 2, EVERY_TRANSPORT)
GROUP_TEST(test_descriptors_of_sets, descriptors_of_sets, 2, 2, EVERY_TRANSPORT)
GROUP_TEST(test_idle_sets_are_not_visited, idle_sets_are_not_visited, 2, 2, EVERY_TRANSPORT)
GROUP_TEST(test_idle_now_and_then, idle_now_and_then, 3, 3, EVERY_TRANSPORT)
#ifndef __SANITIZE_THREAD__
GROUP_TEST(test_pairs_without_a_link, pairs_without_a_link, 10, 10, EVERY_TRANSPORT)
#endif
/* Direct reads need no rings. */
GROUP_TEST(test_memory_follows_use, memory_follows_use, 2, 2, .transport = "shm",
           SETTINGS("shm_path", "ring"))
