/* forked.c - see forked.h. The handlers are installed with the first use and stay. Any thread. */
#include "base/forked.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;
static struct forked_watch *watches;

/* The thread that forks takes the lock, and both sides of the fork give it back: the child finds the list
 * whole. */
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
    for (struct forked_watch *watch = watches; watch; watch = watch->next)
        watch->in_child(watch->owner);
    watches = NULL;
    pthread_mutex_unlock(&lock);
}

static void install(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void forked_lock(void)
{
    pthread_once(&install_once, install);
    pthread_mutex_lock(&lock);
}

void forked_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void forked_watch_add(struct forked_watch *watch)
{
    forked_lock();
    watch->next = watches;
    watches = watch;
    forked_unlock();
}

void forked_watch_remove(struct forked_watch *watch)
{
    forked_lock();
    struct forked_watch **at = &watches;
    while (*at && *at != watch)
        at = &(*at)->next;
    if (*at)
        *at = watch->next;
    forked_unlock();
}
