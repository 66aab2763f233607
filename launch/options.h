/* options.h - horovodrun's command line: what was asked for, and the rows from which --help is printed. */
#ifndef HVD_LAUNCH_OPTIONS_H
#define HVD_LAUNCH_OPTIONS_H

#include "base/settings.h"
#include "foreign.h"

struct options {
    int64_t num_proc;     /* 0: not given */
    const char *hosts;    /* "localhost:4", or NULL */
    const char *hostfile; /* path, or NULL */
    const char *config;   /* path, or NULL */
    const char *output;   /* folder for the ranks' output, or NULL */
    bool timestamp;       /* in front of every line of output */
    int64_t parent;       /* ends when this process, which started it, has ended; 0: not given */
    bool verbose, help, version, check_build;
    char **values; /* per row of setting_table: the environment's text that was asked for, or NULL */
    enum foreign_answer *foreign; /* per row of foreign_table */
    char **command;               /* ends with NULL; empty when there is none */
};

enum option_kind { OPTION_COUNT, OPTION_TEXT, OPTION_SWITCH };
enum option_group { GROUP_RANKS, GROUP_OUTPUT, GROUP_INFORMATION, GROUP_COUNT };

struct option {
    enum option_group group; /* the heading of --help that it stands under */
    const char *shorter;     /* "np", or "" */
    const char *name;        /* "num-proc" */
    const char *argument;
    enum option_kind kind;
    size_t offset; /* of the field in struct options */
    const char *help;
};

extern const struct option option_table[]; /* the launcher's own; the rest: setting_table, foreign_table */
extern const int option_count;

/* Takes the words up to the command. Texts stay those of argv. */
hvd_code options_parse(struct options *options, char **argv, hvd_status *status);
void options_free(struct options *options);

/* Keeps what `source` asked for one setting, once it has been checked. */
hvd_code options_give(struct options *options, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status);

/* The option or flag (without dashes) that looks most like `name`, or NULL when none does. */
const char *option_nearest(const char *name);

void help_print(void);

#endif
