/* test_nonfinite.c - a NaN is noticed by the rank on which it began, and by no other; results stay what they
 * are.
 */
#define member coordinator_member /* group.h has another struct of this name */
#include "engine/context.h"
#undef member
#include "group.h"

#include "base/clock.h"
#include "watch/page_read.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 32, WRONG_STEP = 3, NAMES = 3, ELEMENTS = 10, LARGE = (16 << 10) / 4 + 1 };
enum { LASTING = 25 }; /* steps, if they may have been left out */

static int wrong_rank(const struct member *member)
{
    return member->size - 1;
}

/* Returns the number of tensors that were not finite. */
static uint64_t nonfinite_of(struct member *member)
{
    hvd_counters rows[32];
    int32_t count = hvd_get_counters(member->context, rows, 32);
    uint64_t sum = 0;
    for (int32_t i = 0; i < count; i++)
        sum += rows[i].nonfinite;
    return sum;
}

/* Checks what this rank's page says; text "": no NaN began here. */
static void check_page(const struct member *member, const char *text, int64_t step)
{
    struct page_summary page;
    CHECK_OK(page_summarize(member->context->page.page, clock_now(), &page, &check_status));
    CHECK(strcmp(page.nan, text) == 0, "rank %d: \"%s\", not \"%s\"", member->rank, page.nan, text);
    CHECK(page.nan_step == step, "rank %d: step %lld", member->rank, (long long)page.nan_step);
    page_summary_free(&page);
}

/* One step of training: the results of a step are the input of the next one. */
static void reduce_all(struct member *member, hvd_operation operation, float data[NAMES][ELEMENTS])
{
    int64_t shape[] = {ELEMENTS};
    for (int i = 0; i < NAMES; i++) {
        char name[24];
        float result[ELEMENTS];
        hvd_tensor tensor = tensor_of(data[i], HVD_FLOAT32, shape, 1), output = {0};
        snprintf(name, sizeof name, "layer.%d", i);
        hvd_request request = request_of(operation, name, &tensor);
        CHECK_OK(hvd_run(member->context, &request, &output, &check_status));
        if (operation == HVD_ALLREDUCE)
            continue;
        size_t rows = (size_t)output.shape[0];
        memcpy(result, output.data, rows * sizeof *result);
        for (size_t e = 0; e < ELEMENTS; e++)
            data[i][e] = rows ? result[e % rows] : data[i][e];
        hvd_free(output.data);
    }
}

/* An optimizer was made that leaves out no step, or reports none that it leaves out. */
static void expect_steps(struct member *member)
{
    CHECK_OK(hvd_expect_steps(member->context, &check_status));
}

static void end_step(struct member *member)
{
    CHECK_OK(hvd_step(member->context, -1, 0, &check_status));
}

/* After the first step with the NaN, `lasting` of them are needed until it is an alarm. */
static void train(struct member *member, int lasting, bool reports)
{
    float data[NAMES][ELEMENTS];
    bool wrong = member->rank == wrong_rank(member);
    for (int i = 0; i < NAMES; i++)
        for (int e = 0; e < ELEMENTS; e++)
            data[i][e] = 1;
    for (int step = 1; step <= STEPS; step++) {
        if (step == WRONG_STEP && wrong)
            data[1][0] = NAN;
        if (step == WRONG_STEP + 1) /* the forward and backward passes spread it to all layers */
            data[0][0] = data[2][0] = data[1][0];
        reduce_all(member, HVD_ALLREDUCE, data);
        bool warned = wrong && step > WRONG_STEP + lasting;
        check_page(member, warned ? "allreduce.layer.1" : "", warned ? WRONG_STEP : 0);
        if (reports)
            end_step(member);
    }
    CHECK(isnan(data[1][0]), "%g", data[1][0]);
}

static void nan_of_one_rank(struct member *member)
{
    train(member, LASTING, false);
    uint64_t after = (STEPS - WRONG_STEP) * NAMES;
    bool wrong = member->rank == wrong_rank(member);
    CHECK(nonfinite_of(member) == after + wrong, "%d", (int)nonfinite_of(member));
}

GROUP_TEST(test_nan_of_one_rank, nan_of_one_rank, 1, 5, EVERY_TRANSPORT)

static void nan_of_steps(struct member *member)
{
    train(member, LASTING, true);
}

GROUP_TEST(test_nan_of_steps_that_may_be_left_out, nan_of_steps, 1, 3, EVERY_TRANSPORT)

static void nan_of_updates(struct member *member)
{
    expect_steps(member);
    train(member, 1, true);
}

GROUP_TEST(test_nan_of_updates, nan_of_updates, 1, 3, EVERY_TRANSPORT)

#ifndef HVD_ON_DEVICE
static const char *const hosts[] = {"a", "b", "a", "c", "b"};

/* The data travel in messages. */
GROUP_TEST(test_nan_between_hosts, nan_of_one_rank, 5, 5, .transport = "auto", .hosts = hosts)
#endif

/* Rank 0 gets the first row, which has the NaN. */
static void nan_in_rows(struct member *member)
{
    float data[NAMES][ELEMENTS] = {{0}};
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int step = 1; step <= 4; step++) {
        if (step == 2)
            data[1][0] = wrong ? NAN : 0;
        reduce_all(member, HVD_REDUCESCATTER, data);
        if (step == 2) {
            CHECK((member->rank == 0) == isnan(data[1][0]), "%g", data[1][0]);
            CHECK(nonfinite_of(member) == wrong, "%d", (int)nonfinite_of(member));
            data[0][0] = data[1][0] = data[2][0] = NAN; /* what rank 0 has got spreads */
        }
        end_step(member);
    }
    check_page(member, wrong ? "reducescatter.layer.1" : "", wrong ? 2 : 0);
}

GROUP_TEST(test_nan_in_rows, nan_in_rows, 1, 5, EVERY_TRANSPORT)

/* `other`: in the other tensors of the group. */
static void reduce_group(struct member *member, double value, float other)
{
    static const int64_t shape[] = {3};
    float first[3] = {1, other, 1};
    double second[3] = {1, member->rank == wrong_rank(member) ? value : 1, 1};
    float third[3] = {1, other, 1};
    hvd_tensor tensors[] = {tensor_of(first, HVD_FLOAT32, shape, 1), tensor_of(second, HVD_FLOAT64, shape, 1),
                            tensor_of(third, HVD_FLOAT32, shape, 1)};
    hvd_request request = request_of(HVD_ALLREDUCE, "group", tensors);
    request.count = 3;
    request.grouped = 1;
    request.reduction = HVD_MAX;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(isfinite(value) || !isfinite(second[1]), "%g", second[1]);
    CHECK(isfinite(first[0]) && isfinite(third[2]), "%g, %g", first[0], third[2]);
    end_step(member);
}

static void nan_in_a_group(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    reduce_group(member, 1, 1);
    reduce_group(member, NAN, 1);
    CHECK(nonfinite_of(member) == wrong, "%d", (int)nonfinite_of(member));
    for (int i = 0; i < 2; i++) {
        check_page(member, "", 0);
        reduce_group(member, NAN, NAN);
    }
    check_page(member, wrong ? "tensor 1 of grouped_allreduce.group" : "", wrong ? 2 : 0);
}

GROUP_TEST(test_nan_in_a_group, nan_in_a_group, 1, 3, EVERY_TRANSPORT)

/* ---- infinity ------------------------------------------------------------------------------------------ */

static void reduce_one(struct member *member, const char *name, float value)
{
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, NULL, 0);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}

/* A loss scale that is too large: infinity in the last layer, NaN in those before it, and then a finite step.
 */
static void search_a_scale(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    for (int step = 0; step < 12; step++) {
        bool overflows = wrong && step % 4 != 3;
        reduce_one(member, "last", overflows ? INFINITY : 1);
        reduce_one(member, "first", overflows ? NAN : 1);
    }
    check_page(member, "", 0);
    CHECK(nonfinite_of(member) == (wrong ? 18 : 0), "%d", (int)nonfinite_of(member));
    for (int step = 13; step <= 14 + LASTING; step++) { /* no search lasts that long */
        check_page(member, "", 0);
        reduce_one(member, "first", wrong ? NAN : 1);
    }
    check_page(member, wrong ? "allreduce.first" : "", wrong ? 13 : 0);
}

GROUP_TEST(test_infinity_is_counted, search_a_scale, 1, 3, EVERY_TRANSPORT)

/* Nobody lowers a scale. */
static void explode(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    for (int step = 1; step <= 40; step++) {
        reduce_one(member, "loss", step < 5 ? 1 : step > 5 ? NAN : wrong ? INFINITY : 1);
        bool warned = wrong && step > 5 + LASTING;
        check_page(member, warned ? "allreduce.loss" : "", warned ? 5 : 0);
    }
}

GROUP_TEST(test_infinity_that_lasts, explode, 1, 3, EVERY_TRANSPORT)

/* A value that comes rarely is NaN on rank 0; nothing is computed from it. It excuses no other NaN two steps
 * later. */
static void reduce_rarely(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    reduce_one(member, "rare", member->rank ? 1 : NAN);
    for (int step = 0; step < 5; step++) {
        check_page(member, "", 0);
        reduce_one(member, "often", wrong && step >= 2 ? NAN : 1);
        CHECK_OK(hvd_step(member->context, 100 + step, 0, &check_status));
    }
    check_page(member, wrong ? "allreduce.often" : "", wrong ? 102 : 0);
}

GROUP_TEST(test_steps_end_what_began, reduce_rarely, 2, 3, EVERY_TRANSPORT)

/* A program's own numbers rise by more than 1, or begin again with each epoch. */
static void number_steps(struct member *member, const int64_t *numbers)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int step = 0; step < 6; step++) {
        reduce_one(member, "bias", step > 2 || (step == 2 && wrong) ? NAN : 1);
        CHECK_OK(hvd_step(member->context, numbers[step], 0, &check_status));
    }
    check_page(member, wrong ? "allreduce.bias" : "", wrong ? numbers[1] + 1 : 0);
}

static void rise_fast(struct member *member)
{
    number_steps(member, (const int64_t[]){10000, 10010, 10020, 10030, 10040, 10050});
}

static void begin_again(struct member *member)
{
    number_steps(member, (const int64_t[]){100, 101, 0, 1, 2, 3});
}

GROUP_TEST(test_numbers_that_rise_fast, rise_fast, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_numbers_that_begin_again, begin_again, 1, 3, EVERY_TRANSPORT)

/* A NaN of rank 0 in a request without a name. It is no excuse for another one after many finite results, but
 * one finite result may be of the same step. */
static void use_no_names(struct member *member, int finite)
{
    bool wrong = member->rank == wrong_rank(member), excused = finite < 25;
    char name[32];
    reduce_one(member, NULL, member->rank ? 1 : NAN);
    for (int i = 0; i < finite; i++)
        reduce_one(member, NULL, 1);
    for (int i = 0; i <= LASTING + 1; i++) {
        check_page(member, "", 0);
        reduce_one(member, NULL, wrong ? NAN : 1);
    }
    snprintf(name, sizeof name, "allreduce.noname.%d", finite + 1);
    check_page(member, wrong && !excused ? name : "", 0);
}

static void many_are_finite(struct member *member)
{
    use_no_names(member, 25);
}

static void few_are_finite(struct member *member)
{
    use_no_names(member, 24);
}

GROUP_TEST(test_many_finite_results_without_names, many_are_finite, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_few_finite_results_without_names, few_are_finite, 2, 3, EVERY_TRANSPORT)

/* An optimizer that leaves out steps with overflows, of which a NaN may be the first sign. */
static void leave_out_steps(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int pass = 0; pass < 12; pass++) {
        reduce_one(member, "bias", wrong && pass % 4 != 3 ? NAN : 1);
        if (pass % 4 == 3)
            end_step(member);
    }
    check_page(member, "", 0);
    for (int step = 0; step < 3; step++) { /* it uses the next one */
        reduce_one(member, "bias", wrong || step ? NAN : 1);
        end_step(member);
    }
    check_page(member, wrong ? "allreduce.bias" : "", wrong ? 4 : 0);
}

GROUP_TEST(test_steps_that_are_left_out, leave_out_steps, 1, 3, EVERY_TRANSPORT)

/* As compiled programs do, whose engine cannot know whether a step is left out. */
static void leave_out_reported_steps(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    for (int step = 1; step <= 100; step++) {
        bool overflows = wrong && (step < LASTING || step % 10 == 0);
        reduce_one(member, "last", overflows ? INFINITY : 1);
        reduce_one(member, "first", overflows ? NAN : 1);
        end_step(member);
    }
    check_page(member, "", 0);
}

GROUP_TEST(test_reported_steps_that_are_left_out, leave_out_reported_steps, 1, 3, EVERY_TRANSPORT)

/* Nothing is computed from metrics, of which one is NaN in every step, others after every third one. */
static void reduce_metrics(struct member *member)
{
    float gradients[NAMES][ELEMENTS] = {{0}};
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int step = 1; step <= 60; step++) {
        reduce_one(member, "precision", wrong ? NAN : 1);
        reduce_all(member, HVD_ALLREDUCE, gradients);
        end_step(member);
        if (step % 3 == 0) {
            reduce_one(member, "recall", NAN);
        }
    }
    check_page(member, "", 0);
}

GROUP_TEST(test_metrics_that_are_nan, reduce_metrics, 1, 3, EVERY_TRANSPORT)

/* A request belongs to the step in which the engine takes it. */
static bool has_in_flight(const struct member *member)
{
    struct page_summary page;
    struct page_copies *copies = page_copies_create();
    CHECK(copies, "out of memory");
    CHECK_OK(page_read(member->context->page.fd, copies, clock_now(), &page, &check_status));
    bool has = page.request_count > 0;
    page_summary_free(&page);
    page_copies_free(copies);
    return has;
}

/* On a slow network a step may have been reported before its gradients are reduced. */
static void report_early(struct member *member)
{
    static atomic_int reported; /* the last step of the wrong rank */
    bool wrong = member->rank == wrong_rank(member);
    int64_t deadline = clock_now() + 100 * CLOCK_SECOND;
    if (wrong)
        atomic_store(&reported, 0);
    check_allreduce_works(member, "start");
    expect_steps(member);
    for (int step = 1; step <= 5; step++) {
        float value = step > 3 || (step == 3 && wrong) ? NAN : 1;
        while (!wrong && atomic_load(&reported) < step)
            CHECK(clock_now() < deadline && !usleep(1000), "it does not report step %d", step);
        hvd_handle *handle = submit_sum(member, "bias", &value, 1, 0);
        while (wrong && !has_in_flight(member)) {
            CHECK(hvd_wait(handle, 0.001, NULL) == HVD_IN_PROGRESS, "it does not wait for the others");
            CHECK(clock_now() < deadline, "the engine does not take the request of step %d", step);
        }
        end_step(member);
        if (wrong)
            atomic_store(&reported, step);
        finish(handle);
    }
    check_page(member, wrong ? "allreduce.bias" : "", wrong ? 3 : 0);
}

GROUP_TEST(test_steps_that_are_reported_early, report_early, 2, 3, EVERY_TRANSPORT)

#ifndef HVD_ON_DEVICE /* there gathered rows are not searched */
/* Sparse gradients are gathered. What is computed from them is NaN on every rank in the next step. */
static void nan_in_gathered_rows(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int step = 1; step <= 4; step++) {
        float rows[2] = {1, step > 2 || (step == 2 && wrong) ? NAN : 1};
        int64_t shape[] = {2};
        hvd_tensor tensor = tensor_of(rows, HVD_FLOAT32, shape, 1), output = {0};
        hvd_request request = request_of(HVD_ALLGATHER, "rows", &tensor);
        CHECK_OK(hvd_run(member->context, &request, &output, &check_status));
        hvd_free(output.data);
        reduce_one(member, "bias", step > 2 ? NAN : 1);
        end_step(member);
    }
    check_page(member, wrong ? "allgather.rows" : "", wrong ? 2 : 0);
}

GROUP_TEST(test_nan_in_gathered_rows, nan_in_gathered_rows, 1, 4, EVERY_TRANSPORT)
#endif

/* ---- at the end -----------------------------------------------------------------------------------------
 */

/* A job that has no time for the usual alarm. */
struct short_job {
    const char *name;
    bool expects, reports;  /* steps */
    int first, last, steps; /* the steps in which one value, then all are NaN; of how many */
    bool only_one;          /* it stays one value: nothing is computed from it */
    bool unnamed;
    bool ends_within_step; /* the last is not reported */
    bool evaluates;        /* reduces finite numbers after the last step */
    int wrong_ranks;       /* which ran in this process */
    bool warns;
};

static void run_short_job(struct member *member)
{
    static const char *const names[NAMES] = {"layer.0", "layer.1", "layer.2"};
    struct short_job *job = member->argument;
    bool wrong = member->rank == wrong_rank(member);
    if (wrong)
        job->wrong_ranks = 1;
    if (job->expects)
        expect_steps(member);
    for (int step = 1; step <= job->steps; step++) {
        for (int i = 0; i < NAMES; i++) {
            bool spread = step > job->first && step <= job->last && !job->only_one;
            bool one = i == 1 && wrong && step >= job->first && step <= job->last;
            reduce_one(member, job->unnamed ? NULL : names[i], one || spread ? NAN : 1);
        }
        if (job->reports && !(job->ends_within_step && step == job->steps))
            end_step(member);
    }
    for (int i = 0; i < 2 && job->evaluates; i++)
        reduce_one(member, i ? "accuracy" : "loss", 1);
}

static int lines_with(FILE *file, const char *words)
{
    char line[512];
    int count = 0;
    rewind(file);
    while (fgets(line, sizeof line, file))
        count += strstr(line, words) != NULL;
    return count;
}

/* Returns how many lines about a NaN the ranks of this process have written. */
static int count_warnings(struct short_job *job)
{
    FILE *file = tmpfile();
    int standard = dup(STDERR_FILENO);
    CHECK(file && standard >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0, "no file");
    group_run(&(struct group_options){.transport = "shm"}, 3, run_short_job, job);
    CHECK(dup2(standard, STDERR_FILENO) >= 0, "no stderr");
    close(standard);
    int all = lines_with(file, "NaN in this rank's input of allreduce.layer.1 at step 2");
    int at_end = lines_with(file, "every rank got it, and most inputs were not finite until the end");
    CHECK(all == at_end && all == lines_with(file, "NaN in"), "%s: %d, %d at the end", job->name, all,
          at_end);
    fclose(file);
    return all;
}

TEST(test_jobs_that_end_early)
{
    struct short_job jobs[] = {
        {"updates", true, true, 2, 3, 3, .warns = true},
        {"reported steps", false, true, 2, 4, 4, .warns = true},
        {"uses of names", false, false, 2, 4, 4, .warns = true},
        {"a whole step, and one that is not", false, true, 2, 4, 4, .ends_within_step = true, .warns = true},
        {"no whole step since", true, true, 2, 2, 2, .warns = false},
        {"no use since", false, false, 2, 2, 2, .warns = false},
        {"one step that is not whole", true, true, 2, 3, 3, .ends_within_step = true},
        {"recovered", false, true, 2, 4, 5, .warns = false},
        {"recovered uses", false, false, 2, 4, 5, .warns = false},
        {"finite after the last step", false, true, 2, 4, 4, .evaluates = true},
        {"a metric", true, true, 2, 6, 6, .only_one = true},
        {"a metric without steps", false, false, 2, 6, 6, .only_one = true},
        {"no names", false, false, 2, 6, 6, .unnamed = true},
        {"healthy", true, true, 9, 9, 6, .warns = false},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        int count = count_warnings(&jobs[i]);
        CHECK(count == (jobs[i].warns ? jobs[i].wrong_ranks : 0), "%s: %d lines", jobs[i].name, count);
    }
}

/* ---- suspects ------------------------------------------------------------------------------------------ */

/* Gradients are NaN on rank 0 in a step, and on all ranks in later ones. */
static void reduce_gradients(struct member *member, int step, int wrong_step)
{
    for (int g = 0; g < 5; g++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", g);
        bool wrong = step > wrong_step || (step == wrong_step && member->rank == 0);
        reduce_one(member, name, wrong ? NAN : 1);
    }
}

/* A metric that is NaN in each step on another rank, or on all of them, is no excuse and gets no blame. */
static void hide_behind_a_metric(struct member *member)
{
    expect_steps(member);
    for (int step = 1; step <= 15; step++) {
        reduce_one(member, "precision", member->rank == wrong_rank(member) ? NAN : 1);
        reduce_gradients(member, step, 10);
        reduce_one(member, "recall", NAN);
        end_step(member);
    }
    check_page(member, member->rank ? "" : "allreduce.g0", member->rank ? 0 : 10);
}

GROUP_TEST(test_metrics_hide_nothing, hide_behind_a_metric, 3, 3, EVERY_TRANSPORT)

/* The same if no steps are reported. */
static void hide_without_steps(struct member *member)
{
    for (int step = 1; step <= 12 + LASTING; step++) {
        reduce_one(member, "precision", member->rank == wrong_rank(member) ? NAN : 1);
        reduce_gradients(member, step, 10);
    }
    check_page(member, member->rank ? "" : "allreduce.g0", member->rank ? 0 : 10);
}

GROUP_TEST(test_metrics_hide_nothing_without_steps, hide_without_steps, 3, 3, EVERY_TRANSPORT)

/* A metric that is finite now and then is no alarm either, and a gradient that was once left out still is. */
static void recover(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int step = 1; step <= 30; step++) {
        reduce_one(member, "precision", wrong && step % 5 ? NAN : 1);
        if (step == 8)
            reduce_one(member, "g0", wrong ? INFINITY : 1); /* an attempt that is left out */
        for (int g = 0; g < 3; g++)
            reduce_one(member, (const char *[]){"g0", "g1", "g2"}[g],
                       step > 20 || (step == 20 && wrong) ? NAN : 1);
        end_step(member);
    }
    check_page(member, wrong ? "allreduce.g0" : "", wrong ? 20 : 0);
}

GROUP_TEST(test_names_that_recover, recover, 2, 3, EVERY_TRANSPORT)

/* A name that is never used again switches nothing off. */
static void use_a_name_once(struct member *member)
{
    reduce_one(member, "once", member->rank == wrong_rank(member) ? NAN : 1);
    for (int i = 0; i < LASTING; i++)
        reduce_one(member, "often", 1);
    for (int i = 0; i <= LASTING + 1; i++)
        reduce_one(member, "often", i || member->rank == 0 ? NAN : 1);
    check_page(member, member->rank ? "" : "allreduce.often", member->rank ? 0 : LASTING + 1);
}

GROUP_TEST(test_a_name_that_is_used_once, use_a_name_once, 3, 3, EVERY_TRANSPORT)

/* Without names a finite result does not show that a step was left out. */
static void leave_out_without_names(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int attempt = 0; attempt < 60; attempt++) {
        reduce_one(member, NULL, wrong && attempt % 3 != 2 ? INFINITY : 1);
        if (attempt % 3 == 2)
            end_step(member);
    }
    check_page(member, "", 0);
}

GROUP_TEST(test_steps_that_are_left_out_without_names, leave_out_without_names, 1, 3, EVERY_TRANSPORT)

/* A program that has an optimizer, but reduces by itself and reports no step. */
static void report_no_step(struct member *member)
{
    bool wrong = member->rank == wrong_rank(member);
    expect_steps(member);
    for (int use = 1; use <= 12 + LASTING; use++)
        reduce_one(member, "g", use > 10 || (use == 10 && wrong) ? NAN : 1);
    check_page(member, wrong ? "allreduce.g" : "", wrong ? 10 : 0);
}

GROUP_TEST(test_steps_that_are_never_reported, report_no_step, 1, 3, EVERY_TRANSPORT)

#ifndef HVD_ON_DEVICE /* there values that are only moved are not searched */
/* In step 3 every rank gets a NaN that rank 0 has sent. */
static void spread_by_moving(struct member *member, const char *where, hvd_operation operation)
{
    expect_steps(member);
    for (int step = 1; step <= 5 + LASTING; step++) {
        float data[] = {1, 1, 1};
        int64_t shape[] = {3}, splits[] = {1, 1, 1};
        for (int i = 0; i < 3; i++)
            data[i] = (operation == HVD_BROADCAST && member->rank) || (step == 3 && !member->rank) ? NAN : 1;
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1), outputs[2] = {0};
        hvd_request request = request_of(operation, "moved", &tensor);
        request.splits = operation == HVD_ALLTOALL ? splits : NULL;
        CHECK_OK(
            hvd_run(member->context, &request, operation == HVD_ALLTOALL ? outputs : NULL, &check_status));
        hvd_free(outputs[0].data);
        hvd_free(outputs[1].data);
        bool warned = !member->rank && step >= 4 + LASTING;
        check_page(member, warned ? where : "", warned ? 3 : 0);
        for (int g = 0; g < 3; g++)
            reduce_one(member, (const char *[]){"g0", "g1", "g2"}[g], step >= 3 ? NAN : 1);
        end_step(member);
    }
}

static void spread_by_broadcast(struct member *member)
{
    spread_by_moving(member, "broadcast.moved", HVD_BROADCAST);
}

static void spread_by_alltoall(struct member *member)
{
    spread_by_moving(member, "alltoall.moved", HVD_ALLTOALL);
}

GROUP_TEST(test_nan_that_was_broadcast, spread_by_broadcast, 3, 3, EVERY_TRANSPORT)
GROUP_TEST(test_nan_that_was_sent_by_alltoall, spread_by_alltoall, 3, 3, EVERY_TRANSPORT)
#endif

/* ---- what is checked ----------------------------------------------------------------------------------- */

static void reduce_large(struct member *member)
{
    static float data[MOST_RANKS][LARGE];
    float *own = data[member->rank];
    int64_t shape[] = {LARGE};
    hvd_tensor tensor = tensor_of(own, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "large", &tensor);
    memset(own, 0, sizeof data[0]);
    own[LARGE - 1] = NAN;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(isnan(own[LARGE - 1]), "%g", own[LARGE - 1]);
}

static void large_is_not_checked(struct member *member)
{
    reduce_large(member);
    CHECK(nonfinite_of(member) == 0, "it was checked");
    check_page(member, "", 0);
}

GROUP_TEST(test_large_tensors_are_not_checked, large_is_not_checked, 2, 2, EVERY_TRANSPORT)

static void all_are_checked(struct member *member)
{
    expect_steps(member);
    for (int step = 1; step <= 3; step++) {
        check_page(member, "", 0);
        reduce_large(member);
        CHECK((int)nonfinite_of(member) == step, "it was not checked");
        end_step(member);
    }
    check_page(member, "allreduce.large", 1);
}

GROUP_TEST(test_all_tensors_are_checked, all_are_checked, 2, 2, EVERY_TRANSPORT,
           SETTINGS("check_nonfinite", "all"))

static void off_checks_nothing(struct member *member)
{
    reduce_one(member, "x", NAN);
    reduce_large(member);
    CHECK(nonfinite_of(member) == 0, "it was checked");
    check_page(member, "", 0);
}

GROUP_TEST(test_off_checks_nothing, off_checks_nothing, 2, 2, EVERY_TRANSPORT,
           SETTINGS("check_nonfinite", "off"))

/* The identity of a minimum, which a rank without data contributes, is infinity. */
static void join_early(struct member *member)
{
    if (member->rank) {
        for (int i = 0; i < 3; i++) {
            float value = 1;
            hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, NULL, 0);
            hvd_request request = request_of(HVD_ALLREDUCE, "x", &tensor);
            request.reduction = HVD_MIN;
            CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        }
    }
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(nonfinite_of(member) == 0, "rank %d counts", member->rank);
}

GROUP_TEST(test_a_rank_that_joined, join_early, 2, 3, EVERY_TRANSPORT)

TEST(test_unknown_rules_are_refused)
{
    static const char *const wrong[][2] = {
        {"check_nonfinite", "some"}, {"on_divergence", "panic"}, {"timeline_ranks", "All"}};
    for (int i = 0; i < 3; i++) {
        hvd_context *context;
        hvd_config *config = hvd_config_create();
        CHECK_OK(hvd_config_set(config, wrong[i][0], wrong[i][1], &check_status));
        ASSERT_FAILS(hvd_init(config, &context, &check_status), HVD_INVALID_ARGUMENT, wrong[i][1]);
        hvd_config_free(config);
    }
}
