/* atfork.h - handlers that run in the child of fork(), and a process-wide lock that is never held by another
 * thread at the moment of a fork (pthread_atfork). Any thread. */
#ifndef HVD_BASE_ATFORK_H
#define HVD_BASE_ATFORK_H

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
