/* job.h - one job of the differential test: how it runs and its program, both out of a seed. */
#ifndef HVD_TEST_JOB_H
#define HVD_TEST_JOB_H

#include "differential/reference.h"
#include "group/group.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PHASES = 12, SETTING_WORDS = 40, JOB_STEPS = PHASES * STEPS };

/* What the command line fixes; the seed draws the rest. */
struct wishes {
    uint64_t seed;
    int job, ranks;        /* 0: drawn */
    const char *transport; /* NULL: drawn */
    bool mpi;
};

struct job {
    struct wishes wishes;
    struct layout layout;
    struct topology topology;
    const char *transport;
    const char *settings[SETTING_WORDS];
    int setting_count, phase_count, step_count;
    struct phase phases[PHASES];
    bool chosen[JOB_STEPS]; /* by number: the steps that are run */

    pthread_mutex_t lock;
    struct reference references[PHASES]; /* under the lock; made by the first rank that needs it */
    int users[PHASES];                   /* ranks of this process that have not let go of it */
    atomic_int joined_last[PHASES];      /* plus 1 */
};

void job_draw(struct job *job, const struct wishes *wishes);
void job_free(struct job *job);

/* Runs it in this process; the first difference ends the process with a text. */
void job_run(struct job *job);

/* One phase on one rank, in run.c. */
struct runner {
    struct member *member;
    struct job *job;
    uint64_t state;             /* of this rank's own choices */
    int32_t ids[PHASES * SETS]; /* of the process sets, by generation */
};
void run_phase(struct runner *runner, int number);

const struct reference *reference_take(struct job *job, int phase);
void reference_let_go(struct job *job, int phase);

/* The command line that runs the job again. */
void job_print(const struct job *job);

#endif
