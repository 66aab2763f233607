/* sets.h - the process sets of a job, as user threads see them: ids and members. Set 0, which has all ranks,
 * is not in the table. Any thread. */
#ifndef HVD_ENGINE_SETS_H
#define HVD_ENGINE_SETS_H

#include "horovod.h"

#include <pthread.h>

struct process_set {
    int id;
    int rank; /* this rank's number in the set; -1: not a member */
    int size;
    int *ranks; /* of the job, ascending */
};

struct sets {
    pthread_mutex_t lock;
    struct process_set *list; /* ids ascending */
    int count, capacity;
};

void sets_init(struct sets *sets);
void sets_fini(struct sets *sets);

/* Copies the ranks, which are ascending. */
hvd_code sets_add(struct sets *sets, int id, const int *ranks, int size, int rank_of_job, hvd_status *status);
void sets_remove(struct sets *sets, int id); /* fine if there is no such set */

/* Finds the size of the set; *root, if not negative, becomes a rank of the set. Returns HVD_INVALID_ARGUMENT
 * if there is no such set, or this rank or the root is not a member. */
hvd_code sets_resolve(struct sets *sets, int id, int rank_of_job, int *root, int *size, hvd_status *status);

int sets_ids(struct sets *sets, int32_t *ids, int capacity); /* returns the number of sets */
int sets_ranks(struct sets *sets, int id, int32_t *ranks,
               int capacity); /* returns the size; -1: no such set */

void ranks_sort(int *ranks, int count);

/* Returns the index of a rank of the job among `size` ascending ones, or -1. */
int ranks_find(const int *ranks, int size, int rank_of_job);

#endif
