/* text.h - text that grows, and its escapes in JSON. One thread at a time. */
#ifndef HVD_WATCH_TEXT_H
#define HVD_WATCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text { /* zeroed memory is a valid empty text */
    char *bytes;
    size_t length, capacity;
    bool failed; /* memory ran out while adding */
};

void text_free(struct text *text);
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As the inside of a JSON string: quotes, backslashes and control characters escaped; what is not UTF-8
 * becomes U+FFFD. */
void text_add_escaped(struct text *text, const char *bytes, size_t length);

#endif
