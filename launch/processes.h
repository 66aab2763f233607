/* processes.h - the table of the processes that the launcher, or an agent on one host, has started, and how
 * they end. One thread, the loop's.
 *
 * A row is a slot: it keeps its number and its process for life, while its rank is a property of an epoch. A
 * table has one starter (starter.h), which starts and signals the processes. What happens to them is reported
 * by events; the launcher's membership (membership/membership.h) decides what an event means, an agent passes
 * it on. */
#ifndef HVD_LAUNCH_PROCESSES_H
#define HVD_LAUNCH_PROCESSES_H

#include "frames.h"
#include "guard.h"
#include "hosts.h"
#include "options.h"
#include "output.h"

#include "net/addresses.h"

#define TABLE_SIGNALS 6

struct agents;
struct changes;
struct discovery;
struct sampler;
struct exporter;
struct monitor;
struct record_query;
struct remote;
struct starter_ops;
struct table;

/* The stages of ending a process. */
enum step {
    STEP_NONE, /* runs */
    STEP_OWN,  /* may end by itself until the deadline */
    STEP_TERM, /* got SIGTERM */
    STEP_KILL  /* got SIGKILL */
};

/* Who has killed a process by SIGKILL, as far as its host can say. */
enum killer {
    KILLER_UNKNOWN,
    KILLER_KERNEL, /* because memory ran out */
    KILLER_OTHER
};

struct process {
    struct table *table;
    int slot;           /* HOROVOD_SLOT: the process's name in all epochs */
    struct place place; /* in its epoch */
    int epoch, size;    /* the epoch, and its number of ranks */
    bool apart;         /* elastic jobs: it is not in the running epoch */
    bool leaves;        /* elastic jobs: it was asked to leave */
    bool gone_reported; /* elastic jobs: to the membership; see table_release */
    int pid;            /* also of its process group, on its host; 0: not started */
    bool running;       /* the process itself */
    bool gone;          /* its whole process group has ended; pid must no longer be used */
    enum step step;
    int64_t deadline; /* of the step, clock_now's */
    int64_t started, ended;
    int exit_code;          /* as in a shell: 128 + signal */
    int signal;             /* that ended it, or 0 */
    enum killer killer;     /* if that is SIGKILL */
    bool signalled;         /* by the launcher */
    bool failed;            /* and not by the launcher's signal */
    hvd_fault *fault;       /* what its rank has published about why it fails; NULL: nothing */
    int fault_number;       /* of its first record, among all of the job */
    uint32_t seen;          /* number of the last look (monitor.h) that has found its page */
    int page;               /* a descriptor of its page (watch/page.h); -1: it has none */
    struct remote *remote;  /* the starter `agents`: the agent of its host; NULL: not started, or lost */
    struct history history; /* what its agent has last sent of its page */
    struct output outputs[OUTPUTS];
};

enum event_kind {
    EVENT_PREPARED,      /* all hosts can start processes */
    EVENT_ASSIGNED,      /* the assignments of the epoch are published */
    EVENT_NOT_STARTED,   /* the command could not be started; exit_code: a shell's (126, 127), or 0 */
    EVENT_ENDED,         /* the process has ended; exit_code, signal */
    EVENT_HOST_FAILED,   /* hosts could not be prepared, which has been reported; exit_code */
    EVENT_HOST_PREPARED, /* elastic jobs: the host can start processes */
    EVENT_HOST_UNUSABLE, /* elastic jobs: it can't, which has been reported */
    EVENT_HOST_LEAVES,   /* elastic jobs: its processes are to leave the job */
    EVENT_HOST_LOST,     /* the connection to a host has ended, and its processes count as gone */
    EVENT_HOST_SILENT,   /* a host has been silent for too long, and its processes count as gone */
    EVENT_OUTPUT_FAILED, /* the launcher can't write; exit_code */
    EVENT_FAULT,         /* a rank has published why it fails; fault */
    EVENT_SIGNALLED,     /* somebody has sent a signal to the launcher, or to the agent of a host */
    EVENT_STALLED,       /* a rank has reported that some ranks wait for others */
    EVENT_ASKED          /* somebody asks by a signal what the job does */
};

struct event {
    enum event_kind kind;
    struct process *process; /* NULL: it concerns no process */
    int exit_code, signal;
    const char *text; /* of EVENT_NOT_STARTED: why; of EVENT_SIGNALLED: to whom, "host b: its agent " or "" */
    int host;         /* of events of one host: its index in table->hosts */
    const hvd_fault *fault; /* of EVENT_FAULT: the record; of EVENT_HOST_LOST and _SILENT: why, or NULL */
    int64_t since;          /* of EVENT_HOST_SILENT: when anything last arrived from the host, clock_now's */
};

struct table {
    const struct options *options;
    const struct settings *settings;
    struct hosts *hosts;
    const struct starter_ops *starter;
    struct process **list; /* [count] in the order of their slots; some may have been released */
    int count;
    int epoch, size; /* the epoch that has begun, and its number of ranks */
    bool elastic;    /* processes and hosts come and go */
    bool waited;     /* elastic jobs: a process waits for the epoch after this one */
    int most;        /* ranks of which statistics are kept */
    char id[JOB_ID_DIGITS + 1], secret[JOB_SECRET_DIGITS + 1];
    const char *attached; /* the id, or its start, of a job that something else has started; NULL: none */
    bool attached_whole;  /* that is the whole id */
    hvd_rendezvous *rendezvous;                 /* if this process serves it */
    hvd_watch *watch;                           /* for fault records, there; or NULL */
    uv_poll_t *published;                       /* the watch has news */
    char rendezvous_address[JOB_ADDRESS_LIMIT]; /* host:port, or several */
    int input;                                  /* stdin of rank 0 */
    int function;            /* --task: the file that all ranks have as stdin, and read by offset; or -1 */
    int64_t memory_kills;    /* of the control group so far: those that are explained; -1: unknown */
    uint64_t file_limit;     /* of ranks (ulimit -n); this process has raised its own. 0: it has not */
    struct agents *agents;   /* of the starter `agents` */
    struct monitor *monitor; /* of the launcher; an agent has none */
    struct record_query *record_query; /* of the launcher as well */
    struct exporter *exporter;         /* of the launcher, if an option asks for metrics; or NULL */
    struct sampler *sampler; /* of the launcher, if an option asks for a report or a live page; or NULL */
    struct guard *guard;
    uv_loop_t loop;
    uv_timer_t clock; /* ticks only while a process has a deadline */
    uv_signal_t signals[TABLE_SIGNALS];
    void (*happened)(struct table *table, const struct event *event);
    struct changes *changes;     /* of an elastic job; or NULL */
    struct discovery *discovery; /* its script is a child without a row; or NULL */
    struct sink sinks[2];
    struct sink *out, *err; /* one and the same when stdout and stderr are one file */
    bool ending;            /* the job is to end: its exit code is decided */
    int64_t drained;        /* when to give up on output after the last process; 0: not yet */
    int64_t read_until;     /* what happened before has been read: time limits are compared with it */
};

/* Opens the streams and watches for signals; table->loop is initialised. */
hvd_code table_open(struct table *table, hvd_status *status);
/* Kills what is left, and frees all but the rows of the agents. */
void table_close(struct table *table);

/* One turn of the loop. libuv calls timers before it reads, and this process may stand still in between: a
 * time limit has passed only once all that happened before it has been read. */
void table_run(struct table *table);

/* Returns true if a rank that calls its job so belongs to the job of the table, or to one that some of its
 * ranks have formed. */
bool table_has_job(const struct table *table, const char *job);

/* Returns NULL if there is no row of this slot, or it was released. */
struct process *table_find(const struct table *table, int slot);

/* Adds a row, whose process is not started; its slot is higher than all before. NULL: out of memory. */
struct process *table_add(struct table *table, int slot, const struct place *place);

/* Releases the rows of processes that are gone, which has been reported, and whose output is complete, except
 * the newest few, which reports may name. Calls `released`, unless it is NULL, for each before. Not while the
 * job ends. */
void table_release(struct table *table, void (*released)(struct process *process));

/* Counts the processes that were started, and are not gone. */
int table_count_running(const struct table *table);

/* Serves the rendezvous at these addresses, and fills rendezvous_address. */
hvd_code table_serve(struct table *table, const struct addresses *addresses, hvd_status *status);

/* Brings every process at least to `step`, at once; each later step follows grace_seconds after the one
 * before. */
void table_end(struct table *table, enum step step);

/* The same for one process. */
void process_end(struct process *process, enum step step);

/* Returns true once all processes are gone and their output has been read, or is given up. */
bool table_finished(struct table *table);

/* Marks the process as ended; report the event afterwards. */
void process_ended(struct process *process, int exit_code, int signal);

/* Gives what the process has started a moment to end. Call it once the process has ended. */
void process_end_rest(struct process *process);

void process_signal(struct process *process, int signal);

/* For --output-filename: makes the folder of the rank, and the files for what it prints; for --task the file
 * of the result. */
hvd_code process_copy_outputs(struct process *process, hvd_status *status);

/* Passes on unfinished lines, and reads no more. */
void process_close_outputs(struct process *process);

/* The host that the process runs on. */
static inline const struct host *process_host(const struct process *process)
{
    return &process->table->hosts->list[process->place.host];
}

#endif
