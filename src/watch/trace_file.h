/* trace_file.h - a file that holds a whole JSON array after every write: each one overwrites the closing
 * bracket of the one before. One thread at a time. */
#ifndef HVD_WATCH_TRACE_FILE_H
#define HVD_WATCH_TRACE_FILE_H

#include "horovod.h"

#include <stddef.h>
#include <sys/types.h>

struct trace_file {
    int descriptor;
    off_t end; /* where the closing bracket stands */
};

/* Makes the file, or empties it, and writes the first element. */
hvd_code trace_file_open(struct trace_file *file, const char *path, const char *element, hvd_status *status);

/* Appends `text`, which is elements that each have a comma in front. Returns 0, or the errno; then the file
 * is still what it was before. */
int trace_file_append(struct trace_file *file, const void *text, size_t length);

void trace_file_close(struct trace_file *file);

#endif
