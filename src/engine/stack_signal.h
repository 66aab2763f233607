/* stack_signal.h - takes the C stack of a thread of this process by a signal, HVD_STACK_SIGNAL. The handler
 * is installed while contexts are open, and only if the program has none for that signal. */
#ifndef HVD_ENGINE_STACK_SIGNAL_H
#define HVD_ENGINE_STACK_SIGNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One thread at a time calls these functions. */

void stack_signal_open(void);
void stack_signal_close(void);

/* Interrupts the thread; system calls that the kernel does not restart end early there. `also`, if not NULL,
 * is called by the handler, there. Returns the number of return addresses, the innermost first; 0: the
 * program has a handler of its own, the thread has ended or blocks the signal for that time, or `stop` became
 * true. */
int stack_signal_take(pid_t thread, void (*also)(int signal), void **addresses, int capacity, int64_t time,
                      const atomic_bool *stop);

/* In a child of fork(). */
void stack_signal_forget(void);

#endif
