/* pinned.h - page-locked memory of the host, which GPUs copy without the processor. Locking pages takes
 * milliseconds and may wait for the GPU, so blocks are kept for later use. The pages are ordinary ones of
 * this process, not of the driver, so that other ranks of the host can read them. Any thread. */
#ifndef HVD_DEVICE_PINNED_H
#define HVD_DEVICE_PINNED_H

#include <stddef.h>
#include <stdint.h>

#define PINNED_KEPT ((size_t)256 << 20) /* most bytes that are kept without a user */

/* Aligned to 64 bytes, and for all GPUs; the context of this one is opened. NULL: out of memory. */
void *pinned_allocate(int32_t device_id, size_t bytes);
void pinned_release(void *data);

/* Gives back what is kept. */
void pinned_trim(void);

/* Bytes that are kept; for tests. */
size_t pinned_kept(void);

#endif
