/* hosts.h - the hosts that the user or a batch system names, and the place of each rank on them. One thread.
 */
#ifndef HVD_LAUNCH_HOSTS_H
#define HVD_LAUNCH_HOSTS_H

#include "base/topology.h"
#include "bootstrap/starters.h"
#include "horovod.h"

#include <stdbool.h>

#define HOST_TITLE 384 /* bytes of name, user and port */

struct nodes;

struct host {
    char name[256];  /* without user and port */
    char user[64];   /* "": ssh's choice */
    int port;        /* of its sshd; 0: ssh's choice */
    bool local;      /* this host, which needs no ssh */
    int64_t slots;   /* ranks that may run there */
    int ranks;       /* ranks that do, by hosts_layout */
    int64_t ahead;   /* elastic jobs: by how much its clock was ahead when its connection ended */
    bool complained; /* elastic jobs: why it can't be used has been reported */
    char identity[TOPOLOGY_HOST_LIMIT + 24]; /* elastic jobs: equal for entries that are one host */
};

/* The place of one rank; names as in the environment of ranks (HOROVOD_LOCAL_RANK, ...). */
struct place {
    int host; /* its index */
    int rank, local_rank, local_size, cross_rank, cross_size;
};

struct hosts { /* zeroed memory is a valid empty one */
    struct host *list;
    int count;
    struct place *places; /* [size] by rank */
    int size;
    char source[128];    /* "Slurm job 17": the allocation that they are from; or "" */
    int64_t slots;       /* of an entry that says none; 0: one in files, and -H must say them */
    bool by_srun;        /* they are reached by Slurm's srun */
    bool apart;          /* names of this host are different entries */
    struct nodes *nodes; /* connections to the nodes that the hosts are (nodes.h); or NULL */
};

hvd_code hosts_parse(struct hosts *hosts, const char *list, hvd_status *status); /* "a:2,me@b:4,[::1]:2" */
hvd_code hosts_read_file(struct hosts *hosts, const char *path, hvd_status *status); /* "a slots=2" */
/* Reads the hosts of the batch system's allocation in which this process runs, or of the host file that a
 * variable of an MPI names, if there is one. */
hvd_code hosts_read_allocation(struct hosts *hosts, const struct variables *variables, hvd_status *status);
/* Adds a host; `source` is for texts. */
hvd_code hosts_add(struct hosts *hosts, const char *name, int64_t slots, const char *source,
                   hvd_status *status);
/* Adds the host of one line, "name:slots" or "name" with `slots` (0: it must say them); changes the line. */
hvd_code hosts_add_line(struct hosts *hosts, char *line, int64_t slots, const char *source,
                        hvd_status *status);
/* Adds an entry as it is, behind all others. */
hvd_code hosts_append(struct hosts *hosts, const struct host *host, hvd_status *status);
/* Finds the entry of the same name, user and port; NULL: there is none. */
const struct host *hosts_find(const struct hosts *hosts, const struct host *host);
void hosts_free(struct hosts *hosts);

/* Gives `wanted` ranks (0: as many as there are slots) their places, host by host in the given order. Without
 * any host all are on this one. May be called again after hosts_merge. */
hvd_code hosts_layout(struct hosts *hosts, int64_t wanted, hvd_status *status);

/* Names the host as the user has, but this one by its own name. */
void host_title(const struct host *host, char *name, size_t capacity);

/* Merges two entries that mean one host: the later one is removed, and its slots are added to those of the
 * earlier one. */
void hosts_merge(struct hosts *hosts, int earlier, int later);

#endif
