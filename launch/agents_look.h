/* agents_look.h - looks at the ranks of other hosts, by their agents. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_LOOK_H
#define HVD_LAUNCH_AGENTS_LOOK_H

#include "host_pages.h"
#include "remote.h"

/* As struct starter_ops has them. */
bool agents_look(const struct table *table, int host, uint32_t number, enum stacks stacks);
double agents_silent(const struct table *table, int host);

/* Handles FRAME_RANK_VIEW and FRAME_LOOKED. */
void agents_look_receive(const struct remote *remote, enum frame_kind kind, struct wire_reader *body);

#endif
