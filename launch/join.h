/* join.h - a node other than node 0: connects to node 0, and starts the ranks of this node for it. One
 * thread.
 */
#ifndef HVD_LAUNCH_JOIN_H
#define HVD_LAUNCH_JOIN_H

#include "guard.h"
#include "node.h"

/* Returns horovodrun's exit code, which is that of the job. */
int join_run(const struct options *options, const struct settings *settings, const struct node *node,
             struct guard *guard);

#endif
