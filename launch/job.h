/* job.h - the running job: its ranks and what they share. One thread, the loop's. */
#ifndef HVD_LAUNCH_JOB_H
#define HVD_LAUNCH_JOB_H

#include "guard.h"
#include "hosts.h"
#include "options.h"
#include "output.h"

struct job;

/* How far the end of a rank has got. */
enum rank_step {
    STEP_NONE, /* runs */
    STEP_OWN,  /* may end by itself until the deadline */
    STEP_TERM, /* got SIGTERM */
    STEP_KILL  /* got SIGKILL */
};

struct rank {
    struct job *job;
    int rank;
    uv_process_t process;
    int pid;      /* also of its process group; 0: not started */
    bool running; /* the process itself */
    bool gone;    /* its whole process group, too; pid must not be used any more */
    enum rank_step step;
    int64_t deadline; /* of the step, clock_now's */
    int64_t started, ended;
    int exit_code; /* as a shell says it: 128 + signal */
    int signal;    /* that ended it, or 0 */
    struct output out, err;
};

struct job {
    const struct options *options;
    const struct settings *settings;
    const struct hosts *hosts;
    int size;
    struct rank *ranks;
    char id[33], secret[65];
    hvd_rendezvous *rendezvous;
    struct guard *guard;
    uv_loop_t loop;
    uv_timer_t clock; /* ticks only while a rank has a deadline */
    uv_signal_t signals[4];
    struct sink sinks[2];
    struct sink *out, *err; /* one and the same when stdout and stderr are one file */
    bool ending;            /* the exit code is decided */
    int exit_code;
    int failed;          /* the first rank that failed, or -1 */
    int interrupts;      /* times that SIGINT came */
    int64_t interrupted; /* when it came first */
    bool abandoned;      /* leave without waiting for anything */
    int64_t drained;     /* when to give up on output after the last rank; 0: not yet */
};

/* Runs the job to its end; returns horovodrun's exit code. */
int job_run(const struct options *options, const struct settings *settings, const struct hosts *hosts,
            int size, struct guard *guard);

/* Decides horovodrun's exit code, unless it is decided already. */
void job_decide(struct job *job, int exit_code);

/* One line of the launcher's own on its stderr. */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
