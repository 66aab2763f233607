/* test_tuned_epochs.c - values that autotuning has found go on in later epochs with the same hosts and ranks.
 */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 500 };

static char path[] = "/tmp/test_tuned_epochs.XXXXXX";

#define TUNING                                                                                               \
    "autotune", "1", "autotune_log", path, "autotune_warmup_samples", "1", "autotune_steps_per_sample", "1", \
        "autotune_bayes_opt_max_samples", "5"

static void train(struct member *member, int steps)
{
    float data[LENGTH] = {0};
    for (int i = 0; i < steps; i++)
        finish(submit_sum(member, "gradient", data, LENGTH, 0));
}

/* Returns the number of rows of the log, and the last one. */
static int read_log(char last[256])
{
    int rows = 0;
    FILE *log = fopen(path, "r");
    CHECK(log, "no log");
    while (fgets(last, 256, log))
        rows++;
    fclose(log);
    return rows;
}

static void begin(struct member *member, const char *epoch, int size)
{
    const char *const settings[] = {TUNING, "epoch", epoch, NULL};
    hvd_shutdown(member->context);
    member->settings = settings;
    member->context = join_job(member, "group", member->rank, size);
    member->settings = NULL;
}

static void live_three_epochs(struct member *member)
{
    char last[256], again[256];
    train(member, 300);
    int rows = member->rank == 0 ? read_log(last) : 0;
    CHECK(member->rank > 0 || strstr(last, ",best,"), "%s", last);
    begin(member, "1", member->size);
    train(member, 50);
    CHECK(member->rank > 0 || (read_log(again) == rows && strcmp(last, again) == 0), "%d rows, then %s", rows,
          again);
    if (member->rank == member->size - 1)
        return;
    begin(member, "2", member->size - 1);
    train(member, 50);
    CHECK(member->rank > 0 || read_log(again) > rows, "after %d rows: %s", rows, again);
}

TEST(test_values_go_on)
{
    static const char *const settings[] = {TUNING, NULL};
    group_run(&(struct group_options){.transport = "shm", .settings = settings}, 3, live_three_epochs, NULL);
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
