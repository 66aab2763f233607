/* append.h - texts that are put together piece by piece. Pure; any thread. */
#ifndef HVD_BASE_APPEND_H
#define HVD_BASE_APPEND_H

#include <stddef.h>

/* Puts behind the text in `text`, which has room for `capacity` bytes, as much as fits. */
void append_text(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
