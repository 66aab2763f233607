/* blocking.h - brackets the engine's blocking calls, which run without the GIL. They return early for a
 * signal or a shutdown, and all of them have returned before the context is freed. Any Python thread calls
 * these functions, with the GIL held except for blocking_end and blocking_interrupted. */
#ifndef HVD_BIND_BLOCKING_H
#define HVD_BIND_BLOCKING_H

#include "bind/python.h"
#include "horovod.h"

#include <stdbool.h>

/* blocking_begin releases the GIL before a blocking call, and blocking_end acquires it again afterwards.
 * Begin returns false and keeps the GIL while a shutdown is under way; then the caller must neither block nor
 * call blocking_end. */
bool blocking_begin(void);
void blocking_end(void);

/* Sets a ValueError for a call that blocking_begin refused. */
void blocking_refuse(void);

/* Sleeps for two milliseconds without the GIL. */
void blocking_pause(void);

/* How often a call that waits without the GIL lets Python run the handlers of signals. */
#define BLOCKING_SIGNAL_SECONDS 0.1
/* Seconds of a clock that only rises. Any thread. */
double blocking_now(void);

/* Is the function for hvd_config_set_interrupt, which the engine calls without the GIL between blocking_begin
 * and blocking_end. Returns not 0 if the handler of a signal has raised, or if a shutdown waits for the call.
 */
int blocking_interrupted(void *unused);

/* Sets *context to NULL, interrupts the blocking calls of other threads, waits until they have returned, and
 * passes the context to hvd_shutdown. If this thread itself is inside a blocking call, below the handler of a
 * signal, the blocking_end of that call waits and shuts down. Does nothing while another shutdown is under
 * way. */
void blocking_shut_down(hvd_context **context);

/* Is called in a child of fork(): discards the calls of the parent's other threads, which do not exist here.
 */
void blocking_forget_threads(void);

#endif
