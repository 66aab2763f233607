/* staging.h - collectives of tensors that the host can't reach. Their steps run on host memory: the input is
 * copied there before the first step, the output is copied to the tensors after the last one. The other files
 * of this folder, and all transports, know host memory only. Only the thread that makes progress calls it.
 *
 * Each byte crosses to the host once and back once, the least possible. */
#ifndef HVD_COLL_STAGING_H
#define HVD_COLL_STAGING_H

#include "coll/collective.h"
#include "horovod.h"

/* Replaces the collective's vectors by host memory; does nothing if they are host memory already
 * (collective->memory is NULL). */
hvd_code staging_begin(struct collective *collective, hvd_status *status);

/* Continues copying the input; HVD_IN_PROGRESS: call again; HVD_OK: the steps may run, as always without
 * staging. */
hvd_code staging_copy_input(struct collective *collective, hvd_status *status);

/* Continues copying the output after the last step; HVD_OK: the tensors have it. */
hvd_code staging_copy_output(struct collective *collective, hvd_status *status);

/* Waits for running copies and frees host memory: the collective's vectors must no longer be used. Does
 * nothing without staging. */
void staging_end(struct collective *collective);

#endif
