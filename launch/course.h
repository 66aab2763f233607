/* course.h - what a job has done so far, from looks at it: its step rate, its verdicts, how late each rank
 * was and where the time went. Pure: it asks nobody and reads no clock. One thread. */
#ifndef HVD_LAUNCH_COURSE_H
#define HVD_LAUNCH_COURSE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define COURSE_POINTS   2048 /* of the curve; when it is full, every other point goes */
#define COURSE_VERDICTS 512  /* when there are more, the one that held for the shortest time goes */
#define COURSE_GAP      30   /* seconds without a look, from which the curve and the verdicts have a gap */
#define COURSE_LEFT     1024 /* ranks that have left; when there are more, the least late goes */

/* A rank at a look. */
struct course_rank {
    int rank;
    const char *host;
    bool seen;   /* false: nothing is known of it */
    bool joined; /* it is in the job, and no longer in hvd_init */
    int64_t
        opened_at; /* when it has called hvd_init, in ns since 1970; 0: not yet. The counts are since then: */
    uint64_t horovod_ns; /* that its program slept in Horovod */
    uint64_t late_ns;    /* that the job lost to it */
    uint64_t bytes;      /* of the tensors of its operations */
    uint64_t engine_ns;  /* of processor time of the engine's threads */
    int process;         /* its id on the host, */
    uint64_t born;       /* and when it was started, on the host's clock */
};

/* A rank of an epoch of an elastic job. */
struct course_member {
    int slot; /* of its process, in all epochs */
    char host[64];
    bool newcomer; /* it was in no epoch before */
};

struct course_look {
    double at; /* seconds since the start of the job */
    int epoch;
    uint64_t steps;                  /* since its begin */
    const struct course_rank *ranks; /* by rank */
    int count;
    int exit;         /* enum verdict */
    const char *text; /* of the verdict; NULL: there is none */
    double joules;    /* since the start; negative: unknown */
};

struct course;

struct course *course_create(int ranks); /* at most; NULL: out of memory */
void course_free(struct course *course); /* NULL is fine */

/* An epoch of an elastic job begins, whose ranks these are: one that is lost before any look counts as well.
 */
void course_begin(struct course *course, int epoch, const struct course_member *members, int count);

/* Adds a look, which is later than the one before. */
void course_add(struct course *course, const struct course_look *look);

/* Writes one object of JSON, which launch/live.html shows. */
void course_write(const struct course *course, FILE *file);

/* Writes "2.1 rank-hours: 71 % computing, 22 % waiting for rank 1, ...". */
void course_cost(const struct course *course, char *text, size_t capacity);

#endif
