/* agents_input.h - stdin of a job on several hosts: what this process reads is sent to rank 0. One thread,
 * the loop's. */
#ifndef HVD_LAUNCH_AGENTS_INPUT_H
#define HVD_LAUNCH_AGENTS_INPUT_H

#include "agents.h"

void agents_input_open(struct table *table);                    /* once the host of rank 0 is prepared */
void agents_input_turn(struct table *table);                    /* after each turn of the loop */
void agents_input_taken(struct remote *remote, uint32_t bytes); /* its agent has reported that */

#endif
