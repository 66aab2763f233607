/* job.h - the running job: its ranks and what they share. One thread, the loop's.
 *
 * Ranks are children of this process, or, on several hosts, of agents: one process per host that starts them,
 * passes on what they print, and signals them (agent.c, --agent). The launcher decides (remote.c). An agent
 * has a struct job of its own, with the ranks of its host. */
#ifndef HVD_LAUNCH_JOB_H
#define HVD_LAUNCH_JOB_H

#include "guard.h"
#include "hosts.h"
#include "options.h"
#include "output.h"

#include "base/addresses.h"

#define JOB_ID_DIGITS     32
#define JOB_SECRET_DIGITS 64
#define JOB_ADDRESS_LIMIT ADDRESSES_TEXT
#define JOB_SIGNALS       5

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

/* Decides horovodrun's exit code, unless it is decided already. */
void job_decide(struct job *job, int exit_code);

/* One line of the launcher's own on its stderr. */
void job_say(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- agent.c, remote.c: ranks on other hosts ---------------------------------------------------------- */

/* With --host-setup: the descriptor from which an agent reads the environment as it was before, with a NUL
 * behind each entry. */
#define AGENT_ENVIRONMENT 3

int agent_run(struct guard *guard); /* returns the exit code */

/* Calls all hosts at once; ranks start when all have answered. */
hvd_code remotes_start(struct job *job, hvd_status *status);
/* After each turn of the loop. */
void remotes_turn(struct job *job);
void remotes_close(struct job *job);         /* ends all agents, by the end of their stdin */
void remotes_free(struct job *job);          /* after the loop has closed its handles */
bool remotes_pending(const struct job *job); /* ranks are still to be started */
bool remotes_connected(const struct job *job);
bool remotes_sending(const struct job *job); /* agents may have output on the way */
void remotes_child_ended(struct job *job, pid_t pid, int exit_code, int signal); /* if it calls a host */
void remote_signal(const struct rank *rank, int signal);

/* The words of the command that starts the agent of a host; free them and the list. NULL: out of memory. */
char **ssh_words(const struct job *job, const struct host *host);
/* Why that command has ended without an agent, by its exit code and what it wrote to stderr, and what to do.
 */
void ssh_explain(const struct job *job, const struct host *host, int exit_code, char *errors, char *text,
                 size_t capacity);

/* ---- environment.c ------------------------------------------------------------------------------------- */

struct environment { /* zeroed memory is a valid empty one */
    char **entries;  /* "NAME=value"; ends with NULL */
    char **own;      /* those of them that are freed with it; the others are the launcher's own */
};

/* What is inherited, over it the settings that were given, over that the rank's place in the job. */
hvd_code environment_of_rank(struct environment *environment, const struct rank *rank, hvd_status *status);
/* What the agents get: without what belongs to a host, its user or session. */
hvd_code environment_for_hosts(struct environment *environment, const struct job *job, hvd_status *status);
void environment_free(struct environment *environment);

/* One list of all, which end with NULL; of entries with one name the first counts, and drops them all if it
 * is a name alone. NULL: out of memory. */
char **environment_merge(char *const *const *lists);

/* ---- mpirun.c ------------------------------------------------------------------------------------------ */

/* Replaces this process by an mpirun that starts the command on these hosts; returns on failure only. */
hvd_code mpirun_become(const struct options *options, const struct hosts *hosts, hvd_status *status);

/* ---- child.c ------------------------------------------------------------------------------------------- */

#define CHILD_FILES (1 + OUTPUTS)

struct child {
    char **words;
    char **environment;                 /* NULL: this process's */
    int files[CHILD_FILES], file_count; /* its descriptors from 0 on; -1: /dev/null */
    int end_signal;                     /* what it gets when this process has ended */
    bool shares_session;                /* this process's; false: it leads one of its own */
};

/* Returns its number, which is also that of its group, or a negated errno when the command can't be started.
 */
pid_t child_start(const struct child *child, struct guard *guard);

/* ---- spawn.c ------------------------------------------------------------------------------------------- */

/* For --output-filename: makes FOLDER/rank.<rank>, with as many digits for every rank, and the two files in
 * it; for --task the file of the result. */
hvd_code rank_open_copies(struct rank *rank, hvd_status *status);

/* Starts the process. When the command can't be started, rank->exit_code is a shell's: 127 not found, 126 not
 * startable. */
hvd_code rank_start(struct rank *rank, hvd_status *status);

/* ---- limits.c ------------------------------------------------------------------------------------------ */

/* Whether the limits of open files and processes leave room for all ranks of this job, which this process
 * starts, or only keeps what they print. It checks what they need at least: what else runs is not known. */
hvd_code limits_check(const struct job *job, bool starts, hvd_status *status);

/* ---- stop.c: leave ranks time, then SIGTERM, then SIGKILL; signals to the launcher --------------------- */

hvd_code stop_watch_signals(struct job *job, hvd_status *status);

/* Takes every rank at least to `step`, at once; each step after it follows grace_seconds later. */
void stop_all(struct job *job, enum rank_step step);

/* What SIGINT, SIGTERM or SIGHUP means, sent to the launcher (where is "") or to an agent ("host b: "). */
void stop_by_signal(struct job *job, const char *where, int signal);

/* The rank's process has ended: what it started gets a moment to do so, too. */
void stop_rest(struct rank *rank);

/* The ranks are gone or the output has ended: see whether there is still something to wait for. */
void stop_tick(uv_timer_t *clock);

bool stop_finished(struct job *job);

/* ---- report.c: messages about ranks -------------------------------------------------------------------- */

const char *report_signal_name(int signal); /* "SIGKILL"; valid until the next call */
/* "ended with exit code 3", "was killed by SIGKILL" (if it is not 0). */
const char *report_outcome(int exit_code, int signal, char *text, size_t capacity);

void report_job(struct job *job);                                    /* verbose: what runs where */
void report_rank_start(struct rank *rank, char *const *environment); /* verbose */
void report_rank_end(struct rank *rank);                             /* verbose */
void report_failure(struct rank *rank);                              /* at once */
void report_failure_again(struct job *job); /* at the end, where it is seen, with the last lines of stderr */

/* The first HorovodInternalError in the rank's last lines on stderr, or NULL: every rank gets the same. */
const char *report_cause(const struct rank *rank);

#endif
