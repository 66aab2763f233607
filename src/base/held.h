/* held.h - hold signals off the calling thread while a system call creates or writes a file: none interrupts
 * it, and neither SIGXFSZ (past `ulimit -f`) nor SIGPIPE (nobody reads) ends the process. */
#ifndef HVD_BASE_HELD_H
#define HVD_BASE_HELD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

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

/* The call has returned EFBIG or EPIPE, so its signal says nothing new. */
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

#endif
