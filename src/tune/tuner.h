/* tuner.h - finds the values under which a job moves the most bytes per microsecond: a coordinate search
 * (Hooke and Jeeves, 1961) over the levels of the parameters, by samples of the speed. Pure: the caller
 * passes the time. One thread at a time.
 *
 *   warm-up   some results are thrown away
 *   search    the given values, the defaults, then one parameter at a time is changed: the new values and the
 *             best so far alternate, sample by sample, and replace them only if clearly better
 *   compare   the best of them and the defaults alternate; what does not beat the defaults is out
 *   done      the winner's values, or the defaults */
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

/* The value of a level in [0, levels), and the lowest level whose value is not below `value`. */
double parameter_value(const struct parameter *parameter, int level);
int parameter_level(const struct parameter *parameter, double value);

/* HVD_INVALID_ARGUMENT when the setting autotune_parameters is not understood. chosen[i]: tune it. */
hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status);

/* ---- samples ------------------------------------------------------------------------------------------- */

/* The speed of a job: bytes per microsecond over some training steps. A step is over when a tensor comes
 * again. Zeroed memory is valid. */
struct sample {
    struct map occurrences;
    int steps; /* wanted */
    int most;  /* occurrences of one tensor */
    bool settled;
    int64_t since; /* ns */
    double bytes;
};

/* Another one begins at `now`; unless `settled`, with a step that does not count: its first batches were
 * dispatched under other values. */
void sample_begin(struct sample *sample, bool settled, int64_t now);
void sample_fini(struct sample *sample);

/* A tensor is dispatched. */
void sample_count(struct sample *sample, const char *name);

/* Whether the tensors counted last belong to the next sample: first take the score, if this one was settled,
 * then begin the next one and count them again. */
bool sample_is_over(const struct sample *sample);
double sample_score(const struct sample *sample, int64_t now);

/* ---- search -------------------------------------------------------------------------------------------- */

enum tuner_stage { TUNER_WARMUP, TUNER_SEARCH, TUNER_COMPARE, TUNER_DONE };

extern const char *const tuner_stage_names[]; /* of results in the log; that of TUNER_DONE is "best" */

#define TUNER_SCORES   5   /* of which the median is the first result */
#define TUNER_WINS     3   /* pairs of samples that the better values win */
#define TUNER_LOSSES   2   /* pairs after which a trial is given up */
#define TUNER_TRIALS   100 /* at most */
#define TUNER_ROUNDS   9   /* of the comparison */
#define TUNER_ATTEMPTS 4   /* in the comparison; the first are the defaults */

struct trial {
    struct values values;
    double score; /* a median, in bytes per microsecond */
    double gain;  /* times the first result's score, by pairs of samples taken one after the other */
};

struct tuner {
    enum tuner_stage stage;
    struct values values; /* under which the next score is to be measured; when done, the best */
    struct trial best;    /* of the search; when done, the winner of the comparison */
    double default_score; /* in the comparison */
    bool chosen[PARAMETERS];
    int warmups_left, trials_left;
    struct trial trials[TUNER_TRIALS];
    int trial_count;
    int turn; /* in a result; in the comparison */
    double scores[TUNER_SCORES], best_scores[TUNER_SCORES];
    struct values tried;      /* alternates with the best */
    int wins, axis, failures; /* an axis is a parameter and a direction; failed since the last success */
    int halvings;             /* of the steps */
    struct values attempts[TUNER_ATTEMPTS];
    int attempt_count;
    double compared[TUNER_ATTEMPTS][TUNER_ROUNDS];
    /* Called with every result, those of the warm-up left out. */
    void (*report)(void *owner, enum tuner_stage stage, const struct values *values, double score);
    void *owner;
};

/* Values to start from, limits and what is chosen come from the settings; `report` and `owner` are the
 * caller's. */
hvd_code tuner_init(struct tuner *tuner, const struct settings *settings, hvd_status *status);

/* Takes the score of `values`, in bytes per microsecond. True when `values` have changed. */
bool tuner_take(struct tuner *tuner, double score);

#endif
