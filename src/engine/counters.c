/* counters.c - see counters.h. */
#include "engine/counters.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/context.h"

#include <stdlib.h>

void counters_init(struct counters *counters)
{
    *counters = (struct counters){0};
    pthread_mutex_init(&counters->lock, NULL);
}

void counters_fini(struct counters *counters)
{
    while (counters->first) {
        struct set_counters *set = counters->first;
        counters->first = set->next;
        free(set);
    }
    pthread_mutex_destroy(&counters->lock);
}

struct set_counters *counters_of(struct counters *counters, int process_set)
{
    pthread_mutex_lock(&counters->lock);
    struct set_counters *set = counters->first;
    while (set && set->process_set != process_set)
        set = set->next;
    if (!set && (set = calloc(1, sizeof *set))) {
        set->process_set = process_set;
        *(counters->first ? &counters->last->next : &counters->first) = set;
        counters->last = set;
    }
    pthread_mutex_unlock(&counters->lock);
    return set;
}

static uint64_t get(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static hvd_counters read_counters(const struct set_counters *set, int operation)
{
    const struct operation_counters *from = &set->operations[operation];
    return (hvd_counters){.process_set = set->process_set,
                          .operation = (hvd_operation)operation,
                          .submitted = get(&from->submitted),
                          .succeeded = get(&from->succeeded),
                          .failed = get(&from->failed),
                          .batches = get(&from->batches),
                          .bytes = get(&from->bytes),
                          .wait_seconds = (double)get(&from->wait_ns) / CLOCK_SECOND};
}

int32_t hvd_get_counters(hvd_context *context, hvd_counters *rows, int32_t capacity)
{
    struct counters *counters = &context->counters;
    int32_t count = 0;
    if (atomic_load_explicit(&context->forked, memory_order_relaxed))
        return 0; /* the lock may be held by a thread that the child does not have */
    pthread_mutex_lock(&counters->lock);
    for (const struct set_counters *set = counters->first; set; set = set->next) {
        for (int operation = 0; operation < OPERATION_NUMBERS; operation++) {
            hvd_counters row = read_counters(set, operation);
            if (!row.submitted && !row.batches)
                continue;
            if (count < capacity)
                rows[count] = row;
            count++;
        }
    }
    pthread_mutex_unlock(&counters->lock);
    return count;
}
