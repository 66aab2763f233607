/* tuner.h - finds the values under which a job moves the most bytes per microsecond: a coordinate search
 * (Hooke and Jeeves, 1961) over the levels of the parameters, by samples of the speed. Pure: the caller
 * passes the time. One thread at a time.
 *
 *   warm-up   the first results are thrown away
 *   search    tries the given values, then the defaults, then changes one parameter at a time: new values and
 *             the best so far alternate, sample by sample, and the new ones win only if clearly better
 *   compare   the best values and the defaults alternate; values that do not beat the defaults lose
 *   done      uses the winner's values, or the defaults */
#ifndef HVD_TUNE_TUNER_H
#define HVD_TUNE_TUNER_H

#include "base/map.h"
#include "base/settings.h"

/* ---- parameters: rows of parameters.def, their values as levels ---------------------------------------- */

enum {
#define PARAMETER(setting, column, least, most, levels) PARAMETER_##setting,
#include "tune/parameters.def"
#undef PARAMETER
    PARAMETERS
};

struct parameter {
    const char *setting, *column;
    double least, most;
    int levels;
};

extern const struct parameter parameter_table[PARAMETERS];

/* One value for each parameter. */
struct values {
    double of[PARAMETERS];
};

struct values values_of(const struct settings *settings);

/* These return the value of a level in [0, levels), and the lowest level whose value is not below `value`. */
double parameter_value(const struct parameter *parameter, int level);
int parameter_level(const struct parameter *parameter, double value);

/* Sets chosen[i] if parameter i must be tuned. HVD_INVALID_ARGUMENT: the setting autotune_parameters is
 * malformed. */
hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status);

/* ---- samples ------------------------------------------------------------------------------------------- */

/* The speed of a job: bytes per microsecond over some training steps. A step has ended when a tensor occurs
 * again. Zeroed memory is valid. */
struct sample {
    struct map occurrences;
    int steps;     /* how many steps to measure */
    int most;      /* occurrences of the most frequent tensor */
    bool steady;   /* it started with a step under its own values */
    int64_t since; /* ns */
    double bytes;
};

/* Starts a sample at `now`. Unless `steady`, it has only one step, which does not count: its first batches
 * were dispatched under other values. */
void sample_begin(struct sample *sample, bool steady, int64_t now);
void sample_fini(struct sample *sample);

/* Counts a tensor that is dispatched. */
void sample_count(struct sample *sample, const char *name);

/* Returns true if the tensors counted last belong to the next sample: then read the score, if this one was
 * steady, start the next one and count them again. */
bool sample_is_over(const struct sample *sample);
double sample_score(const struct sample *sample, int64_t now);

/* ---- search -------------------------------------------------------------------------------------------- */

enum tuner_stage { TUNER_WARMUP, TUNER_SEARCH, TUNER_COMPARE, TUNER_DONE };

extern const char *const tuner_stage_names[]; /* in the log; that of TUNER_DONE is "best" */

#define TUNER_SCORES   5   /* the first result is the median of this many scores */
#define TUNER_WINS     3   /* better values must win this many pairs of samples */
#define TUNER_LOSSES   2   /* a trial ends after it has lost this many pairs */
#define TUNER_TRIALS   100 /* at most */
#define TUNER_ROUNDS   9   /* of the comparison */
#define TUNER_ATTEMPTS 4   /* values in the comparison; the first ones are the defaults */

struct trial {
    struct values values;
    double score; /* a median, in bytes per microsecond */
    double gain;  /* ratio to the first result's score, from pairs of consecutive samples */
};

struct tuner {
    enum tuner_stage stage;
    struct values values; /* the next score must be measured under these; when done, the best */
    struct trial best;    /* of the search; when done, the winner of the comparison */
    double default_score; /* of the defaults in the comparison */
    bool chosen[PARAMETERS];
    int warmups_left, trials_left;
    struct trial trials[TUNER_TRIALS];
    int trial_count;
    int turn; /* number of the next sample in a trial, or in the comparison */
    double scores[TUNER_SCORES], best_scores[TUNER_SCORES];
    struct values tried; /* alternates with the best */
    int wins;            /* pairs that `tried` has won */
    int axis;            /* a parameter and a direction */
    int failures;        /* axes without a better value since the last success */
    int halvings;        /* of the steps */
    struct values attempts[TUNER_ATTEMPTS];
    int attempt_count;
    double compared[TUNER_ATTEMPTS][TUNER_ROUNDS];
    /* Called with every result except those of the warm-up. */
    void (*report)(void *owner, enum tuner_stage stage, const struct values *values, double score);
    void *owner;
};

/* Reads initial values, limits and the chosen parameters from the settings; the caller then sets `report` and
 * `owner`. */
hvd_code tuner_init(struct tuner *tuner, const struct settings *settings, hvd_status *status);

/* Records the score of `values`, in bytes per microsecond. Returns true if `values` have changed. */
bool tuner_record(struct tuner *tuner, double score);

#endif
