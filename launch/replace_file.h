/* replace_file.h - writes a file as a whole: a reader sees the old text or the new one. No state; any thread.
 */
#ifndef HVD_LAUNCH_REPLACE_FILE_H
#define HVD_LAUNCH_REPLACE_FILE_H

#include "horovod.h"

/* Writes PATH.new and renames it. `what` names the option in an error: "--metrics-file". */
hvd_code replace_file(const char *what, const char *path, const char *text, size_t length,
                      hvd_status *status);

#endif
