/* tuner.c - parameters and their levels, the score of a sample, and the search. One thread at a time. */
#include "tune/tuner.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ---------------------------------------------------------------------------------------- */

const struct parameter parameter_table[PARAMETERS] = {
#define PARAMETER(setting, column, least, most, levels) {#setting, column, least, most, levels},
#include "tune/parameters.def"
#undef PARAMETER
};

struct values values_of(const struct settings *settings)
{
    struct values values;
    for (int i = 0; i < PARAMETERS; i++) {
        const struct setting *setting = setting_by_key(parameter_table[i].setting);
        const char *field = (const char *)settings + setting->offset;
        values.of[i] =
            setting->kind == SETTING_REAL ? *(const double *)field : (double)*(const int64_t *)field;
    }
    return values;
}

double parameter_value(const struct parameter *parameter, int level)
{
    return level > 0 ? ldexp(parameter->most, level + 1 - parameter->levels) : parameter->least;
}

int parameter_level(const struct parameter *parameter, double value)
{
    int level = 0;
    while (level < parameter->levels - 1 && parameter_value(parameter, level) < value)
        level++;
    return level;
}

static int parameter_named(const char *name, size_t length)
{
    for (int i = 0; i < PARAMETERS; i++) {
        if (strlen(parameter_table[i].setting) == length &&
            memcmp(parameter_table[i].setting, name, length) == 0)
            return i;
    }
    return -1;
}

hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status)
{
    const char *list = settings->autotune_parameters;
    if (strcmp(list, "auto") == 0) {
        for (int i = 0; i < PARAMETERS; i++)
            chosen[i] = !setting_is_given(settings, setting_by_key(parameter_table[i].setting));
        if (strcmp(settings->allreduce_algorithm, "auto") != 0)
            chosen[PARAMETER_latency_threshold] = false; /* there is no choice to be made */
        return HVD_OK;
    }
    memset(chosen, 0, PARAMETERS * sizeof *chosen);
    for (const char *rest = list; *rest; rest += *rest == ',') {
        size_t length = strcspn(rest, ",");
        int found = parameter_named(rest, length);
        if (found < 0) {
            char names[256] = "";
            for (int i = 0; i < PARAMETERS; i++)
                append_text(names, sizeof names, ", %s", parameter_table[i].setting);
            return status_set(
                status, HVD_INVALID_ARGUMENT,
                "HOROVOD_AUTOTUNE_PARAMETERS=%s: it is 'auto' (whatever was given no value), or some of%s",
                list, names + 1);
        }
        chosen[found] = true;
        rest += length;
    }
    return HVD_OK;
}

/* ---- samples ------------------------------------------------------------------------------------------- */

struct occurrence {
    int count;
    char name[];
};

void sample_fini(struct sample *sample)
{
    size_t cursor = 0;
    void *occurrence;
    while ((occurrence = map_next(&sample->occurrences, &cursor)))
        free(occurrence);
    map_free(&sample->occurrences);
}

void sample_begin(struct sample *sample, bool steady, int64_t now)
{
    sample_fini(sample);
    *sample = (struct sample){.steps = sample->steps, .steady = steady, .since = now};
}

/* If memory is out the tensor is not counted; other tensors are. */
void sample_count(struct sample *sample, const char *name)
{
    size_t length = strlen(name);
    struct occurrence *occurrence = map_get(&sample->occurrences, name, length);
    if (!occurrence) {
        occurrence = malloc(sizeof *occurrence + length);
        if (!occurrence)
            return;
        occurrence->count = 0;
        memcpy(occurrence->name, name, length);
        if (!map_put(&sample->occurrences, occurrence->name, length, occurrence)) {
            free(occurrence);
            return;
        }
    }
    occurrence->count++;
    sample->most = occurrence->count > sample->most ? occurrence->count : sample->most;
}

bool sample_is_over(const struct sample *sample)
{
    return sample->most > (sample->steady ? sample->steps : 1);
}

double sample_score(const struct sample *sample, int64_t now)
{
    return sample->bytes * 1000 / (double)(now - sample->since);
}

#define CLEARLY  1.02 /* a smaller ratio of scores is noise */
#define HALVINGS 3    /* after this many halvings a step is one level */

const char *const tuner_stage_names[] = {"warmup", "search", "compare", "best"};

/* ---- points -------------------------------------------------------------------------------------------- */

static bool equal(const struct values *a, const struct values *b)
{
    for (int i = 0; i < PARAMETERS; i++) {
        if (a->of[i] != b->of[i])
            return false;
    }
    return true;
}

/* Returns the defaults of the chosen parameters, and the given values of the others. */
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

hvd_code tuner_init(struct tuner *tuner, const struct settings *settings, hvd_status *status)
{
    bool any = false;
    memset(tuner, 0, sizeof *tuner);
    TRY(parameters_choose(settings, tuner->chosen, status));
    tuner->values = values_of(settings);
    tuner->attempts[0] = defaults_of(tuner);
    tuner->attempt_count = 1;
    tuner->warmups_left = (int)settings->autotune_warmup_samples;
    tuner->trials_left = (int)settings->autotune_bayes_opt_max_samples;
    for (int i = 0; i < PARAMETERS; i++)
        any |= tuner->chosen[i];
    tuner->stage = !any ? TUNER_DONE : tuner->warmups_left ? TUNER_WARMUP : TUNER_SEARCH;
    return HVD_OK;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the scores. */
static double median(double *scores, int count)
{
    qsort(scores, (size_t)count, sizeof *scores, compare_doubles);
    return scores[count / 2];
}

static int compare_trials(const void *a, const void *b)
{
    return -compare_doubles(&((const struct trial *)a)->gain, &((const struct trial *)b)->gain);
}

static void begin_comparison(struct tuner *tuner)
{
    qsort(tuner->trials, (size_t)tuner->trial_count, sizeof *tuner->trials, compare_trials);
    for (int i = 0; i < tuner->trial_count && tuner->attempt_count < TUNER_ATTEMPTS; i++) {
        int known = 0;
        while (known < tuner->attempt_count && !equal(&tuner->attempts[known], &tuner->trials[i].values))
            known++;
        if (known == tuner->attempt_count)
            tuner->attempts[tuner->attempt_count++] = tuner->trials[i].values;
    }
    tuner->stage = TUNER_COMPARE;
    tuner->turn = 0;
    tuner->values = tuner->attempts[0];
}

/* Returns the median ratio to the defaults in the same round; 0 unless it wins all rounds except one at most,
 * which equal values do in 2 % of all cases. */
static double advantage(const struct tuner *tuner, int attempt)
{
    double ratios[TUNER_ROUNDS];
    for (int i = 0; i < TUNER_ROUNDS; i++)
        ratios[i] = tuner->compared[attempt][i] / tuner->compared[0][i];
    double middle = median(ratios, TUNER_ROUNDS);
    return ratios[1] > 1 ? middle : 0;
}

static void end_comparison(struct tuner *tuner)
{
    int winner = 0;
    double best = 1;
    for (int i = 1; i < tuner->attempt_count; i++) {
        double ratio = advantage(tuner, i);
        winner = ratio > best ? i : winner;
        best = fmax(ratio, best);
    }
    tuner->values = tuner->attempts[winner];
    tuner->default_score = median(tuner->compared[0], TUNER_ROUNDS);
    tuner->best = (struct trial){tuner->values, median(tuner->compared[winner], TUNER_ROUNDS), best};
    tuner->stage = TUNER_DONE;
    tuner->report(tuner->owner, TUNER_DONE, &tuner->best.values, tuner->best.score);
}

static void record_compared(struct tuner *tuner, double score)
{
    int count = tuner->attempt_count, round = tuner->turn / count;
    tuner->compared[(tuner->turn + round) % count][round] = score;
    tuner->report(tuner->owner, TUNER_COMPARE, &tuner->values, score);
    tuner->turn++;
    round = tuner->turn / count;
    if (round == TUNER_ROUNDS)
        end_comparison(tuner);
    else
        tuner->values = tuner->attempts[(tuner->turn + round) % count];
}

/* ---- searching ----------------------------------------------------------------------------------------- */

/* A step is at first a third of the range. */
static int step_of(const struct tuner *tuner, int parameter)
{
    int step = parameter_table[parameter].levels / 3 >> tuner->halvings;
    return step > 1 ? step : 1;
}

/* Changes the best values by one step along the axis; returns false if the result is not new. */
static bool step_along(const struct tuner *tuner, struct values *values)
{
    int parameter = tuner->axis / 2;
    const struct parameter *row = &parameter_table[parameter];
    int step = tuner->axis % 2 ? step_of(tuner, parameter) : -step_of(tuner, parameter);
    int level = parameter_level(row, tuner->best.values.of[parameter]) + step;
    level = level < 0 ? 0 : level < row->levels ? level : row->levels - 1;
    *values = tuner->best.values;
    values->of[parameter] = parameter_value(row, level);
    bool is_new = tuner->chosen[parameter];
    for (int i = 0; is_new && i < tuner->trial_count; i++)
        is_new = !equal(&tuner->trials[i].values, values);
    return is_new;
}

static void next_axis(struct tuner *tuner)
{
    tuner->axis = (tuner->axis + 1) % (2 * PARAMETERS);
    if (++tuner->failures == 2 * PARAMETERS) {
        tuner->failures = 0;
        tuner->halvings++;
    }
}

/* Finds the next values to try; returns false if no single step leads to new values. */
static bool propose(struct tuner *tuner)
{
    if (tuner->trial_count == 1 && !equal(&tuner->best.values, &tuner->attempts[0])) {
        tuner->tried = tuner->attempts[0];
        return true;
    }
    for (; tuner->halvings < HALVINGS; next_axis(tuner)) {
        if (step_along(tuner, &tuner->tried))
            return true;
    }
    return false;
}

static void end_trial(struct tuner *tuner, const struct trial *trial, bool better)
{
    tuner->report(tuner->owner, TUNER_SEARCH, &trial->values, trial->score);
    if (better) {
        tuner->best = *trial;
        tuner->failures = 0;
    } else if (tuner->trial_count > 1) {
        next_axis(tuner);
    }
    tuner->trials[tuner->trial_count++] = *trial;
    tuner->turn = tuner->wins = 0;
    if (--tuner->trials_left <= 0 || tuner->trial_count == TUNER_TRIALS || !propose(tuner))
        begin_comparison(tuner);
    else
        tuner->values = tuner->tried;
}

/* The order is tried, best, best, tried, and so on: a drift affects both equally, and it needs half as many
 * changes. */
static void record_paired(struct tuner *tuner, double score)
{
    bool is_tried = (tuner->turn + 1) / 2 % 2 == 0;
    int pairs = ++tuner->turn / 2;
    (is_tried ? tuner->scores : tuner->best_scores)[(tuner->turn - 1) / 2] = score;
    tuner->values = (tuner->turn + 1) / 2 % 2 == 0 ? tuner->tried : tuner->best.values;
    if (tuner->turn % 2)
        return;
    tuner->wins += tuner->scores[pairs - 1] > CLEARLY * tuner->best_scores[pairs - 1];
    if (tuner->wins < TUNER_WINS && pairs - tuner->wins < TUNER_LOSSES)
        return;
    double score_of_tried = median(tuner->scores, pairs), score_of_best = median(tuner->best_scores, pairs);
    double gain = tuner->best.gain * (score_of_best > 0 ? score_of_tried / score_of_best : 1);
    end_trial(tuner, &(struct trial){tuner->tried, score_of_tried, gain}, tuner->wins == TUNER_WINS);
}

bool tuner_record(struct tuner *tuner, double score)
{
    struct values before = tuner->values;
    if (tuner->stage == TUNER_DONE)
        return false;
    if (!isfinite(score) || score < 0)
        score = 0; /* for example, the clock did not advance */
    if (tuner->stage == TUNER_COMPARE) {
        record_compared(tuner, score);
    } else if (tuner->trial_count) {
        record_paired(tuner, score);
    } else {
        tuner->scores[tuner->turn++] = score;
        if (tuner->turn < TUNER_SCORES)
            return false;
        tuner->turn = 0;
        if (tuner->stage == TUNER_SEARCH)
            end_trial(tuner, &(struct trial){before, median(tuner->scores, TUNER_SCORES), 1}, true);
        else if (--tuner->warmups_left <= 0)
            tuner->stage = TUNER_SEARCH;
    }
    return !equal(&before, &tuner->values);
}
