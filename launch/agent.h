/* agent.h - horovodrun --agent: the processes of one host, for a launcher elsewhere. One thread, the loop's.
 */
#ifndef HVD_LAUNCH_AGENT_H
#define HVD_LAUNCH_AGENT_H

#include "guard.h"

/* With --host-setup: the descriptor from which an agent reads the environment before the setup, with a NUL
 * after each entry. */
#define AGENT_ENVIRONMENT 3

int agent_run(struct guard *guard); /* returns the exit code */

#endif
