/* bounded_call.h - a function that may hang is run in a thread of its own, for which nobody waits longer than
 * a time limit, in ns (base/patience.h). A bounded call runs at most once at a time: one that hangs is not
 * started again. */
#ifndef HVD_ENGINE_BOUNDED_CALL_H
#define HVD_ENGINE_BOUNDED_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct bounded_call {
    void (*run)(void);
    atomic_uint state; /* 0: it has never run */
};

/* Returns true if it has run to its end. Otherwise no thread could be started, it still runs, or `stop`
 * became true. One thread at a time. */
bool bounded_call_run(struct bounded_call *bounded_call, int64_t time, const atomic_bool *stop);

/* Returns true if it does not run, at the latest after that time. */
bool bounded_call_wait(struct bounded_call *bounded_call, int64_t time, const atomic_bool *stop);

/* In a child of fork(), which does not have the thread. */
void bounded_call_forget(struct bounded_call *bounded_call);

#endif
