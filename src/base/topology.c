/* topology.c - numbers hosts and places from the ranks' labels. No state; any thread. */
#include "base/topology.h"

#include "base/platform_process.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void topology_own_host(const char *given, char *text, size_t capacity)
{
    if (*given)
        snprintf(text, capacity, "%s", given);
    else
        platform_host_identity(text, capacity);
}

void topology_own_system(const char *given, char *text, size_t capacity)
{
    platform_system_identity(text, capacity);
    size_t length = strlen(text);
    if (*given && (strncmp(given, text, length) != 0 || given[length] != '/'))
        snprintf(text, capacity, "%s", given);
}

static int count_labels(const int *labels, int size)
{
    int count = 0;
    for (int rank = 0; rank < size; rank++)
        count = labels[rank] >= count ? labels[rank] + 1 : count;
    return count;
}

/* A counting sort of the ranks by host; first[host + 1] is where the host's next rank goes meanwhile. */
static void order_ranks(struct topology *topology)
{
    int *next = topology->first + 1;
    for (int rank = 0; rank < topology->size; rank++)
        if (topology->host_of[rank] + 1 < topology->hosts)
            next[topology->host_of[rank] + 1]++;
    for (int host = 1; host < topology->hosts; host++)
        next[host] += next[host - 1];
    for (int rank = 0; rank < topology->size; rank++) {
        int place = next[topology->host_of[rank]]++;
        topology->place_of[rank] = place;
        topology->rank_at[place] = rank;
    }
}

hvd_code topology_init(struct topology *topology, const int *labels, int size, hvd_status *status)
{
    size_t ranks = (size_t)size;
    int *numbers = calloc((size_t)count_labels(labels, size) + 1, sizeof *numbers);
    int *block = calloc(4 * ranks + 1, sizeof *block);
    if (!numbers || !block) {
        free(numbers);
        free(block);
        return status_no_memory(status);
    }
    *topology = (struct topology){.size = size,
                                  .host_of = block,
                                  .place_of = block + ranks,
                                  .rank_at = block + 2 * ranks,
                                  .first = block + 3 * ranks};
    /* Hosts are numbered in the order in which their labels first appear; 0: the label has not yet appeared.
     */
    for (int rank = 0; rank < size; rank++) {
        int *number = &numbers[labels[rank]];
        if (!*number)
            *number = ++topology->hosts;
        topology->host_of[rank] = *number - 1;
    }
    order_ranks(topology);
    free(numbers);
    return HVD_OK;
}

hvd_code topology_subset(struct topology *subset, const struct topology *topology, const int *ranks, int size,
                         hvd_status *status)
{
    int *labels = calloc((size_t)size, sizeof *labels);
    if (!labels)
        return status_no_memory(status);
    for (int i = 0; i < size; i++)
        labels[i] = topology->host_of[ranks[i]];
    hvd_code code = topology_init(subset, labels, size, status);
    free(labels);
    return code;
}

void topology_free(struct topology *topology)
{
    free(topology->host_of);
    *topology = (struct topology){0};
}

static int count_hosts_with(const struct topology *topology, int hosts, int local_rank)
{
    int count = 0;
    for (int host = 0; host < hosts; host++)
        count += topology_host_size(topology, host) > local_rank;
    return count;
}

int topology_cross_rank(const struct topology *topology, int rank)
{
    return count_hosts_with(topology, topology->host_of[rank], topology_local_rank(topology, rank));
}

int topology_cross_size(const struct topology *topology, int rank)
{
    return count_hosts_with(topology, topology->hosts, topology_local_rank(topology, rank));
}

bool topology_is_homogeneous(const struct topology *topology)
{
    for (int host = 1; host < topology->hosts; host++)
        if (topology_host_size(topology, host) != topology_host_size(topology, 0))
            return false;
    return true;
}
