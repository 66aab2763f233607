/* steps.h - what steps.c knows of the steps of training, which the program and its optimizers report. Any
 * thread. */
#ifndef HVD_ENGINE_STEPS_H
#define HVD_ENGINE_STEPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { STEP_SOURCES = 16 };

struct steps {
    atomic_bool expected; /* an optimizer will report steps, or has */
    pthread_mutex_t lock; /* protects the members below, and the steps in the page */
    uint64_t count;
    int64_t number;                 /* of the last one; 0: there is none */
    uint64_t sources[STEP_SOURCES]; /* which have reported since the last step was counted, it included */
    int source_count;
    uint64_t others; /* reports since then by sources for which there was no place */
    uint64_t other;  /* one of those sources; valid if there are any */
};

#endif
