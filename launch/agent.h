/* agent.h - horovodrun --agent: the processes of one host, for a launcher elsewhere. One thread, the loop's.
 */
#ifndef HVD_LAUNCH_AGENT_H
#define HVD_LAUNCH_AGENT_H

#include "guard.h"

int agent_run(struct guard *guard); /* returns the exit code */

#endif
