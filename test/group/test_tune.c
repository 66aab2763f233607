/* test_tune.c - values change while ranks, as threads, send what they like: results stay right. */
#include "values.h"

#include <unistd.h>

enum { TENSORS = 6, LONGEST = 60000, NUMBERS = 7 };

static char path[] = "/tmp/test_tune.XXXXXX";

static const char *const settings[] = {"autotune",
                                       "1",
                                       "autotune_log",
                                       path,
                                       "autotune_warmup_samples",
                                       "1",
                                       "autotune_steps_per_sample",
                                       "1",
                                       "autotune_bayes_opt_max_samples",
                                       "10",
                                       NULL};

/* One of the ranks adds these to what it and the others give. */
static void fill(float *data, int64_t length, bool numbers)
{
    for (int64_t i = 0; i < length && i < NUMBERS; i++)
        data[i] = 1 + (numbers ? (float)i : 0);
    repeat(data, NUMBERS * sizeof *data, (size_t)length * sizeof *data);
}

static void check_sum(const float *data, int64_t length, float sum, const char *name)
{
    size_t width = sizeof *data;
    int64_t checked = repeats(data, NUMBERS * width, (size_t)length * width) ? NUMBERS : length;
    for (int64_t i = 0; i < length && i < checked; i++)
        CHECK(data[i] == sum + (float)(i % NUMBERS), "%s: element %ld is %g", name, (long)i, (double)data[i]);
}

/* Some tensors of random lengths, all at once, in an order of this rank's own; the sum of `ranks` ranks. */
static void step(struct member *member, uint64_t *state, int ranks, int set)
{
    static _Thread_local float data[TENSORS][LONGEST];
    hvd_handle *handles[TENSORS];
    int64_t lengths[TENSORS];
    char names[TENSORS][24];
    for (int t = 0; t < TENSORS; t++) {
        lengths[t] = (int64_t)(random_next(state) % (random_next(state) % 3 ? 100 : LONGEST));
        snprintf(names[t], sizeof names[t], "tensor%d", t);
    }
    for (int i = 0; i < TENSORS; i++) {
        int t = (i + member->rank) % TENSORS;
        fill(data[t], lengths[t], member->rank == member->size - 1);
        handles[t] = submit_sum(member, names[t], data[t], lengths[t], set);
    }
    for (int t = 0; t < TENSORS; t++) {
        finish(handles[t]);
        check_sum(data[t], lengths[t], (float)ranks, names[t]);
    }
}

/* The lower half joins for a while; the others go on. */
static void join_for_a_while(struct member *member, uint64_t *state)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    int first = member->size / 2;
    for (int i = 0; i < 3 && member->rank >= first; i++)
        step(member, state, member->size - first, 0);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}

static void train(struct member *member)
{
    uint64_t state = test_seed(), own;
    int32_t ends[] = {0, member->size - 1}, set;
    CHECK_OK(hvd_process_set_add(member->context, ends, member->size > 1 ? 2 : 1, &set, &check_status));
    for (int i = 0; i < 400; i++) {
        step(member, &state, member->size, 0);
        own = state;
        if (i % 10 == 5 && (member->rank == 0 || member->rank == member->size - 1))
            step(member, &own, member->size > 1 ? 2 : 1, set);
        own = state;
        if (i % 20 == 10 && member->size > 1)
            join_for_a_while(member, &own);
    }
}

/* One row of ten results each; four attempts in nine rounds; the best. */
static void check_log(void)
{
    char line[256], first[256] = "", last[256] = "";
    int rows = 0, changes = 0;
    FILE *log = fopen(path, "r");
    assert_non_null(log);
    assert_non_null(fgets(line, sizeof line, log));
    assert_string_equal(line, "tensor_fusion_threshold,cycle_time_ms,latency_threshold,ring_piece_bytes,"
                              "stage,score\n");
    while (fgets(line, sizeof line, log)) {
        if (rows++ == 0)
            strcpy(first, line);
        changes += strncmp(last, line, strcspn(line, "s")) != 0;
        strcpy(last, line);
    }
    fclose(log);
    assert_true(strncmp(first, "134217728,0,16384,524288,search,", 32) == 0);
    assert_non_null(strstr(last, ",best,"));
    assert_true(rows == 10 + 4 * 9 + 1);
    assert_true(changes > 20);
}

TEST(test_values_change)
{
    static const char *const transports[] = {"shm", "tcp"};
    for (int size = 1; size <= 4; size += 3)
        for (int i = 0; i < 2; i++) {
            struct group_options options = {.transport = transports[i], .settings = settings};
            group_run(&options, size, train, NULL);
            check_log();
        }
}

/* The job ends before the tuning does. */
static void short_job(struct member *member)
{
    uint64_t state = 1;
    for (int i = 0; i < 30; i++)
        step(member, &state, member->size, 0);
}

TEST(test_a_short_job)
{
    char line[256], last[256] = "";
    group_run(&(struct group_options){.transport = "shm", .settings = settings}, 2, short_job, NULL);
    FILE *log = fopen(path, "r");
    while (fgets(line, sizeof line, log))
        strcpy(last, line);
    fclose(log);
    assert_non_null(strstr(last, ",best,"));
}

TEST(test_a_log_that_cannot_be_written)
{
    hvd_status status;
    hvd_context *context;
    hvd_config *config = hvd_config_create();
    hvd_config_set(config, "autotune", "1", &status);
    hvd_config_set(config, "autotune_log", "/nowhere/log.csv", &status);
    assert_int_not_equal(hvd_init(config, &context, &status), HVD_OK);
    assert_non_null(
        strstr(status.text, "can't open the autotune log /nowhere/log.csv (HOROVOD_AUTOTUNE_LOG)"));
    hvd_config_set(config, "autotune_parameters", "speed", &status);
    ASSERT_FAILS(hvd_init(config, &context, &check_status), HVD_INVALID_ARGUMENT,
                 "HOROVOD_AUTOTUNE_PARAMETERS=speed");
    hvd_config_free(config);
}

static int make_log(void **state)
{
    (void)state;
    return close(mkstemp(path));
}

static int remove_log(void **state)
{
    (void)state;
    return unlink(path);
}

const struct test_hooks test_hooks = {.before_all = make_log, .after_all = remove_log};
