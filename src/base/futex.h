/* futex.h - a thread sleeps until a word changes. Any thread. */
#ifndef HVD_BASE_FUTEX_H
#define HVD_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word == expected, until a wake-up from this process or `deadline` (clock_now's; CLOCK_NEVER);
 * may return without either. */
void futex_wait(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_all(atomic_uint *word);
/* The same of a word in memory that processes share. */
void futex_wait_shared(atomic_uint *word, unsigned expected, int64_t deadline);
void futex_wake_shared(atomic_uint *word);

#endif
