/* errand.h - a function that may hang is run in a thread of its own, for which nobody waits longer than until
 * a deadline. An errand runs at most once at a time: one that hangs is not started again. */
#ifndef HVD_ENGINE_ERRAND_H
#define HVD_ENGINE_ERRAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct errand {
    void (*run)(void);
    atomic_uint state; /* 0: it has never run */
};

/* Returns true if it has run to its end. Otherwise no thread could be started, it still runs, or `stop`
 * became true. One thread at a time. */
bool errand_run(struct errand *errand, int64_t deadline, const atomic_bool *stop);

/* Returns true if it does not run, at the latest at the deadline. */
bool errand_wait(struct errand *errand, int64_t deadline, const atomic_bool *stop);

/* In a child of fork(), which does not have the thread. */
void errand_forget(struct errand *errand);

#endif
