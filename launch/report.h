/* report.h - --report: one HTML file that says after the end how a job went (live.html). In the launcher; one
 * thread, the loop's. */
#ifndef HVD_LAUNCH_REPORT_H
#define HVD_LAUNCH_REPORT_H

#include "faults.h"
#include "sampler.h"

/* Finds out before the job starts whether the file can be written at its end. */
hvd_code report_check(const char *path, hvd_status *status);

/* Writes it, and says where it is. An error is reported and changes nothing for the job. */
void report_write(struct sampler *sampler, const struct outcome *outcome);

#endif
