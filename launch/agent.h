/* agent.h - horovodrun --agent: the ranks of one host, for a launcher elsewhere. */
#ifndef HVD_LAUNCH_AGENT_H
#define HVD_LAUNCH_AGENT_H

#include "guard.h"

/* With --host-setup: the descriptor from which an agent reads the environment as it was before, with a NUL
 * behind each entry. */
#define AGENT_ENVIRONMENT 3

int agent_run(struct guard *guard); /* returns the exit code */

#endif
