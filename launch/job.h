/* job.h - the running job: its ranks and what they share. One thread, the loop's.
 *
 * Ranks are children of this process, or, on several hosts, of agents: one process per host that starts them,
 * passes on what they print, and signals them (agent.c, --agent). The launcher decides (agents.c). An agent
 * has a struct job of its own, with the ranks of its host. */
#ifndef HVD_LAUNCH_JOB_H
#define HVD_LAUNCH_JOB_H

#include "frames.h"
#include "guard.h"
#include "hosts.h"
#include "options.h"
#include "output.h"

#include "net/addresses.h"

#define JOB_SIGNALS 5

struct job;
struct remotes;

/* How far the end of a rank has got. */
enum rank_step {
    STEP_NONE, /* runs */
    STEP_OWN,  /* may end by itself until the deadline */
    STEP_TERM, /* got SIGTERM */
    STEP_KILL  /* got SIGKILL */
};

struct rank {
    struct job *job;
    const struct slot *slot;
    int rank;
    bool remote;  /* started by an agent */
    int pid;      /* also of its process group, on its host; 0: not started */
    bool running; /* the process itself */
    bool gone;    /* its whole process group, too; pid must not be used any more */
    enum rank_step step;
    int64_t deadline; /* of the step, clock_now's */
    int64_t started, ended;
    int exit_code;  /* as in a shell: 128 + signal */
    int signal;     /* that ended it, or 0 */
    bool signalled; /* by the launcher */
    bool failed;    /* and not by the launcher's signal */
    struct output outputs[OUTPUTS];
};

struct job {
    const struct options *options;
    const struct settings *settings;
    struct hosts *hosts;
    int size;
    int count; /* of ranks; in an agent those of its host */
    struct rank *ranks;
    char id[JOB_ID_DIGITS + 1], secret[JOB_SECRET_DIGITS + 1];
    hvd_rendezvous *rendezvous;
    char rendezvous_address[JOB_ADDRESS_LIMIT]; /* host:port, or several */
    int input;                                  /* stdin of rank 0 */
    int function;            /* --task: the file that all ranks have as stdin, and read by offset; or -1 */
    uint64_t file_limit;     /* of ranks (ulimit -n); this process has raised its own. 0: it has not */
    struct remotes *remotes; /* NULL: all ranks are children of this process */
    struct guard *guard;
    uv_loop_t loop;
    uv_timer_t clock; /* ticks only while a rank has a deadline */
    uv_signal_t signals[JOB_SIGNALS];
    /* In these the launcher and an agent differ. */
    void (*rank_ended)(struct rank *rank, int exit_code, int signal); /* a child of this process */
    void (*signal_came)(struct job *job, int signal);                 /* SIGINT, SIGTERM or SIGHUP */
    struct sink sinks[2];
    struct sink *out, *err; /* one and the same when stdout and stderr are one file */
    bool ending;            /* the exit code is decided */
    int exit_code;
    int failed;          /* the rank whose failure came first, or -1; at the end, the first cause */
    int interrupts;      /* times that SIGINT came */
    int64_t interrupted; /* when it came first */
    bool abandoned;      /* leave without waiting for anything */
    int64_t drained;     /* when to give up on output after the last rank; 0: not yet */
};

/* Runs the job to its end; returns horovodrun's exit code. */
int job_run(const struct options *options, const struct settings *settings, struct hosts *hosts,
            struct guard *guard);

/* What launcher and agent have in common; job->loop is there. */
hvd_code job_open(struct job *job, hvd_status *status);
hvd_code job_add_ranks(struct job *job, const struct slot *slots, int count, hvd_status *status);
void job_close(struct job *job); /* kills what is left */

/* Serves the rendezvous at these addresses, and fills rendezvous_address. */
hvd_code job_serve(struct job *job, const struct addresses *addresses, hvd_status *status);

/* The rank's process has ended. */
void job_rank_ended(struct rank *rank, int exit_code, int signal);

/* The rank could not be started: ends the job. exit_code: a shell's (126, 127), or 0. */
void job_rank_failed_to_start(struct rank *rank, int exit_code, const char *text);

/* The host that the rank runs on. */
static inline const struct host *rank_host(const struct rank *rank)
{
    return &rank->job->hosts->list[rank->slot->host];
}

/* Passes on what is unfinished, and reads no more. */
void job_close_outputs(struct rank *rank);

#endif
