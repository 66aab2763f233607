/* test_watch.c - timelines of ranks that are threads: started and stopped beside running operations. */
#include "group.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 300, TENSORS = 8 };

static char path[] = "/tmp/test_watch.XXXXXX";

struct toggler {
    hvd_context *context;
    atomic_bool stop;
    atomic_int recordings;
};

static void *toggle(void *argument)
{
    struct toggler *toggler = argument;
    while (!atomic_load(&toggler->stop)) {
        CHECK_OK(hvd_timeline_start(toggler->context, path, toggler->recordings++ % 2, &check_status));
        CHECK_OK(hvd_timeline_stop(toggler->context, &check_status));
    }
    return NULL;
}

static void run_rounds(struct member *member)
{
    hvd_handle *handles[TENSORS];
    float data[TENSORS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < TENSORS; i++) {
            char name[24];
            snprintf(name, sizeof name, "tensor%d", i);
            data[i] = 1;
            handles[i] = submit_sum(member, name, &data[i], 1, 0);
        }
        for (int i = 0; i < TENSORS; i++) {
            finish(handles[i]);
            CHECK(data[i] == (float)member->size, "got %g", data[i]);
        }
    }
}

/* Over all ranks. */
static float largest(struct member *member, float value)
{
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "largest", &tensor);
    request.reduction = HVD_MAX;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    return value;
}

/* Until at least two recordings have begun, however seldom the toggler's thread is scheduled. */
static void work_and_toggle(struct member *member)
{
    struct toggler toggler = {.context = member->context};
    pthread_t thread;
    if (member->rank == 0)
        CHECK(pthread_create(&thread, NULL, toggle, &toggler) == 0, "no thread");
    do {
        run_rounds(member);
    } while (largest(member, member->rank == 0 && atomic_load(&toggler.recordings) < 2));
    atomic_store(&toggler.stop, true);
    if (member->rank == 0)
        pthread_join(thread, NULL);
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (; (text = strstr(text, word)); text++)
        found++;
    return found;
}

/* The whole file; free it. */
static char *content(void)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t length = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, length, file), length);
    text[length] = '\0';
    fclose(file);
    assert_true(length > 4 && strcmp(text + length - 4, "}\n]\n") == 0);
    return text;
}

static void toggled_while_working(const char *transport)
{
    const char *settings[] = {"timeline", "DYNAMIC", NULL};
    group_run(&(struct group_options){.transport = transport, .settings = settings}, 3, work_and_toggle,
              NULL);
    char *text = content();
    assert_int_equal(count(text, "\"ph\":\"B\""), count(text, "\"ph\":\"E\""));
    free(text);
}

TEST(toggled_while_working_over_shm)
{
    toggled_while_working("shm");
}

TEST(toggled_while_working_over_tcp)
{
    toggled_while_working("tcp");
}

static void everything_is_recorded_until_the_end(const char *transport)
{
    const char *settings[] = {"timeline", path, NULL};
    group_run(&(struct group_options){.transport = transport, .settings = settings}, 3, run_rounds, NULL);
    char *text = content();
    assert_int_equal(count(text, "DROPPED"), 0);
    assert_int_equal(count(text, "\"name\":\"ALLREDUCE\""), ROUNDS * TENSORS);
    assert_int_equal(count(text, "\"dtype\":\"float32\""), ROUNDS * TENSORS);
    assert_int_equal(count(text, "\"ph\":\"X\""), ROUNDS * TENSORS * 3);
    free(text);
}

TEST(everything_is_recorded_until_the_end_over_shm)
{
    everything_is_recorded_until_the_end("shm");
}

TEST(everything_is_recorded_until_the_end_over_tcp)
{
    everything_is_recorded_until_the_end("tcp");
}

/* Rank 0 has joined while the others go on: their operations are reported by name all the same. */
static void work_or_join(struct member *member)
{
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    for (int round = 0; member->rank > 0 && round < 10; round++) {
        float value = 1;
        int64_t shape[] = {1};
        hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "late", &tensor);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    }
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

TEST(operations_without_rank_0)
{
    const char *settings[] = {"timeline", path, NULL};
    group_run(&(struct group_options){.transport = "shm", .settings = settings}, 3, work_or_join, NULL);
    char *text = content();
    assert_int_equal(count(text, "\"name\":\"allreduce.late\""), 1);
    assert_int_equal(count(text, "\"name\":\"NEGOTIATE_ALLREDUCE\""), 10);
    assert_int_equal(count(text, "\"name\":\"ALLREDUCE\""), 10);
    assert_int_equal(count(text, "\"ph\":\"X\""), 20 + 1);
    assert_int_equal(count(text, "\"name\":\"NEGOTIATE_JOIN\""), 1);
    free(text);
}

static void refuse(struct member *member)
{
    hvd_status status;
    CHECK(hvd_timeline_start(member->context, path, 0, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(strstr(status.text, "HOROVOD_TIMELINE=DYNAMIC"), "%s", status.text);
    CHECK(hvd_timeline_stop(member->context, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_timeline_start(NULL, path, 0, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    check_allreduce_works(member, "after");
}

TEST(refused_unless_enabled)
{
    group_run(&(struct group_options){.transport = "shm", .settings = NULL}, 2, refuse, NULL);
}

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

const struct test_hooks test_hooks = {.before_all = make_file, .after_all = remove_file};
