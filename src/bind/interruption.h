/* interruption.h - blocking calls of the engine run without the GIL and yet answer Ctrl-C. */
#ifndef HVD_BIND_INTERRUPTION_H
#define HVD_BIND_INTERRUPTION_H

/* Around a blocking call: both are called by the thread that makes it, with the GIL and without it. */
void interruption_allow(void);
void interruption_end(void);

/* For hvd_config_set_interrupt; the thread is between the two. Not 0: a signal's handler has raised. */
int interruption_asked(void *unused);

#endif
