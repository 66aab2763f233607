/* nontemporal.h - copying with stores that bypass the caches. No state; any thread. */
#ifndef HVD_BASE_NONTEMPORAL_H
#define HVD_BASE_NONTEMPORAL_H

#include <stddef.h>

/* As memcpy; a store with release order after it publishes the bytes. It is memcpy itself if the processor
 * has no such stores. */
void nontemporal_copy(void *to, const void *from, size_t length);

#endif
