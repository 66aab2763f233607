/* metrics_file.h - the files of --metrics-file and --metrics-discovery, which a thread writes and removes: a
 * network file system that does not answer stops neither the job nor its end. The functions are for one
 * thread. */
#ifndef HVD_LAUNCH_METRICS_FILE_H
#define HVD_LAUNCH_METRICS_FILE_H

#include "horovod.h"

#include <stdbool.h>

struct metrics_file;

/* Writes a first text before it returns, so that a wrong path is an error here. HVD_TIMED_OUT: the file
 * system has not answered within 5 seconds. Errors name the option, which must stay. */
hvd_code metrics_file_open(const char *option, const char *path, const char *text, size_t length,
                           struct metrics_file **file, hvd_status *status);

/* Has a copy of the text written, unless the one before is still being written. */
hvd_code metrics_file_write(struct metrics_file *file, const char *text, size_t length, hvd_status *status);

/* Returns the outcome of the last text. HVD_TIMED_OUT: it is still being written. */
hvd_code metrics_file_outcome(struct metrics_file *file, hvd_status *status);

/* Removes the file unless it is kept. HVD_TIMED_OUT: after a second that is not done, and the thread is left
 * to itself. */
hvd_code metrics_file_close(struct metrics_file *file, bool keeps, hvd_status *status);

#endif
