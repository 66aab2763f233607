/* replace_file.h - writes a file as a whole: a reader sees the old text or the new one. No state; any thread.
 */
#ifndef HVD_LAUNCH_REPLACE_FILE_H
#define HVD_LAUNCH_REPLACE_FILE_H

#include "horovod.h"

/* Creates PATH.new, whose name is put into `beside` [PATH_MAX], for writing. What has that name goes: a file
 * of a job that was killed, or a link or a FIFO that somebody has put there. Returns a descriptor, or -1 and
 * errno. */
int open_beside(const char *path, char *beside);

/* Writes PATH.new and renames it. `what` names the option in an error: "--metrics-file". */
hvd_code replace_file(const char *what, const char *path, const char *text, size_t length,
                      hvd_status *status);

#endif
