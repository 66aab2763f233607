/* agent.h - the processes of one host, for a launcher elsewhere: horovodrun --agent, and a node (node.h). One
 * thread, the loop's. */
#ifndef HVD_LAUNCH_AGENT_H
#define HVD_LAUNCH_AGENT_H

#include "frames.h"
#include "guard.h"

/* A node, which has connected to node 0. */
struct agent_node {
    struct node_hello hello;
    const char *rendezvous, *secret;
    struct stream stream; /* the agent takes ownership of it */
    struct preparation preparation;
};

/* Returns the exit code: that of the job if this is a node. `node`: NULL: launcher and agent talk over stdin
 * and stdout. */
int agent_run(struct guard *guard, const struct agent_node *node);

#endif
