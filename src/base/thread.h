/* thread.h - threads of the engine's own, and signals held off the calling thread. */
#ifndef HVD_BASE_THREAD_H
#define HVD_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

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

/* Around a system call that creates or writes a file: no signal interrupts it, and neither SIGXFSZ (past
 * `ulimit -f`) nor SIGPIPE (no reader) ends the process. */
struct held_signals {
    sigset_t before;
};

static inline struct held_signals signals_hold(void)
{
    struct held_signals held;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &held.before);
    return held;
}

/* The call has returned EFBIG or EPIPE, so its signal is redundant. */
static inline void signals_release(const struct held_signals *held)
{
    static const int of_writing[] = {SIGXFSZ, SIGPIPE};
    sigset_t dropped;
    sigemptyset(&dropped);
    for (int i = 0; i < 2; i++) {
        if (!sigismember(&held->before, of_writing[i]))
            sigaddset(&dropped, of_writing[i]);
    }
    sigtimedwait(&dropped, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}

/* ---- atfork ----------------------------------------------------------------------------------------------
 * Handlers that run in the child of fork(), and a process-wide lock that is never held by another
 * thread at the moment of a fork (pthread_atfork). Any thread. */

/* in_child is called in the child, with the lock held; the handler is removed then. */
struct atfork_handler {
    void (*in_child)(void *owner);
    void *owner;
    struct atfork_handler *next;
};

void atfork_add(struct atfork_handler *handler);
void atfork_remove(struct atfork_handler *handler); /* one that is not there is fine */

/* Held for moments only; not to be taken twice. */
void atfork_lock(void);
void atfork_unlock(void);

#endif
