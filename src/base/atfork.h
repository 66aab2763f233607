/* atfork.h - what a child of fork() must not keep, and the one process-wide lock that is never in another
 * thread's hands at the moment of a fork. */
#ifndef HVD_BASE_ATFORK_H
#define HVD_BASE_ATFORK_H

/* in_child is called in the child, under the lock; the watch is forgotten then. */
struct atfork_handler {
    void (*in_child)(void *owner);
    void *owner;
    struct atfork_handler *next;
};

void atfork_add(struct atfork_handler *watch);
void atfork_remove(struct atfork_handler *watch); /* one that is not there is fine */

/* Held for moments only; not to be taken twice. */
void atfork_lock(void);
void atfork_unlock(void);

#endif
