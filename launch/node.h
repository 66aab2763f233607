/* node.h - one command on each node: how many nodes there are, which one this is, and where node 0 is
 * reached, by options or by what a scheduler says in the environment. Readers are pure functions. One thread.
 *
 * A node is one horovodrun, usually alone in its container or on its host. That of node 0 is the launcher;
 * each of the others connects to it (nodes.h) and starts the ranks of its node for it (agent.h). */
#ifndef HVD_LAUNCH_NODE_H
#define HVD_LAUNCH_NODE_H

#include "bootstrap/starters.h"
#include "options.h"

#define NODE_PORT         29600 /* of node 0, if nobody says another one */
#define NODE_ADDRESS_TEXT 320

struct node {
    const char *source;                 /* for texts: what has said it; NULL: there are no nodes */
    int64_t index, count;               /* index -1: not known */
    char rendezvous[NODE_ADDRESS_TEXT]; /* host:port of node 0; "": not known */
    bool own_port;                      /* that port is NODE_PORT, or one that HOROVOD_PORTS may replace */
    int64_t ranks;                      /* of this node; 0: not known */
    bool called; /* node 0 may call the others by ssh: it does so if the nodes have no secret in common */
};

/* Reads what the first scheduler says whose variables are set; source is NULL if there is none. */
hvd_code node_read(struct node *node, const struct variables *variables, hvd_status *status);

/* Reads options and, where they leave something open, variables. source is NULL if the job is not started by
 * one command on each node, and also if there is one node only; `ranks` is that of the node in any case. */
hvd_code node_find(struct node *node, const struct options *options, const struct settings *settings,
                   const struct variables *variables, hvd_status *status);

/* Counts the GPUs that programs of this host may use; 0 if it is not known. */
int node_count_gpus(const struct variables *variables);

#endif
