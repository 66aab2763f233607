/* stacks.h - reads the Python frames of this process for the engine (hvd_set_stack_source). */
#ifndef HVD_BIND_STACKS_H
#define HVD_BIND_STACKS_H

/* From here on the engine may ask for frames. Called before each hvd_init; a failure leaves it without. With
 * the GIL held. */
void stacks_provide(void);

/* In a child of fork(): the parent writes to the file that both have. */
void stacks_forget_file(void);

/* 0, or -1 with an exception set. */
int stacks_init_module(void);

#endif
