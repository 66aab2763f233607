/* test_behaviour.c - what holds beyond the values: any order of submission, names used again, callbacks,
 * errors that end one round only, ranks that leave, and forks. */
#include "base/clock.h"
#include "group.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES = 40, ROUNDS = 12, POLLED = 4, POLLED_ROUNDS = 300 };

static void shuffle(int *order, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_next(&seed) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

/* Every rank submits the same names, each in an order of its own; shapes change now and then on all ranks. */
static void any_order(struct member *member)
{
    static _Thread_local float data[NAMES][70];
    for (int round = 0; round < ROUNDS; round++) {
        hvd_handle *handles[NAMES];
        int order[NAMES];
        shuffle(order, NAMES, (uint64_t)(member->rank * 1000 + round));
        for (int i = 0; i < NAMES; i++) {
            int n = order[i];
            char name[24];
            int length = (round * 7 + n) % 5 ? 3 + n : 1 + round;
            for (int e = 0; e < length; e++)
                data[n][e] = (float)(member->rank + n + round);
            snprintf(name, sizeof name, "tensor%d", n);
            handles[n] = submit_sum(member, name, data[n], length, 0);
        }
        for (int n = 0; n < NAMES; n++) {
            finish(handles[n]);
            float expected = (float)(member->size * (n + round) + member->size * (member->size - 1) / 2);
            CHECK(data[n][0] == expected, "round %d tensor %d is %g, not %g", round, n, data[n][0], expected);
        }
    }
}

/* The caller waits for one request, so it may stop driving where another one has only a step of its own left;
 * for the others it only checks. */
static void waited_for_one(struct member *member)
{
    for (int round = 0; round < POLLED_ROUNDS; round++) {
        hvd_handle *handles[POLLED];
        float data[POLLED] = {1, 1, 1, 1};
        for (int i = 0; i < POLLED; i++) {
            char name[24];
            snprintf(name, sizeof name, "tensor%d", i);
            handles[i] = submit_sum(member, name, &data[i], 1, 0);
        }
        CHECK_OK(hvd_wait(handles[round % POLLED], 60, &check_status));
        int64_t deadline = clock_after(60); /* no rank looks by itself, see join_job */
        for (int i = 0; i < POLLED; i++) {
            hvd_status status;
            while (hvd_test(handles[i], &status) == HVD_IN_PROGRESS) {
                CHECK(clock_now() < deadline, "round %d: tensor %d is left lying", round, i);
                usleep(20);
            }
            CHECK_OK(hvd_test(handles[i], &check_status));
            CHECK(data[i] == (float)member->size, "round %d: got %g", round, data[i]);
            hvd_release(handles[i]);
        }
    }
}

struct call_count {
    atomic_int calls;
    hvd_context *context;
};

static void count_call(void *argument, const hvd_status *status)
{
    struct call_count *count = argument;
    CHECK(status->code == HVD_OK, "%s", status->text);
    CHECK(hvd_health(count->context, NULL) == HVD_OK, "a callback can't use its context");
    atomic_fetch_add(&count->calls, 1);
}

static void callbacks(struct member *member)
{
    static _Thread_local int32_t values[50];
    struct call_count count = {.context = member->context};
    int64_t shape[] = {1};
    for (int i = 0; i < 50; i++) {
        values[i] = i;
        hvd_tensor tensor = tensor_of(&values[i], HVD_INT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, NULL, &tensor);
        request.done = count_call;
        request.done_argument = &count;
        CHECK_OK(hvd_submit(member->context, &request, NULL, &check_status));
    }
    for (int waited = 0; atomic_load(&count.calls) < 50; waited++) {
        CHECK(waited < 60000, "only %d of 50 callbacks within 60 s", atomic_load(&count.calls));
        usleep(1000);
    }
    CHECK(values[49] == 49 * member->size, "a callback came before its result");
    check_allreduce_works(member, "nobody leaves before all were called");
}

/* Set after the submission: some find the operation under way, the last ones find it done. */
static void callbacks_set_later(struct member *member)
{
    static _Thread_local int32_t values[200];
    struct call_count count = {.context = member->context};
    hvd_handle *handles[200];
    hvd_status status;
    int64_t shape[] = {1};
    for (int i = 0; i < 200; i++) {
        values[i] = i;
        hvd_tensor tensor = tensor_of(&values[i], HVD_INT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, NULL, &tensor);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        if (i % 8)
            CHECK_OK(hvd_on_done(handles[i], count_call, &count, &check_status));
    }
    for (int i = 0; i < 200; i += 8) {
        CHECK_OK(hvd_wait(handles[i], 60, &check_status));
        int before = atomic_load(&count.calls);
        CHECK_OK(hvd_on_done(handles[i], count_call, &count, &check_status));
        CHECK(atomic_load(&count.calls) > before, "the operation was done, and its callback was not called");
    }
    CHECK(hvd_on_done(handles[0], count_call, &count, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_on_done(NULL, count_call, &count, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    for (int waited = 0; atomic_load(&count.calls) < 200; waited++) {
        CHECK(waited < 60000, "only %d of 200 callbacks within 60 s", atomic_load(&count.calls));
        usleep(1000);
    }
    for (int i = 0; i < 200; i++)
        hvd_release(handles[i]);
    check_allreduce_works(member, "nobody leaves before all were called");
    CHECK(atomic_load(&count.calls) == 200, "%d callbacks", atomic_load(&count.calls));
}

static hvd_code reduce_floats(struct member *member, const char *name, int64_t elements, hvd_status *status)
{
    float data[16] = {0};
    int64_t shape[] = {elements};
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    return hvd_run(member->context, &request, NULL, status);
}

/* One rank submits another shape: every rank gets an error that names it, for this round only. The name is
 * new at first, then cached. */
static void mismatch(struct member *member)
{
    hvd_status status;
    for (int round = 0; round < 4; round++) {
        int64_t elements = member->rank == member->size - 1 && round % 2 ? 5 : 3;
        hvd_code code = reduce_floats(member, "grad", elements, &status);
        if (round % 2) {
            CHECK(code == HVD_MISMATCH, "%s", hvd_code_name(code));
            CHECK(strstr(status.text, "grad") && strstr(status.text, "[3]") && strstr(status.text, "[5]"),
                  "%s", status.text);
        } else {
            CHECK(code == HVD_OK, "%s", status.text);
        }
        check_allreduce_works(member, "other");
    }
}

static hvd_code submit_float(struct member *member, const char *name, float *value, hvd_handle **handle,
                             hvd_status *status)
{
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    return hvd_submit(member->context, &request, handle, status);
}

/* Rank 0 alone does both: the call itself says so, and nothing of the second request is left. */
static void duplicate_name(struct member *member)
{
    hvd_status status;
    float data[3] = {1, 1, 1};
    hvd_handle *first, *second = NULL, *unnamed;
    if (member->rank) {
        check_allreduce_works(member, "go");
        CHECK_OK(reduce_floats(member, "twice", 1, &check_status));
        CHECK_OK(reduce_floats(member, NULL, 1, &check_status));
        CHECK_OK(reduce_floats(member, "twice", 1, &check_status));
        return;
    }
    /* The other ranks have not submitted it yet: it is in flight. */
    CHECK_OK(submit_float(member, "twice", &data[0], &first, &check_status));
    CHECK_OK(submit_float(member, NULL, &data[2], &unnamed, &check_status));
    for (int i = 0; i < 2; i++) {
        hvd_code code = submit_float(member, "twice", &data[1], &second, &status);
        CHECK(code == HVD_DUPLICATE_NAME && strstr(status.text, "allreduce.twice is in flight on rank 0"),
              "%s: %s", hvd_code_name(code), status.text);
        CHECK(!second, "a refused request has a handle");
    }
    check_allreduce_works(member, "go");
    CHECK_OK(hvd_wait(first, 30, &check_status));
    finish(unnamed);
    /* Free again once it is done, though the first handle is not released yet. */
    CHECK_OK(submit_float(member, "twice", &data[1], &second, &check_status));
    CHECK_OK(hvd_wait(second, 30, &check_status));
    hvd_release(first);
    hvd_release(second);
    CHECK(data[0] == 1 && data[1] == 1, "%g %g", data[0], data[1]); /* the others give zeros */
}

/* Names are those of an operation, single or grouped, and of a process set. */
static void equal_names(struct member *member)
{
    int32_t ids[] = {0, -1}, all[] = {0, 1, 2, 3};
    hvd_operation operations[] = {HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLREDUCE, HVD_BROADCAST};
    hvd_handle *handles[2][4];
    float data[2][4];
    CHECK_OK(hvd_process_set_add(member->context, all, member->size, &ids[1], &check_status));
    for (int set = 0; set < 2; set++) {
        for (int i = 0; i < 4; i++) {
            hvd_tensor tensor = tensor_of(&data[set][i], HVD_FLOAT32, NULL, 0);
            hvd_request request = request_of(operations[i], "same", &tensor);
            data[set][i] = 1;
            request.process_set = ids[set];
            request.grouped = i / 2;
            CHECK_OK(hvd_submit(member->context, &request, &handles[set][i], &check_status));
        }
    }
    for (int i = 0; i < 8; i++)
        finish(handles[i / 4][i % 4]);
}

/* A callback submits again under the name that has become free, and reaches its own handle. */
struct chain {
    struct member *member;
    hvd_handle *handles[20];
    atomic_int links;
    float value;
};

static void submit_link(struct chain *chain, int link);

static void next_link(void *argument, const hvd_status *status)
{
    struct chain *chain = argument;
    int link = atomic_load(&chain->links);
    hvd_status own;
    CHECK(status->code == HVD_OK, "%s", status->text);
    CHECK(chain->handles[link] && hvd_test(chain->handles[link], &own) == HVD_OK, "link %d has no handle",
          link);
    if (link + 1 < 20)
        submit_link(chain, link + 1);
    else
        atomic_store(&chain->links, 20);
}

static void submit_link(struct chain *chain, int link)
{
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&chain->value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "link", &tensor);
    request.reduction = HVD_AVERAGE;
    request.done = next_link;
    request.done_argument = chain;
    atomic_store(&chain->links, link);
    CHECK_OK(hvd_submit(chain->member->context, &request, &chain->handles[link], &check_status));
}

static void chained_callbacks(struct member *member)
{
    struct chain chain = {.member = member, .value = 3};
    submit_link(&chain, 0);
    for (int waited = 0; atomic_load(&chain.links) < 20; waited++) {
        CHECK(waited < 60000, "only %d of 20 callbacks within 60 s", atomic_load(&chain.links));
        usleep(1000);
    }
    for (int i = 0; i < 20; i++)
        hvd_release(chain.handles[i]);
    CHECK(chain.value == 3, "%g", chain.value);
    check_allreduce_works(member, "nobody leaves before all were called");
}

static void bad_arguments(struct member *member)
{
    hvd_status status;
    float data[2];
    int64_t shape[] = {2};
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    hvd_request good = request_of(HVD_ALLREDUCE, "bad", &tensor), bad = good;
    bad.operation = (hvd_operation)77;
    CHECK(hvd_run(member->context, &bad, NULL, &status) == HVD_INVALID_ARGUMENT, "operation");
    bad = good;
    bad.reduction = (hvd_reduction)77;
    CHECK(hvd_run(member->context, &bad, NULL, &status) == HVD_INVALID_ARGUMENT, "reduction");
    bad = good;
    bad.struct_size = 3;
    CHECK(hvd_run(member->context, &bad, NULL, &status) == HVD_INVALID_ARGUMENT, "struct size");
    tensor.dtype = (hvd_dtype)77;
    CHECK(hvd_run(member->context, &good, NULL, &status) == HVD_INVALID_ARGUMENT, "dtype");
    tensor = tensor_of(NULL, HVD_FLOAT32, shape, 1);
    CHECK(hvd_run(member->context, &good, NULL, &status) == HVD_INVALID_ARGUMENT, "data");
    tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    good.operation = HVD_BROADCAST;
    good.root = member->size;
    CHECK(hvd_run(member->context, &good, NULL, &status) == HVD_INVALID_ARGUMENT, "root");
    good.operation = (hvd_operation)4; /* between two that there are */
    CHECK(hvd_run(member->context, &good, NULL, &status) == HVD_INVALID_ARGUMENT, "operation 4");
    check_allreduce_works(member, "still works");
}

static void membership_by_request(struct member *member)
{
    static const hvd_operation operations[] = {HVD_ADD_PROCESS_SET, HVD_REMOVE_PROCESS_SET};
    for (int i = 0; i < 4; i++) {
        hvd_status status;
        hvd_handle *handle;
        hvd_request request = {.struct_size = sizeof request, .operation = operations[i / 2]};
        request.ranks = &(int32_t){0};
        request.rank_count = 1;
        request.root = i % 2; /* 0: the world */
        hvd_code code = hvd_submit(member->context, &request, &handle, &status);
        CHECK(code == HVD_INVALID_ARGUMENT && strstr(status.text, "hvd_process_set_"), "%s: %s",
              hvd_code_name(code), status.text);
    }
    check_allreduce_works(member, "still works");
}

/* Refused by the call, before its length is cut to what a block's size can hold. */
static void long_names(struct member *member)
{
    static const size_t lengths[] = {1000, 1023, 2000, ((size_t)1 << 32) + 10};
    const size_t piece = (size_t)64 << 20, total = ((size_t)1 << 32) + 2 * piece;
    char *names =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int file = memfd_create("names", MFD_CLOEXEC);
    CHECK(names != MAP_FAILED && file >= 0 && !ftruncate(file, (off_t)piece), "no address space");
    for (size_t at = 0; at + piece < total; at += piece) /* the same pages again and again */
        CHECK(mmap(names + at, piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED,
              "mmap");
    close(file);
    memset(names, 'x', piece);
    for (int i = 0; i < 4; i++) {
        hvd_status status;
        float value = 1;
        hvd_handle *handle;
        char *name = i < 3 ? names + piece - lengths[i] : names + total - piece - lengths[i];
        name[lengths[i]] = '\0';
        hvd_code code = submit_float(member, name, &value, &handle, &status);
        name[lengths[i]] = 'x';
        CHECK(code == (i ? HVD_INVALID_ARGUMENT : HVD_OK), "%zu: %s", lengths[i], hvd_code_name(code));
        CHECK(!code || strstr(status.text, "is longer than 1013 bytes"), "%s", status.text);
        if (!code)
            finish(handle);
    }
    munmap(names, total);
    check_allreduce_works(member, "still works");
}

/* The last rank leaves; operations of the others, in flight and later, end with an error that names it. */
static void leave_early(struct member *member)
{
    hvd_status status;
    char who[32];
    check_allreduce_works(member, "all here");
    if (member->rank == member->size - 1)
        return;
    hvd_code code = reduce_floats(member, "never", 1, &status);
    CHECK(code == HVD_SHUT_DOWN, "%s: %s", hvd_code_name(code), status.text);
    snprintf(who, sizeof who, "rank %d", member->size - 1);
    CHECK(strstr(status.text, who), "%s", status.text);
    CHECK(reduce_floats(member, "later", 1, &status) == HVD_SHUT_DOWN, "%s", status.text);
}

static void fork_and_go_on(struct member *member)
{
    hvd_status status;
    check_allreduce_works(member, "before the fork");
    pid_t child = fork();
    CHECK(child >= 0, "fork");
    if (child == 0) {
        float value = 1;
        int64_t shape[] = {1};
        hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "child", &tensor);
        hvd_code code = hvd_run(member->context, &request, NULL, &status);
        hvd_shutdown(member->context);
        _exit(code == HVD_FORKED ? 0 : 1);
    }
    check_allreduce_works(member, "during the fork");
    int result;
    CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0,
          "the child got another answer than HVD_FORKED");
    check_allreduce_works(member, "after the fork");
}

GROUP_TEST(test_any_order, any_order, 1, 5, EVERY_TRANSPORT)
GROUP_TEST(test_any_order_of_small_batches, any_order, 4, 4, .transport = "shm",
           SETTINGS("cache_capacity", "4", "fusion_threshold", "100"))
GROUP_TEST(test_any_order_collected, any_order, 3, 3, .transport = "tcp", SETTINGS("cycle_time_ms", "0.5"))
GROUP_TEST(test_waited_for_one, waited_for_one, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_callbacks, callbacks, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_callbacks_set_later, callbacks_set_later, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_mismatch, mismatch, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_duplicate_name, duplicate_name, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_equal_names, equal_names, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_chained_callbacks, chained_callbacks, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_membership_by_request, membership_by_request, 2, 2, EVERY_TRANSPORT)
GROUP_TEST(test_long_names, long_names, 1, 1, EVERY_TRANSPORT)
GROUP_TEST(test_bad_arguments, bad_arguments, 1, 2, EVERY_TRANSPORT)
GROUP_TEST(test_leave_early, leave_early, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_fork, fork_and_go_on, 1, 2, EVERY_TRANSPORT)
