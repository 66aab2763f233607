/* pmi.h - PMI-1, the text protocol between a process manager and its processes. The connection is also that
 * of the MPI library in this process, which may use it before and after. Blocks, with deadlines; one thread
 * at a time. */
#ifndef HVD_BOOTSTRAP_PMI_H
#define HVD_BOOTSTRAP_PMI_H

#include "base/clock.h"
#include "horovod.h"

#include <stdbool.h>

#define PMI_VALUE_LIMIT 1024 /* with the NUL; no blanks or newlines */

/* Sends the value of rank 0 (`text` there) to all ranks; each must call this once. */
hvd_code pmi_broadcast(int fd, bool own, char text[PMI_VALUE_LIMIT], int64_t deadline,
                       const struct interrupt *interrupt, hvd_status *status);
/* Called before the process ends; otherwise, or if the process ends before the answer, the process manager
 * reports a crash. Fine when the MPI library has done so. */
void pmi_finalize(int fd);

#endif
