/* blocking.h - blocking calls, which run without the GIL, return early for a signal or a shutdown, and have
 * all returned before the context is freed. With the GIL held except where it says otherwise. */
#ifndef HVD_BIND_BLOCKING_H
#define HVD_BIND_BLOCKING_H

#include "bind/module.h"
#include "horovod.h"

#include <stdbool.h>

/* Around a blocking call: begin releases the GIL, end takes it again. False: a shutdown is under way, the GIL
 * is still held, and there must be no call and no end. */
bool blocking_begin(void);
void blocking_end(void);

/* Sets the exception for a call that blocking_begin refused. */
void blocking_refuse(void);

/* Sleeps for two milliseconds without the GIL. */
void blocking_pause(void);

/* For hvd_config_set_interrupt, called without the GIL between the two. Not 0: a signal's handler has raised,
 * or the call has to make way for a shutdown. */
int blocking_interrupted(void *unused);

/* Takes the context from *context, interrupts the blocking calls of other threads, waits until they have
 * returned, and calls hvd_shutdown. Where this thread itself is inside one, below a signal's handler, all
 * that happens in the blocking_end of that call. Does nothing while another shutdown is under way. */
void blocking_shut_down(hvd_context **context);

/* In a child of fork(): the parent's other threads do not exist here. */
void blocking_forget_threads(void);

#endif
