/* stacks.h - a thread of each rank that answers another process's question for the rank's stack (see
 * watch/page_stack.h). It sleeps until there is one, and takes part in nothing else. */
#ifndef HVD_ENGINE_STACKS_H
#define HVD_ENGINE_STACKS_H

#include "base/settings.h"
#include "watch/page.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct stacks {
    struct page *page;
    pthread_t thread;
    bool runs;
    bool signals; /* a thread may be interrupted for its stack */
    atomic_bool stop;
    pid_t program; /* the thread that called hvd_init */
    unsigned last; /* the newest question that is none of this epoch */
};

/* Starts the thread, unless the setting or the page (memory of this process alone) says that there is no
 * question. */
hvd_code stacks_open(struct stacks *stacks, const struct settings *settings, const struct page_writer *writer,
                     hvd_status *status);
/* Ends it. Fine if it was never opened. */
void stacks_close(struct stacks *stacks);
/* In a child of fork(), which does not have the threads. */
void stacks_forget(void);

#endif
