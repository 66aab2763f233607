/* status_trace.h - horovodrun --status --timeline: writes what all ranks of a running job did in its last
 * steps. One thread. */
#ifndef HVD_LAUNCH_STATUS_TRACE_H
#define HVD_LAUNCH_STATUS_TRACE_H

#include "job_view.h"
#include "options.h"

/* Writes the file of the options. `asks`: the launcher of the job answers, and knows all hosts. The text gets
 * what was written. */
hvd_code status_trace_write(const struct options *options, const struct job_view *job_view, bool asks,
                            char *text, size_t capacity, hvd_status *status);

#endif
