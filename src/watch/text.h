/* text.h - text in a writer that grows (base/wire.h), and its escapes in JSON. One thread at a time. */
#ifndef HVD_WATCH_TEXT_H
#define HVD_WATCH_TEXT_H

#include "base/wire.h"

void text_add(struct wire_writer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As the inside of a JSON string: quotes, backslashes and control characters escaped; what is not UTF-8
 * becomes U+FFFD. */
void text_add_escaped(struct wire_writer *text, const char *bytes, size_t length);

#endif
