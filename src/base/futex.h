/* futex.h - sleep on a 32-bit word until another thread of this process changes and wakes it. */
#ifndef HVD_BASE_FUTEX_H
#define HVD_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == expected, until woken or `deadline` (clock_now's; CLOCK_NEVER); may wake for no
 * reason. */
void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_all(atomic_uint *word);

#endif
