/* pages.h - memory that many requests at once make large for a moment. From PAGES_LEAST on it is pages of
 * their own, which go back to the system at once; below it is malloc's, which keeps what it has. */
#ifndef HVD_BASE_PAGES_H
#define HVD_BASE_PAGES_H

#include <stddef.h>

#define PAGES_LEAST ((size_t)8 << 10)

void *pages_take(size_t bytes);              /* not zeroed; NULL when memory is out */
void pages_give(void *memory, size_t bytes); /* as many as were taken; NULL is fine */
/* As realloc: NULL when memory is out, and all is as before. */
void *pages_resize(void *memory, size_t bytes, size_t wanted);

#endif
