/* staging.h - collectives of tensors that the host can't reach. Their steps run on host memory: the input is
 * copied there before the first step, the output is copied to the tensors after the last one. Nothing else in
 * this folder, and no transport, knows of any memory but the host's. One thread at a time, as execute.h.
 *
 * Each byte crosses to the host once and back once, which no way of moving single steps does better. */
#ifndef HVD_COLL_STAGING_H
#define HVD_COLL_STAGING_H

#include "coll/collective.h"
#include "horovod.h"

/* Replaces the collective's vectors by host memory; does nothing where they are host memory already
 * (collective->memory is NULL). */
hvd_code staging_begin(struct collective *collective, hvd_status *status);

/* Moves the input on; HVD_IN_PROGRESS: call again; HVD_OK: the steps may run. Fine without staging. */
hvd_code staging_take_input(struct collective *collective, hvd_status *status);

/* After the last step: moves the output on; HVD_OK: it lies in the tensors. */
hvd_code staging_give_output(struct collective *collective, hvd_status *status);

/* Waits for copies under way; the collective's vectors must not be used any more. Fine without staging. */
void staging_end(struct collective *collective);

#endif
