/* document.h - live.html, which CMake has compiled in. No state; any thread. */
#ifndef HVD_LAUNCH_DOCUMENT_H
#define HVD_LAUNCH_DOCUMENT_H

#include <stdio.h>

/* What its Content-Security-Policy allows in addition to nothing. */
extern const char document_policy[];

/* Writes the document. `data` is the JSON that it shows; NULL: it asks the server that has sent it. */
void document_write(FILE *file, const char *data);

#endif
