/* test_steps.c - hvd_step, hvd_optimizer_step and hvd_get_progress: each step is counted once, whoever
 * reports it, and in whichever order. */
#include "group.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static hvd_progress progress_of(struct member *member)
{
    hvd_progress progress = {.struct_size = sizeof progress};
    CHECK_OK(hvd_get_progress(member->context, &progress, &check_status));
    return progress;
}

static void report(struct member *member, int64_t step, int64_t samples)
{
    CHECK_OK(hvd_step(member->context, step, samples, &check_status));
}

/* Every letter reports a step: P is the program, others are optimizers. */
static uint64_t steps_of(struct member *member, const char *sources)
{
    uint64_t before = progress_of(member).steps;
    for (; *sources; sources++) {
        char name[] = {*sources, '\0'};
        if (*sources == 'P')
            report(member, -1, 0);
        else
            CHECK_OK(hvd_optimizer_step(member->context, name, &check_status));
    }
    return progress_of(member).steps - before;
}

static void counts_steps_of_the_program(struct member *member)
{
    hvd_progress progress = progress_of(member);
    CHECK(!progress.steps && progress.step == -1 && !progress.step_seconds, "%d steps", (int)progress.steps);
    CHECK(progress.last_step_seconds == -1 && progress.up_seconds > 0, "%g s", progress.last_step_seconds);
    for (int i = 0; i < 1 + member->rank; i++) /* ranks need not agree */
        report(member, -1, 32);
    progress = progress_of(member);
    CHECK(progress.steps == (uint64_t)member->rank + 1 && progress.step == member->rank + 1, "%d",
          (int)progress.step);
    CHECK(progress.samples == 32 * progress.steps, "%d samples", (int)progress.samples);
    report(member, 5000, 0); /* it has read a checkpoint */
    report(member, -1, 0);
    progress = progress_of(member);
    CHECK(progress.steps == (uint64_t)member->rank + 3 && progress.step == 5001, "%d", (int)progress.step);
    CHECK(progress.last_step_seconds >= 0 && progress.last_step_seconds <= progress.up_seconds, "%g s",
          progress.last_step_seconds);
    report(member, 0, 0); /* and begins again */
    CHECK(progress_of(member).step == 0, "%d", (int)progress_of(member).step);
    check_allreduce_works(member, "still");
}

static void counts_each_step_once(struct member *member)
{
    CHECK(steps_of(member, "AAAA") == 4, "one optimizer");
    CHECK(steps_of(member, "APAPAPAP") == 4, "the program after the optimizer");
    CHECK(steps_of(member, "PAPAPA") == 3, "before it, and it reports at once");
    CHECK(steps_of(member, "ABABAB") == 3, "two optimizers");
    CHECK(steps_of(member, "AAAAABAAAAAB") == 10, "five times as often");
    CHECK(steps_of(member, "ABPABP") == 2, "all of them");
    CHECK(steps_of(member, "AAA") == 3, "the others have stopped");
    CHECK(steps_of(member, "BBBB") == 3, "another one takes its place");
}

/* More than have a place; then another one takes their place. */
static void counts_with_many_optimizers(struct member *member)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO";
    for (int i = 0; i < 4; i++)
        CHECK(steps_of(member, letters) == 1, "round %d", i);
    uint64_t before = progress_of(member).steps;
    for (int i = 0; i < 40 && progress_of(member).steps == before; i++)
        steps_of(member, "Z");
    CHECK(steps_of(member, "ZZZ") == 3, "it never counts");
}

static void adds_to_the_step_that_is_counted(struct member *member)
{
    CHECK(steps_of(member, "AA") == 2, "two");
    report(member, 700, 64);
    hvd_progress progress = progress_of(member);
    CHECK(progress.steps == 2 && progress.step == 700 && progress.samples == 64, "%d steps, number %d",
          (int)progress.steps, (int)progress.step);
    CHECK(steps_of(member, "A") == 1 && progress_of(member).step == 701, "the next one");
}

static void *report_often(void *argument)
{
    struct member *member = argument;
    for (int i = 0; i < 1000; i++) {
        report(member, -1, 1);
        CHECK(progress_of(member).steps > 0, "none");
    }
    return NULL;
}

static void counts_in_several_threads(struct member *member)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, report_often, member) == 0, "no thread");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    hvd_progress progress = progress_of(member);
    CHECK(progress.steps == 4000 && progress.step == 4000 && progress.samples == 4000, "%d steps",
          (int)progress.steps);
    CHECK(progress.step_seconds > 0, "%g s a step", progress.step_seconds);
}

static void uses_the_most_frequent_name(struct member *member)
{
    for (int i = 0; i < 20; i++) {
        check_allreduce_works(member, "gradient");
        if (i % 4 == 0)
            check_allreduce_works(member, "loss");
    }
    hvd_progress progress = progress_of(member);
    CHECK(progress.steps == 20 && progress.step == 20 && !progress.samples, "%d steps", (int)progress.steps);
    CHECK(progress.step_seconds > 0 && progress.step_seconds < progress.up_seconds, "%g s a step",
          progress.step_seconds);
    report(member, -1, 0); /* whoever reports knows better */
    CHECK(progress_of(member).steps == 1, "%d steps", (int)progress_of(member).steps);
}

static double seconds_for(struct member *member, int rank)
{
    hvd_lateness rows[8];
    int32_t count = hvd_get_lateness(member->context, rows, 8);
    CHECK(count <= member->size, "%d rows", (int)count);
    for (int32_t i = 0; i < count; i++) {
        CHECK(rows[i].seconds >= 0 && rows[i].rank >= 0 && rows[i].rank < member->size, "%g s for rank %d",
              rows[i].seconds, (int)rows[i].rank);
        if (rows[i].rank == rank)
            return rows[i].seconds;
    }
    return 0;
}

/* The last rank waits until rank 0 knows that all others wait for it. */
static void knows_whom_it_waits_for(struct member *member)
{
    static atomic_bool known;
    float value = 1;
    int late = member->size - 1;
    int64_t deadline = clock_now() + 100 * CLOCK_SECOND;
    if (member->rank == 0)
        atomic_store(&known, false);
    check_allreduce_works(member, "all");
    hvd_handle *handle = member->rank != late ? submit_sum(member, "late", &value, 1, 0) : NULL;
    while (member->rank == 0 && seconds_for(member, late) < 0.02)
        CHECK(clock_now() < deadline && hvd_wait(handle, 0.001, NULL) == HVD_IN_PROGRESS, "it is not late");
    if (member->rank == 0)
        atomic_store(&known, true);
    while (!atomic_load(&known))
        CHECK(clock_now() < deadline && !usleep(1000), "rank 0 does not know it");
    finish(handle ? handle : submit_sum(member, "late", &value, 1, 0));
    if (member->rank == 0)
        CHECK(seconds_for(member, late) >= 0.02, "%g s", seconds_for(member, late));
}

static void refuses_what_is_no_step(struct member *member)
{
    hvd_status status;
    hvd_progress old = {.struct_size = 8};
    CHECK(hvd_step(member->context, -2, 0, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_step(member->context, INT64_MAX / 2 + 1, 0, &status) == HVD_INVALID_ARGUMENT, "%s",
          status.text);
    CHECK(hvd_step(member->context, 0, -1, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_step(NULL, 0, 0, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_optimizer_step(member->context, NULL, NULL) == HVD_INVALID_ARGUMENT, "a name");
    CHECK(hvd_get_progress(member->context, &old, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(progress_of(member).steps == 0, "something was counted");
    report(member, INT64_MAX / 2, INT64_MAX);
    report(member, -1, INT64_MAX);
    CHECK(progress_of(member).step == INT64_MAX / 2 + 1, "it does not count on");
}

static void refuses_in_a_forked_child(struct member *member)
{
    pid_t child = fork();
    if (child == 0) {
        hvd_progress progress = {.struct_size = sizeof progress};
        bool refused = hvd_step(member->context, -1, 0, NULL) == HVD_FORKED &&
                       hvd_optimizer_step(member->context, "A", NULL) == HVD_FORKED &&
                       hvd_get_progress(member->context, &progress, NULL) == HVD_FORKED;
        _exit(refused ? 0 : 1);
    }
    int result;
    CHECK(child > 0 && waitpid(child, &result, 0) == child, "no child");
    CHECK(WIFEXITED(result) && WEXITSTATUS(result) == 0, "the child got another answer than HVD_FORKED");
}

GROUP_TEST(test_counts_steps_of_the_program, counts_steps_of_the_program, 1, 3, .transport = "auto")
GROUP_TEST(test_counts_each_step_once, counts_each_step_once, 1, 2, .transport = "auto")
GROUP_TEST(test_counts_with_many_optimizers, counts_with_many_optimizers, 1, 1, .transport = "auto")
GROUP_TEST(test_adds_to_the_step_that_is_counted, adds_to_the_step_that_is_counted, 1, 2, .transport = "auto")
GROUP_TEST(test_counts_in_several_threads, counts_in_several_threads, 1, 2, .transport = "auto")
GROUP_TEST(test_uses_the_most_frequent_name, uses_the_most_frequent_name, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_knows_whom_it_waits_for, knows_whom_it_waits_for, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_refuses_what_is_no_step, refuses_what_is_no_step, 1, 1, .transport = "auto")
GROUP_TEST(test_refuses_in_a_forked_child, refuses_in_a_forked_child, 1, 1, .transport = "auto")
