/* json.h - writes text as JSON (RFC 8259). No state; any thread. */
#ifndef HVD_LAUNCH_JSON_H
#define HVD_LAUNCH_JSON_H

#include <stdio.h>

/* Writes `"text"`. The text may be any bytes, as names of files and texts of exceptions are: what is
 * no UTF-8 becomes U+FFFD, so that every reader accepts the whole. */
void json_put_string(FILE *file, const char *text);

/* Writes `"name": "text"`. */
void json_put_text(FILE *file, const char *name, const char *text);

#endif
