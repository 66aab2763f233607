/* tuner.h - finds the values under which a job moves the most bytes per microsecond, from scores that its
 * owner measures: a coordinate search (Hooke and Jeeves, 1961) over the levels of the parameters. Pure: no
 * clock, no thread. One thread at a time.
 *
 *   warm-up   some results are thrown away
 *   search    the given values, the defaults, then one parameter at a time is changed: the new values and the
 *             best so far alternate, sample by sample, and replace them only if clearly better
 *   compare   the best of them and the defaults alternate; what does not beat the defaults is out
 *   done      the winner's values, or the defaults */
#ifndef HVD_TUNE_TUNER_H
#define HVD_TUNE_TUNER_H

#include "tune/parameter.h"

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
