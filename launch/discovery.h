/* discovery.h - finds out which hosts an elastic job may use, by running the user's script (--host-discovery-
 * script) every second. One thread, the loop's. */
#ifndef HVD_LAUNCH_DISCOVERY_H
#define HVD_LAUNCH_DISCOVERY_H

#include "processes.h"

#define DISCOVERY_TEXT 1024

struct discovery {
    struct table *table;
    void *owner;
    /* The script has named these hosts, with whole lines; what can't be understood is left out. */
    void (*found)(struct discovery *discovery, const struct hosts *hosts);
    /* The script has failed before it ever succeeded, which has been reported. */
    void (*failed)(struct discovery *discovery);
    uv_timer_t timer;
    pid_t pid; /* of the script; 0: it does not run */
    int exit_code, signal;
    bool ended;           /* the script; its output may not have */
    bool late;            /* it was killed because it took too long */
    bool succeeded;       /* once */
    int64_t deadline;     /* for the script to end, and then for its output */
    struct output output; /* stdout of the script */
    struct wire_writer text;
    struct hosts last;         /* as the last run that succeeded has named them */
    char said[DISCOVERY_TEXT]; /* the last complaint; "": the last run was right */
};

/* Runs the script at once, and then every second. */
void discovery_open(struct discovery *discovery);
/* Kills the script. The loop must still run, to close its handles. */
void discovery_close(struct discovery *discovery);
void discovery_free(struct discovery *discovery); /* after the loop has closed its handles */
/* Returns true if the child was the script. */
bool discovery_child_ended(struct discovery *discovery, pid_t pid, int exit_code, int signal);

#endif
