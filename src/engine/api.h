/* api.h - a config of include/horovod.h, for api.c and for tests that have back ends of their own. One thread
 * at a time. */
#ifndef HVD_ENGINE_API_H
#define HVD_ENGINE_API_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

struct backend;

struct hvd_config {
    struct settings settings;
    struct interrupt interrupt;
    const void *mpi_comm;                  /* the address of an MPI_Comm, or NULL */
    const struct backend *const *backends; /* NULL: backend_table */
};

#endif
