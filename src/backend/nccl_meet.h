/* nccl_meet.h - opens the communicator of a process set for NCCL, in a thread of its own, since finding the
 * library and meeting the other ranks take long. All members agree through the rendezvous first: if one of
 * them lacks NCCL, or two of them use one GPU, none opens a communicator. */
#ifndef HVD_BACKEND_NCCL_MEET_H
#define HVD_BACKEND_NCCL_MEET_H

#include "backend/nccl_library.h"
#include "device/cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/* What the thread reads is set before nccl_meet_start, except `stops`; what it writes may be read once
 * `done`. */
struct nccl_meeting {
    const struct settings *settings;
    uint32_t generation;
    int set, rank, size; /* id of the process set; this rank in it */
    const int *ranks;
    int32_t device_id;
    int64_t deadline;

    pthread_t thread;
    atomic_bool stops, done;

    const struct nccl_library *library;
    ncclComm_t comm; /* NULL: none */
    /* HVD_OK; HVD_UNSUPPORTED: no member opens one, and the text, which is the same on all, says why;
     * otherwise the set-up has failed. */
    hvd_status status;
};

hvd_code nccl_meet_start(struct nccl_meeting *meeting, hvd_status *status);
/* Waits for the thread, which ends soon if `stops`. */
void nccl_meet_join(struct nccl_meeting *meeting);

/* "<what> failed: <NCCL's texts>" */
hvd_code nccl_failed(const struct nccl_library *library, ncclComm_t comm, ncclResult_t result, int rank,
                     const char *what, hvd_status *status);

#endif
