/* thread.c - starts threads, holds off signals, and runs handlers in a child of fork(), which are installed
 * with the first use and stay. Any thread. */
#include "base/thread.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

int thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Far more than such a thread needs: the thread-local memory of all libraries is part of it, and the system
 * refuses a size only if that memory alone does not fit. Pages that are not touched take no memory. */
#define SMALL_STACK ((size_t)1 << 20)

int thread_start_small(pthread_t *thread, void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t small;
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, SMALL_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, &small, run, argument);
    if (error == EINVAL) {
        pthread_attr_setstacksize(&small, 8 * SMALL_STACK);
        error = pthread_create(thread, &small, run, argument);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
    return error;
}

struct held_signals signals_hold(void)
{
    struct held_signals held;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &held.before);
    return held;
}

void signals_release(const struct held_signals *held)
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

/* ---- fork --------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;
static struct atfork_handler *handlers;

/* The forking thread holds the lock across the fork, and both sides release it: the child's list is
 * consistent. */
static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    for (struct atfork_handler *handler = handlers, *next; handler; handler = next) {
        next = handler->next; /* the owner may clear the memory that holds the handler */
        handler->in_child(handler->owner);
    }
    handlers = NULL;
    pthread_mutex_unlock(&lock);
}

static void install(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void atfork_lock(void)
{
    pthread_once(&install_once, install);
    pthread_mutex_lock(&lock);
}

void atfork_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void atfork_add(struct atfork_handler *handler)
{
    atfork_lock();
    handler->next = handlers;
    handlers = handler;
    atfork_unlock();
}

void atfork_remove(struct atfork_handler *handler)
{
    atfork_lock();
    struct atfork_handler **at = &handlers;
    while (*at && *at != handler)
        at = &(*at)->next;
    if (*at)
        *at = handler->next;
    atfork_unlock();
}
