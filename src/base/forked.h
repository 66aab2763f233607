/* forked.h - what a child of fork() must not keep, and the one process-wide lock that is never in another
 * thread's hands at the moment of a fork. */
#ifndef HVD_BASE_FORKED_H
#define HVD_BASE_FORKED_H

/* in_child is called in the child, under the lock; the watch is forgotten then. */
struct forked_watch {
    void (*in_child)(void *owner);
    void *owner;
    struct forked_watch *next;
};

void forked_watch_add(struct forked_watch *watch);
void forked_watch_remove(struct forked_watch *watch); /* one that is not there is fine */

/* Held for moments only; not to be taken twice. */
void forked_lock(void);
void forked_unlock(void);

#endif
