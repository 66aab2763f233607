/* utf8.h - recognizes characters of UTF-8 in text that may be any bytes. No state; any thread. */
#ifndef HVD_LAUNCH_UTF8_H
#define HVD_LAUNCH_UTF8_H

#include <stddef.h>

/* Returns the number of bytes of the character, or 0 if it is no UTF-8: cut, longer than it needs to be, half
 * of a surrogate pair, or beyond Unicode. The text ends with a NUL. */
size_t utf8_length(const char *text);

#endif
