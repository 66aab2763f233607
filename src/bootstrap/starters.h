/* starters.h - finds which starter has started this process as one of several ranks, and what it says about
 * them. A reader is a pure function of the environment. Which ranks share a host is agreed on when they join
 * (engine/placement.c), so any layout is accepted. Any thread. */
#ifndef HVD_BOOTSTRAP_STARTERS_H
#define HVD_BOOTSTRAP_STARTERS_H

#include "horovod.h"

#include <stdbool.h>

#define STARTER_TEXT 256

/* Where variables are looked up: NULL when one is not set. */
struct variables {
    const char *(*get)(const void *owner, const char *name);
    const void *owner;
};
extern const struct variables variables_of_process;

struct starter {
    const char *name;   /* for texts; NULL: nothing known has started this process, it is a job of one */
    char variables[64]; /* for texts: where the rank and the size are */
    int64_t rank, size;
    bool launched;           /* its starter serves the rendezvous and gives all that a rank needs */
    bool by_hand;            /* rank, size and rendezvous are HOROVOD_ variables */
    bool one_host;           /* all ranks are on this host */
    char host[STARTER_TEXT]; /* a name of rank 0's host; "": not known */
    int port;                /* that all ranks know, for a server on that host */
    int64_t number;          /* the number from which they derive a port of HOROVOD_PORTS */
    char job[STARTER_TEXT];  /* equal on all ranks, different for each running job; "": not known */
    int pmi;                 /* descriptor of the connection to a process manager, or -1 */
};

/* Asks the readers of all starters in a fixed order, from the inner one to the outer one. */
hvd_code starter_read(struct starter *starter, const struct variables *variables, hvd_status *status);

/* Calls `visit` for each name of a list of Slurm such as "a[1-3,07],b", in order, until it returns false.
 * Returns false if the list is malformed. */
bool nodelist_visit(const char *list, bool (*visit)(void *owner, const char *name), void *owner);

#endif
