/* topology.h - which rank is on which host, and what follows from it: local and cross ranks, leaders, the
 * order of ranks host by host. Ranks of a host need not be neighbours, and hosts may have different numbers
 * of ranks. A topology is constant after it was made; any thread.
 *
 * Hosts are numbered in the order of their lowest ranks, so rank 0 is on host 0. A *place* numbers the ranks
 * host by host, ascending within each host; if the ranks of every host are neighbours, place and rank are
 * equal. */
#ifndef HVD_BASE_TOPOLOGY_H
#define HVD_BASE_TOPOLOGY_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>

/* Writes the host of this process as text: `given` unless it is empty, otherwise the identity from the
 * system, which is the same under all names of a host. */
#define TOPOLOGY_HOST_LIMIT 96 /* with the NUL */
void topology_own_host(const char *given, char *text, size_t capacity);
/* Writes with whom this process may share memory, which is tried between processes with equal texts: the
 * system's identity, unless `given` is a name that does not start with it (horovodrun's names of hosts do).
 */
void topology_own_system(const char *given, char *text, size_t capacity);

struct topology {
    int size, hosts;
    int *host_of;  /* [size] by rank; one block of memory holds this and the next three */
    int *place_of; /* [size] by rank */
    int *rank_at;  /* [size] by place */
    int *first;    /* [hosts + 1] the first place of each host: its leader's */
};

/* labels: [size] by rank, not negative, equal for ranks of one host. A zeroed topology may be freed. */
hvd_code topology_init(struct topology *topology, const int *labels, int size, hvd_status *status);
/* Makes the topology of some ranks: ranks[i] becomes rank i. */
hvd_code topology_subset(struct topology *subset, const struct topology *topology, const int *ranks, int size,
                         hvd_status *status);
void topology_free(struct topology *topology);

static inline int topology_host_size(const struct topology *topology, int host)
{
    return topology->first[host + 1] - topology->first[host];
}

static inline int topology_leader(const struct topology *topology, int host)
{
    return topology->rank_at[topology->first[host]];
}

static inline bool topology_share_host(const struct topology *topology, int a, int b)
{
    return topology->host_of[a] == topology->host_of[b];
}

/* The number of a rank among the ranks of its host. */
static inline int topology_local_rank(const struct topology *topology, int rank)
{
    return topology->place_of[rank] - topology->first[topology->host_of[rank]];
}

static inline int topology_local_size(const struct topology *topology, int rank)
{
    return topology_host_size(topology, topology->host_of[rank]);
}

/* The number of a rank among the ranks with the same local rank, one on each host that has that many; and how
 * many these are. */
int topology_cross_rank(const struct topology *topology, int rank);
int topology_cross_size(const struct topology *topology, int rank);

/* Returns true if all hosts have the same number of ranks. */
bool topology_is_homogeneous(const struct topology *topology);

#endif
