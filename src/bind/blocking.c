/* blocking.c - counts the blocking calls that are under way, and delays a shutdown until all of them have
 * returned. Any Python thread calls these functions. All variables change only with the GIL held. */
#include "bind/blocking.h"

#include "bind/in_flight.h"
#include "native/entry.h"

#include <time.h>

static int calls;                           /* the number of blocking calls under way, in all threads */
static _Thread_local int own_calls;         /* the number of this thread's; they nest in signal handlers */
static _Thread_local PyThreadState *thread; /* with it this thread acquires the GIL again */

static bool shutting_down;
static _Thread_local bool deferred; /* this thread shuts down when its outermost call returns */
static hvd_context *closing;        /* the context to shut down; NULL if an hvd_init may still create it */
static hvd_context **holder; /* the variable that held it, into which an hvd_init under way puts its own */

double blocking_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void blocking_pause(void)
{
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    Py_END_ALLOW_THREADS;
}

static void shut_down(void)
{
    PyObject *type, *value, *traceback; /* a signal's handler may have raised */
    PyErr_Fetch(&type, &value, &traceback);
    while (calls > 0)
        blocking_pause();
    if (!closing) { /* an hvd_init in another thread may have succeeded before it noticed the interrupt */
        closing = *holder;
        *holder = NULL;
    }
    Py_BEGIN_ALLOW_THREADS; /* a kernel that holds the context may call Python */
    entry_close();
    hvd_shutdown(closing);
    Py_END_ALLOW_THREADS;
    closing = NULL;
    shutting_down = false;
    in_flight_reclaim();
    PyErr_Restore(type, value, traceback);
}

void blocking_shut_down(hvd_context **context)
{
    if (shutting_down)
        return;
    shutting_down = true;
    holder = context;
    closing = *context;
    *context = NULL; /* no other thread may find a context that is about to be freed */
    if (own_calls)
        deferred = true;
    else
        shut_down();
}

bool blocking_begin(void)
{
    if (shutting_down)
        return false;
    calls++;
    own_calls++;
    thread = PyEval_SaveThread();
    return true;
}

void blocking_end(void)
{
    PyEval_RestoreThread(thread);
    calls--;
    own_calls--;
    if (deferred && !own_calls) {
        deferred = false;
        shut_down();
    }
}

void blocking_refuse(void)
{
    PyErr_SetString(PyExc_ValueError, "Horovod is being shut down by another thread");
}

int blocking_interrupted(void *Py_UNUSED(unused))
{
    PyEval_RestoreThread(thread);
    bool interrupted = PyErr_CheckSignals() || shutting_down;
    thread = PyEval_SaveThread();
    return interrupted;
}

void blocking_forget_threads(void)
{
    calls = own_calls;
    shutting_down = deferred;
}
