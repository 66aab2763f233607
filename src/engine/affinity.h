/* affinity.h - binds the progress thread to a core (HOROVOD_THREAD_AFFINITY). */
#ifndef HVD_ENGINE_AFFINITY_H
#define HVD_ENGINE_AFFINITY_H

/* Cores by local rank: the one of `local_rank`, or -1 when the list makes no sense or has less than
 * `local_size` entries. */
int affinity_core(const char *list, int local_rank, int local_size);

/* Binds the calling thread when `list` is not empty. A list that can't be followed is an error in the log,
 * and the thread runs anywhere. */
void affinity_apply(const char *list, int rank, int local_rank, int local_size);

#endif
