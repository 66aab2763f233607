/* agent_prepare.h - what an agent checks and sets on its host before processes can be started there. One
 * thread, the loop's. */
#ifndef HVD_LAUNCH_AGENT_PREPARE_H
#define HVD_LAUNCH_AGENT_PREPARE_H

#include "frames.h"

#include "base/settings.h"

/* With --host-setup: the descriptor from which an agent reads the environment before the setup, with a NUL
 * after each entry. */
#define AGENT_ENVIRONMENT 3

/* Makes this process's environment, folder and settings those of the launcher's job, and searches the
 * command. Returns 0, or horovodrun's exit code, and then the text says what is wrong and what to do. */
int agent_prepare(const struct preparation *preparation, struct settings *settings, char *text,
                  size_t capacity);

/* Writes the name of this host, by which the launcher and the ranks find which of them share one. `node`: its
 * number, or -1. */
void agent_name_host(char *identity, size_t capacity, int node);

#endif
