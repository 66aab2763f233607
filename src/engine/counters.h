/* counters.h - what this rank has done, per process set and operation; always on, unlike the events of the
 * timeline. The progress thread and waiting callers add with relaxed atomics, any thread reads. */
#ifndef HVD_ENGINE_COUNTERS_H
#define HVD_ENGINE_COUNTERS_H

#include "base/types.h"

#include <pthread.h>
#include <stdatomic.h>

struct operation_counters {
    atomic_uint_fast64_t submitted, succeeded, failed, batches, bytes, wait_ns;
};

/* Of one process set. Removed sets keep theirs, so that totals never shrink. */
struct set_counters {
    int process_set;
    struct operation_counters operations[OPERATION_NUMBERS];
    struct set_counters *next;
};

struct counters {
    pthread_mutex_t lock; /* of the list; its elements never move */
    struct set_counters *first, *last;
};

void counters_init(struct counters *counters);
void counters_fini(struct counters *counters);

/* The counters of a process set, made when there are none yet; NULL when memory is out. */
struct set_counters *counters_of(struct counters *counters, int process_set);

static inline void counter_add(atomic_uint_fast64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

#endif
