/* stack_signal.c - see stack_signal.h. The handler relies on nothing that a thread may hold when it is
 * interrupted: backtrace() has been called before, so that it loads no library, and finds the tables for
 * unwinding without a lock (since glibc 2.35). */
#include "engine/stack_signal.h"

#include "base/futex.h"
#include "base/patience.h"
#include "horovod.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef HVD_NO_BACKTRACE
#include <execinfo.h>
#endif

enum { DEEPEST = 64, OWN_FRAMES = 2 }; /* of the handler, and of its return into the kernel */

enum { IDLE, WANTED, TAKING, TAKEN };

static struct {
    atomic_uint state; /* futex */
    _Atomic pid_t thread;
    void (*_Atomic also)(int signal);
    void *addresses[DEEPEST];
    int count;
} capture;

static void take(int signal)
{
    int error = errno;
    unsigned wanted = WANTED;
    if (atomic_load(&capture.thread) == (pid_t)syscall(SYS_gettid) &&
        atomic_compare_exchange_strong(&capture.state, &wanted, TAKING)) {
        void (*also)(int) = atomic_load(&capture.also);
        capture.count = backtrace(capture.addresses, DEEPEST);
        if (also)
            also(signal);
        atomic_store(&capture.state, TAKEN);
        futex_wake_all(&capture.state);
    }
    errno = error;
}

static bool is_handled_by(void (*handler)(int))
{
    struct sigaction current;
    return sigaction(HVD_STACK_SIGNAL, NULL, &current) == 0 && !(current.sa_flags & SA_SIGINFO) &&
           current.sa_handler == handler;
}

static void handle_by(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(HVD_STACK_SIGNAL, &action, NULL);
}

void stack_signal_open(void)
{
    void *address;
    if (!is_handled_by(SIG_DFL))
        return;
    backtrace(&address, 1);
    handle_by(take);
}

void stack_signal_close(void)
{
    if (!is_handled_by(take))
        return;
    handle_by(SIG_IGN); /* drops a signal that a thread has blocked, which would end the process otherwise */
    handle_by(SIG_DFL);
}

int stack_signal_take(pid_t thread, void (*also)(int signal), void **addresses, int capacity, int64_t time,
                      const atomic_bool *stop)
{
    unsigned state = atomic_load(&capture.state), wanted = WANTED;
    if (state == TAKING || !is_handled_by(take))
        return 0;
    atomic_store(&capture.thread, thread);
    atomic_store(&capture.also, also);
    atomic_store(&capture.state, WANTED);
    if (syscall(SYS_tgkill, getpid(), thread, HVD_STACK_SIGNAL) == 0) {
        struct patience patience = patience_of(time);
        while ((state = atomic_load(&capture.state)) != TAKEN && !atomic_load(stop) &&
               !patience_ends(&patience))
            futex_wait(&capture.state, state, clock_now() + clock_earlier(patience.left, PATIENCE_STEP / 2));
    }
    atomic_compare_exchange_strong(&capture.state, &wanted, IDLE);
    if (atomic_load(&capture.state) != TAKEN)
        return 0;
    int count = capture.count > OWN_FRAMES ? capture.count - OWN_FRAMES : 0;
    count = count < capacity ? count : capacity;
    memcpy(addresses, capture.addresses + OWN_FRAMES, (size_t)count * sizeof *addresses);
    return count;
}

void stack_signal_forget(void)
{
    atomic_store(&capture.state, IDLE);
}
