/* options.h - horovodrun's command line, config file and compatibility options, and the rows by which they
 * are parsed and --help is printed. One thread. */
#ifndef HVD_LAUNCH_OPTIONS_H
#define HVD_LAUNCH_OPTIONS_H

#include "base/settings.h"
#include "horovod.h"

#include <stdbool.h>

/* ---- options of Horovod's that are no setting of ours: see foreign.def --------------------------------- */

struct options;

enum foreign_kind { FOREIGN_SWITCH, FOREIGN_CHOICE, FOREIGN_NUMBER, FOREIGN_PAIR, FOREIGN_WORD };
enum foreign_effect { FOREIGN_NEEDLESS, FOREIGN_REFUSED, FOREIGN_SAME, FOREIGN_OPPOSITE };

/* The value that the user has given. */
enum foreign_answer { FOREIGN_OPEN, FOREIGN_NO, FOREIGN_YES };

/* One row; the columns are explained in foreign.def. */
struct foreign {
    const char *shorter, *name, *argument;
    enum foreign_kind kind;
    double minimum, maximum;
    const char *config_key, *environment;
    enum foreign_effect effect;
    const char *setting, *text;
};

extern const struct foreign foreign_table[];
extern const int foreign_count;

const struct foreign *foreign_by_flag(const char *flag);      /* without dashes; NULL when there is none */
const struct foreign *foreign_by_config_key(const char *key); /* NULL when there is none */

/* Checks the value that `source` gives, and applies the row's effect. A switch's value is yes or no. */
hvd_code foreign_apply(struct options *options, const struct foreign *foreign, const char *value,
                       const char *source, hvd_status *status);

/* Applies the variables of the environment that neither the command line nor the config file gives. */
hvd_code foreign_apply_environment(struct options *options, hvd_status *status);

/* With --verbose: prints on stderr which given options have no effect, and why. */
void foreign_report(const struct options *options);

/* ---- options ------------------------------------------------------------------------------------------- */

#define METRICS_ANY_PORT (-1)
#define METRICS_RANKS    256

struct options {
    int64_t num_proc;       /* 0: not given */
    const char *hosts;      /* "localhost:4", or NULL */
    const char *hostfile;   /* path, or NULL */
    const char *config;     /* path, or NULL */
    const char *output;     /* folder for the ranks' output, or NULL */
    bool timestamp;         /* in front of every line of output */
    int64_t ssh_port;       /* 0: ssh's own choice */
    const char *identity;   /* file for ssh -i, or NULL */
    const char *rsh_agent;  /* what takes ssh's place, with its arguments, or NULL */
    const char *host_setup; /* commands for the shell of each host, before the agent; or NULL */
    bool mpi;               /* mpirun starts the ranks */
    const char *mpi_args;   /* its further options, or NULL */
    const char *task;       /* folder of horovod.run: `function` in it is stdin of all ranks, and what they
                             * write to the descriptor behind stderr is its report.<rank>; or NULL */
    int64_t parent;         /* ends when this process, which started it, has ended; 0: not given */
    int64_t metrics_port;   /* 0: not given; METRICS_ANY_PORT */
    const char *metrics_address;        /* to listen at, or NULL */
    const char *metrics_token_file;     /* path, or NULL */
    const char *metrics_discovery;      /* folder, or NULL */
    const char *metrics_file;           /* path, or NULL */
    int64_t metrics_ranks;              /* above which metrics are by host; 0: METRICS_RANKS */
    const char *report;                 /* path of the HTML file about the job, or NULL */
    int64_t min_num_proc, max_num_proc; /* 0: not given */
    const char *discovery_script;       /* command for the shell, or NULL */
    int64_t spares;                     /* 0: none */
    int64_t slots_per_host;             /* of hosts for which nothing says any; 0: not given */
    int64_t elastic_timeout;            /* seconds; 0: not given */
    int64_t rejoin_seconds;             /* 0: not given */
    int64_t reset_limit;                /* one more than the number; 0: not given */
    int64_t cooldown[2];                /* seconds; 0: not given */
    const char *failed_slot;            /* "restart:3", or NULL */
    bool verbose, help, version, check_build, agent;
    int64_t nodes;          /* number of nodes, each of which runs this command; 0: not given */
    int64_t node_rank;      /* one more than the number of this one; 0: not given */
    const char *rendezvous; /* host:port of node 0, or NULL */
    bool status;            /* of running jobs */
    bool monitor;           /* a job that something else has started */
    const char *job;        /* with these: the start of a job's id, or NULL */
    bool json;              /* --status: for programs */
    const char *stacks;     /* --status: of which ranks: "late", "all", "none", or NULL */
    const char *timeline;   /* with status: a file that gets the last steps of all ranks; or NULL */
    int64_t steps;          /* how many; 0: not given */
    double watch_seconds;   /* --status: again after that time; 0: once */
    char **values; /* per row of setting_table: the environment's text for the given value, or NULL */
    enum foreign_answer *foreign; /* per row of foreign_table */
    char **command;               /* ends with NULL; empty when there is none */
};

enum option_kind {
    OPTION_COUNT,
    OPTION_PORT,
    OPTION_LISTEN, /* a port; 0: METRICS_ANY_PORT */
    OPTION_TEXT,
    OPTION_SWITCH,
    OPTION_SECONDS, /* the value may be missing */
    OPTION_LIMIT,   /* from 0 on; the field is one more */
    OPTION_PAIR     /* two counts */
};
/* An option without a group is not in --help. */
enum option_group {
    GROUP_RANKS,
    GROUP_HOSTS,
    GROUP_NODES,
    GROUP_ELASTIC,
    GROUP_OUTPUT,
    GROUP_METRICS,
    GROUP_STATUS,
    GROUP_INFORMATION,
    GROUP_COUNT
};

struct option {
    enum option_group group; /* the heading of --help under which it is listed */
    const char *shorter;     /* "np", or "" */
    const char *name;        /* "num-proc" */
    const char *argument;
    enum option_kind kind;
    size_t offset; /* of the field in struct options */
    const char *help;
};

extern const struct option option_table[]; /* the launcher's own; the rest: setting_table, foreign_table */
extern const int option_count;

/* Parses the words up to the command. Texts stay those of argv. */
hvd_code options_parse(struct options *options, char **argv, hvd_status *status);
void options_free(struct options *options);

/* Checks and keeps the value that `source` gives for one setting. */
hvd_code options_give(struct options *options, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status);

/* Applies the settings of the YAML file that the command line does not give. */
hvd_code config_file_read(struct options *options, const char *path, hvd_status *status);

#endif
