/* agents_hosts.h - the connections to the hosts of a job, which come and go in an elastic one: each host is
 * prepared by itself, and released once no process is left there. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_HOSTS_H
#define HVD_LAUNCH_AGENTS_HOSTS_H

#include "agents.h"

/* Adds a connection to a host, which is to be called; NULL: out of memory. */
struct remote *agents_add(struct table *table, int host);

/* The newest connection to a host, which may have ended; NULL: none. */
struct remote *agents_of_host(const struct agents *agents, int host);

/* Ends the agent once its processes have ended; what has not become an agent yet is ended at once. */
void agents_release(struct table *table, int host);

/* Elastic jobs: continues the preparation of hosts, and frees connections that have ended. Call it once
 * after each turn of the loop. */
void agents_hosts_turn(struct table *table);

#endif
