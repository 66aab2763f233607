/* thread.h - starts threads of the engine, blocks signals in the calling thread, and runs handlers in a child
 * of fork(). Any thread. */
#ifndef HVD_BASE_THREAD_H
#define HVD_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* 0, or an errno value. Signals are the program's: the thread inherits that all are blocked. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* The same with a small stack, for a thread that mostly sleeps. */
int thread_start_small(pthread_t *thread, void *(*run)(void *), void *argument);

/* Around a system call that creates or writes a file: no signal interrupts it, and neither SIGXFSZ (past
 * `ulimit -f`) nor SIGPIPE (no reader) ends the process. */
struct held_signals {
    sigset_t before;
};

struct held_signals signals_hold(void);
/* The call has returned EFBIG or EPIPE, so its signal is redundant. */
void signals_release(const struct held_signals *held);

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
