/* agents_prepare.h - the start of a job on several hosts, up to the first process: each host is checked, and
 * becomes prepared or faulty. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_PREPARE_H
#define HVD_LAUNCH_AGENTS_PREPARE_H

#include "agents.h"

/* Handles FRAME_READY: the agent runs, and is sent what it has to check. */
void agents_prepare_host(struct remote *remote, struct wire_reader *body);

/* Handles FRAME_PREPARED: what the agent has found. */
void agents_prepare_answer(struct remote *remote, struct wire_reader *body);

/* Elastic jobs: continues the preparation of one host. Returns true once it is prepared; otherwise it may
 * have become faulty. */
bool agents_prepare_one(struct remote *remote);
/* Reports the fault of a host without which the job goes on. */
void agents_prepare_complain(const struct remote *remote);

/* Continues the start. EVENT_PREPARED follows once all hosts are prepared; EVENT_HOST_FAILED if one is
 * faulty, also after that until the first host has published the assignments. */
void agents_prepare_turn(struct table *table);

#endif
