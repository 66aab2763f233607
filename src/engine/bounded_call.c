/* bounded_call.c - see bounded_call.h. */
#include "engine/bounded_call.h"

#include "base/futex.h"
#include "base/patience.h"
#include "base/thread.h"

enum { BOUNDED_CALL_DONE = 1, BOUNDED_CALL_RUNS = 2 };

static void *run(void *argument)
{
    struct bounded_call *bounded_call = argument;
    bounded_call->run();
    atomic_store(&bounded_call->state, BOUNDED_CALL_DONE);
    futex_wake_all(&bounded_call->state);
    return NULL;
}

bool bounded_call_wait(struct bounded_call *bounded_call, int64_t time, const atomic_bool *stop)
{
    struct patience patience = patience_of(time);
    while (atomic_load(&bounded_call->state) == BOUNDED_CALL_RUNS && !atomic_load(stop) &&
           !patience_ends(&patience))
        futex_wait(&bounded_call->state, BOUNDED_CALL_RUNS,
                   clock_now() + clock_earlier(patience.left, PATIENCE_STEP / 2));
    return atomic_load(&bounded_call->state) != BOUNDED_CALL_RUNS;
}

/* Its stack is as large as that of any thread: audit hooks of a program run in it (src/bind/stacks.c). */
bool bounded_call_run(struct bounded_call *bounded_call, int64_t time, const atomic_bool *stop)
{
    pthread_t thread;
    if (atomic_load(&bounded_call->state) == BOUNDED_CALL_RUNS)
        return false;
    atomic_store(&bounded_call->state, BOUNDED_CALL_RUNS);
    if (thread_start(&thread, run, bounded_call)) {
        atomic_store(&bounded_call->state, BOUNDED_CALL_DONE);
        return false;
    }
    pthread_detach(thread);
    return bounded_call_wait(bounded_call, time, stop);
}

void bounded_call_forget(struct bounded_call *bounded_call)
{
    atomic_store(&bounded_call->state, 0);
}
