/* starter_watch.h - ends this process once its starter has ended, as the launcher's guard ends the ranks of
 * other jobs: a thread waits for the end of the connection to it. Any thread. */
#ifndef HVD_ENGINE_STARTER_WATCH_H
#define HVD_ENGINE_STARTER_WATCH_H

#include "horovod.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct starter_watch {
    /* Called when the connection has ended: whether this process needs its starter still. */
    bool (*needed)(void *owner);
    void *owner;
    double grace_seconds; /* from SIGTERM to SIGKILL */
    int poller, event;
    atomic_bool lost, closing;
    pid_t process; /* that has the thread; 0: none */
    pthread_t thread;
};

/* The first three members are set. `connection` is a socket. */
hvd_code starter_watch_open(struct starter_watch *watch, int connection, hvd_status *status);
/* Also of one that is not open: all zero. Waits for a call of `needed`. */
void starter_watch_close(struct starter_watch *watch);

/* Another thread has found that the connection has ended, and may have closed it. One that is not open is
 * fine. */
void starter_watch_report(struct starter_watch *watch);

#endif
