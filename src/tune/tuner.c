/* tuner.c - see tuner.h. */
#include "tune/tuner.h"

#include "tune/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const tuner_stage_names[] = {"warmup", "search", "compare", "best"};

/* ---- points -------------------------------------------------------------------------------------------- */

static bool equal(const struct values *a, const struct values *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The defaults, where there is a choice. */
static struct values defaults_of(const struct tuner *tuner)
{
    struct values values = tuner->values;
    struct settings settings;
    if (settings_init(&settings, NULL))
        return values;
    struct values defaults = values_of(&settings);
    for (int i = 0; i < PARAMETERS; i++)
        values.of[i] = tuner->chosen[i] ? defaults.of[i] : values.of[i];
    settings_free(&settings);
    return values;
}

static struct values propose(struct tuner *tuner)
{
    struct values values = tuner->candidates[0];
    double point[GAUSSIAN_DIMENSIONS];
    int next = 0;
    search_next(&tuner->process, tuner->proposals++, point);
    for (int i = 0; i < PARAMETERS; i++) {
        if (tuner->chosen[i])
            values.of[i] = parameter_value(&parameter_table[i], point[next++]);
    }
    return values;
}

/* What counts are ratios, so the process is given logarithms. */
static void learn(struct tuner *tuner, const struct trial *trial)
{
    double point[GAUSSIAN_DIMENSIONS];
    int next = 0;
    for (int i = 0; i < PARAMETERS; i++) {
        if (tuner->chosen[i])
            point[next++] = parameter_place(&parameter_table[i], trial->values.of[i]);
    }
    gaussian_add(&tuner->process, point, log(trial->score));
}

hvd_code tuner_init(struct tuner *tuner, const struct settings *settings, hvd_status *status)
{
    int dimensions = 0;
    memset(tuner, 0, sizeof *tuner);
    hvd_code code = parameters_choose(settings, tuner->chosen, status);
    if (code)
        return code;
    tuner->values = values_of(settings);
    tuner->candidates[0] = defaults_of(tuner);
    tuner->candidate_count = 1;
    tuner->warmups_left = (int)settings->autotune_warmup_samples;
    tuner->trials_left = (int)settings->autotune_bayes_opt_max_samples;
    tuner->best.score = -HUGE_VAL;
    for (int i = 0; i < PARAMETERS; i++)
        dimensions += tuner->chosen[i];
    gaussian_init(&tuner->process, dimensions, settings->autotune_gaussian_process_noise);
    tuner->stage = !dimensions ? TUNER_DONE : tuner->warmups_left ? TUNER_WARMUP : TUNER_SEARCH;
    return HVD_OK;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *scores, int count)
{
    qsort(scores, (size_t)count, sizeof *scores, compare_doubles);
    return scores[count / 2];
}

static int compare_trials(const void *a, const void *b)
{
    return -compare_doubles(&((const struct trial *)a)->score, &((const struct trial *)b)->score);
}

static bool is_candidate(const struct tuner *tuner, const struct values *values)
{
    for (int i = 0; i < tuner->candidate_count; i++) {
        if (equal(&tuner->candidates[i], values))
            return true;
    }
    return false;
}

static void begin_comparison(struct tuner *tuner)
{
    qsort(tuner->trials, (size_t)tuner->trial_count, sizeof *tuner->trials, compare_trials);
    for (int i = 0; i < tuner->trial_count && tuner->candidate_count < TUNER_CANDIDATES; i++) {
        if (!is_candidate(tuner, &tuner->trials[i].values))
            tuner->candidates[tuner->candidate_count++] = tuner->trials[i].values;
    }
    tuner->stage = TUNER_COMPARE;
    tuner->turn = 0;
    tuner->values = tuner->candidates[0];
}

/* Beside the defaults in the same round. Who is no better wins all rounds but one in 2 % of all cases. */
static double advantage(const struct tuner *tuner, int candidate)
{
    double ratios[TUNER_ROUNDS];
    for (int i = 0; i < TUNER_ROUNDS; i++)
        ratios[i] = tuner->compared[candidate][i] / tuner->compared[0][i];
    double middle = median(ratios, TUNER_ROUNDS);
    return ratios[1] > 1 ? middle : 0;
}

static void end_comparison(struct tuner *tuner)
{
    int winner = 0;
    double best = 1;
    for (int i = 1; i < tuner->candidate_count; i++) {
        double ratio = advantage(tuner, i);
        winner = ratio > best ? i : winner;
        best = fmax(ratio, best);
    }
    tuner->values = tuner->candidates[winner];
    tuner->default_score = median(tuner->compared[0], TUNER_ROUNDS);
    tuner->best = (struct trial){tuner->values, median(tuner->compared[winner], TUNER_ROUNDS)};
    tuner->stage = TUNER_DONE;
    tuner->told(tuner->owner, TUNER_DONE, &tuner->best.values, tuner->best.score);
}

static void take_compared(struct tuner *tuner, double score)
{
    int count = tuner->candidate_count, round = tuner->turn / count;
    tuner->compared[(tuner->turn + round) % count][round] = score;
    tuner->told(tuner->owner, TUNER_COMPARE, &tuner->values, score);
    tuner->turn++;
    round = tuner->turn / count;
    if (round == TUNER_ROUNDS)
        end_comparison(tuner);
    else
        tuner->values = tuner->candidates[(tuner->turn + round) % count];
}

/* ---- searching ----------------------------------------------------------------------------------------- */

static void take_result(struct tuner *tuner, double score)
{
    struct trial trial = {tuner->values, score};
    bool first = !tuner->trial_count;
    tuner->told(tuner->owner, TUNER_SEARCH, &trial.values, score);
    learn(tuner, &trial);
    tuner->trials[tuner->trial_count++] = trial;
    if (score > tuner->best.score)
        tuner->best = trial;
    if (--tuner->trials_left <= 0)
        begin_comparison(tuner);
    else if (first && !equal(&tuner->values, &tuner->candidates[0]))
        tuner->values = tuner->candidates[0];
    else
        tuner->values = propose(tuner);
}

bool tuner_take(struct tuner *tuner, double score)
{
    struct values before = tuner->values;
    if (tuner->stage == TUNER_DONE)
        return false;
    if (!isfinite(score) || score < 0)
        score = 0; /* the clock stood still, say */
    if (tuner->stage == TUNER_COMPARE) {
        take_compared(tuner, score);
        return !equal(&before, &tuner->values);
    }
    tuner->scores[tuner->turn++] = score;
    if (tuner->turn < TUNER_SCORES)
        return false;
    tuner->turn = 0;
    double result = median(tuner->scores, TUNER_SCORES);
    if (tuner->stage == TUNER_SEARCH)
        take_result(tuner, result);
    else if (--tuner->warmups_left <= 0)
        tuner->stage = TUNER_SEARCH;
    return !equal(&before, &tuner->values);
}
