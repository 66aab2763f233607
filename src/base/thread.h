/* thread.h - start a thread of the engine's own. */
#ifndef HVD_BASE_THREAD_H
#define HVD_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* 0, or an errno value. Signals are the program's: the thread inherits that all are blocked. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
