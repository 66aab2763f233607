/* test_tuner.c - samples, and the whole tuner on made-up jobs. */
#include "test.h"
#include "tune/tuner.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- samples ------------------------------------------------------------------------------------------- */

TEST(test_sample)
{
    struct sample sample = {.steps = 3};
    char name[16];
    int64_t now = 1000;
    for (int step = 0, ends = 0; step < 12; step++) {
        for (int tensor = 0; tensor < 4; tensor++, now += 100) {
            snprintf(name, sizeof name, "t%d", tensor);
            sample_count(&sample, tensor < 3 ? name : step % 2 ? "odd" : "even");
            if (sample_is_over(&sample)) {
                assert_int_equal(tensor, 0);
                assert_int_equal(step % 3, 1); /* one to settle, then three each */
                if (sample.steady)
                    assert_true(fabs(sample_score(&sample, now) - 40 * 3 * 1000 / 1200.0) < 1e-9);
                sample_begin(&sample, true, now);
                sample_count(&sample, name);
                ends++;
            }
            sample.bytes += 10;
        }
        assert_int_equal(ends, (step + 2) / 3);
    }
    sample_fini(&sample);
}

/* ---- the tuner ----------------------------------------------------------------------------------------- */

static struct settings settings;

static void set(const char *key, const char *value)
{
    ASSERT_OK(settings_set(&settings, setting_by_key(key), value, key, &check_status));
}

struct job {
    double (*speed)(const struct values *values);
    double noise;
    uint64_t random;
    int slow_until; /* for this many samples others use half of the machine */
    int results[TUNER_DONE + 1];
    struct trial last;
};

static void count_result(void *owner, enum tuner_stage stage, const struct values *values, double score)
{
    struct job *job = owner;
    job->results[stage]++;
    job->last = (struct trial){.values = *values, .score = score};
}

static double chance(struct job *job)
{
    job->random = job->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(job->random >> 33) / 0x1p31 - 0.5;
}

static struct tuner tuner;

/* Runs a job to the end of its tuning; the number of samples. */
static int tune(struct job *job)
{
    int samples = 0;
    ASSERT_OK(tuner_init(&tuner, &settings, &check_status));
    tuner.report = count_result;
    tuner.owner = job;
    for (; tuner.stage != TUNER_DONE; samples++) {
        struct values before = tuner.values;
        double speed = job->speed(&before) * (samples < job->slow_until ? 0.5 : 1);
        assert_true(samples < 10000);
        bool changed = tuner_record(&tuner, speed * (1 + job->noise * chance(job)));
        assert_int_equal(changed, memcmp(&before, &tuner.values, sizeof before) != 0);
    }
    assert_false(tuner_record(&tuner, 1));
    return samples;
}

/* From a place in [0, 1] of the parameter's range. */
static double away(const struct values *values, int parameter, double place)
{
    const struct parameter *row = &parameter_table[parameter];
    return fabs(parameter_level(row, values->of[parameter]) / (row->levels - 1.0) - place);
}

/* Fast where batches are of about 4 MiB and do not wait; the rest hardly matters. */
static double job_speed(const struct values *values)
{
    double fusion = away(values, PARAMETER_fusion_threshold, 0.5);
    return 1000 * exp(-4 * fusion * fusion - away(values, PARAMETER_cycle_time_ms, 0)) *
           (1 - 0.02 * away(values, PARAMETER_ring_piece_bytes, 0.3));
}

/* What every other value makes slower. */
static double best_as_it_is(const struct values *values)
{
    settings_free(&settings);
    settings_init(&settings, NULL);
    struct values defaults = values_of(&settings);
    return memcmp(&defaults, values, sizeof defaults) == 0 ? 1000 : 999;
}

static double no_number(const struct values *values)
{
    if (best_as_it_is(values) > 999)
        return 1;
    return values->of[0] > 1e7 ? NAN : values->of[0] > 1e5 ? HUGE_VAL : 0;
}

static int setup(void **state)
{
    (void)state;
    return settings_init(&settings, NULL);
}

static int teardown(void **state)
{
    (void)state;
    settings_free(&settings);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = setup, .after_each = teardown};

TEST(test_tunes)
{
    struct job job = {.speed = job_speed, .noise = 0.05};
    int samples = tune(&job);
    assert_in_range(samples, 4 * 5 + 19 * 4 + 4 * 9, (3 + 20) * 5 + 4 * 9);
    assert_int_equal(job.results[TUNER_WARMUP], 0);
    assert_int_equal(job.results[TUNER_SEARCH], 20);
    assert_int_equal(job.results[TUNER_COMPARE], 36);
    assert_int_equal(job.results[TUNER_DONE], 1);
    assert_true(job_speed(&tuner.values) > 950);
    assert_memory_equal(&job.last.values, &tuner.values, sizeof tuner.values);
    assert_true(tuner.default_score < tuner.best.score);
}

TEST(test_a_bad_start)
{
    struct job job = {.speed = job_speed, .noise = 0.05};
    set("fusion_threshold", "1000");
    set("cycle_time_ms", "9");
    set("autotune_parameters", "fusion_threshold,cycle_time_ms,ring_piece_bytes");
    tune(&job);
    assert_true(job_speed(&tuner.values) > 950);
    assert_int_equal(tuner.values.of[PARAMETER_latency_threshold], 16384);
}

/* Scores of the same values at different times can't be compared; pairs can. */
TEST(test_a_load_that_goes)
{
    for (int until = 10; until < 120; until += 10) {
        struct job job = {.speed = job_speed, .noise = 0.02, .slow_until = until};
        tune(&job);
        assert_true(job_speed(&tuner.values) > 950);
    }
}

/* No single step is better than the defaults: it ends before its limit, however large that is. */
TEST(test_nothing_is_better)
{
    struct job job = {.speed = best_as_it_is};
    set("autotune_bayes_opt_max_samples", "100");
    tune(&job);
    assert_in_range(job.results[TUNER_SEARCH], 8, 30);
    assert_int_equal(job.results[TUNER_COMPARE], 36);
}

TEST(test_what_is_given_stays)
{
    struct job job = {.speed = job_speed};
    set("cycle_time_ms", "2.5");
    set("ring_piece_bytes", "4096");
    tune(&job);
    assert_true(tuner.values.of[PARAMETER_cycle_time_ms] == 2.5);
    assert_int_equal(tuner.values.of[PARAMETER_ring_piece_bytes], 4096);
    assert_true(away(&tuner.values, PARAMETER_fusion_threshold, 0.5) < 0.1);
    set("fusion_threshold", "0");
    set("allreduce_algorithm", "ring");
    assert_int_equal(tune(&job), 0); /* nothing is left */
    assert_int_equal(tuner.values.of[PARAMETER_fusion_threshold], 0);
}

TEST(test_never_below_the_defaults)
{
    struct values defaults = values_of(&settings);
    for (unsigned seed = 1; seed < 40; seed++) {
        struct job job = {.speed = best_as_it_is, .random = seed};
        set("autotune_bayes_opt_max_samples", "8");
        tune(&job);
        assert_memory_equal(&tuner.values, &defaults, sizeof defaults);
    }
}

/* Everything else is a little slower, and chance a lot larger than that. */
TEST(test_luck_does_not_count)
{
    int left = 0;
    struct values defaults = values_of(&settings);
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct job job = {.speed = best_as_it_is, .noise = 0.1, .random = seed};
        set("autotune_bayes_opt_max_samples", "5");
        tune(&job);
        left += memcmp(&tuner.values, &defaults, sizeof defaults) != 0;
    }
    assert_in_range(left, 0, 200 / 10);
}

TEST(test_scores_that_are_none)
{
    struct job job = {.speed = no_number};
    struct values defaults = values_of(&settings);
    tune(&job);
    assert_memory_equal(&tuner.values, &defaults, sizeof defaults);
}

TEST(test_parameters)
{
    bool chosen[PARAMETERS];
    for (int i = 0; i < PARAMETERS; i++) {
        const struct parameter *row = &parameter_table[i];
        assert_true(parameter_value(row, 0) == row->least);
        assert_true(parameter_value(row, row->levels - 1) == row->most);
        for (int level = 0; level < row->levels; level++)
            assert_int_equal(parameter_level(row, parameter_value(row, level)), level);
        assert_int_equal(parameter_level(row, row->least - 1), 0);
        assert_int_equal(parameter_level(row, row->most + 1), row->levels - 1);
        const struct setting *setting = setting_by_key(row->setting);
        assert_true(setting && setting->minimum <= row->least && setting->maximum >= row->most);
    }
    set("autotune_parameters", "cycle_time_ms,fusion");
    ASSERT_FAILS(parameters_choose(&settings, chosen, &check_status), HVD_INVALID_ARGUMENT,
                 "some of fusion_threshold, cycle_time_ms, ");
    set("autotune_parameters", "cycle_time_ms");
    ASSERT_OK(parameters_choose(&settings, chosen, &check_status));
    assert_true(chosen[PARAMETER_cycle_time_ms] && !chosen[PARAMETER_fusion_threshold]);
}
