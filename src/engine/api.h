/* api.h - what the files of public functions share, and tests that have back ends of their own use. */
#ifndef HVD_ENGINE_API_H
#define HVD_ENGINE_API_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

struct backend;

/* One thread at a time. */
struct hvd_config {
    struct settings settings;
    struct interrupt interrupt;
    const void *mpi_comm;                  /* the address of an MPI_Comm, or NULL */
    const struct backend *const *backends; /* NULL: backend_table */
};

/* Submits any request, also one that changes process sets. NULL: the handle is not wanted. Any thread. */
hvd_code api_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle,
                    hvd_status *status);

#endif
