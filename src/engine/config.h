/* config.h - what a context is opened with: the settings, and what is none. One thread at a time. */
#ifndef HVD_ENGINE_CONFIG_H
#define HVD_ENGINE_CONFIG_H

#include "base/clock.h"
#include "base/settings.h"
#include "base/topology.h"
#include "rendezvous/rendezvous.h"

struct backend;

struct hvd_config {
    struct settings settings;
    struct interrupt interrupt;
    const void *mpi_comm;                  /* the address of an MPI_Comm, or NULL */
    const struct backend *const *backends; /* NULL: backend_table; tests give others */
};

/* ---- subset ----------------------------------------------------------------------------------------------
 * A job of some of the ranks that the launcher has started. */

/* When settings->ranks lists ranks, they alone form the job: this rank's number in it, the size and the job's
 * name become those of the listed ranks. HVD_INVALID_ARGUMENT when this rank is not among them. */
hvd_code subset_apply(struct settings *settings, hvd_status *status);

/* ---- placement -------------------------------------------------------------------------------------------
 * The topology of a job: every rank publishes at the rendezvous on which host it is, with what
 * must be equal on all ranks; rank 0 compares, and publishes the table for all, or the first difference. So
 * all ranks hold the same table, or end with the same error. In the thread that joins the job. */

/* `client` is NULL for a job of one rank. HVD_TIMED_OUT names ranks that are missing, HVD_INVALID_ARGUMENT
 * the ranks that differ, and their values. */
hvd_code placement_agree(struct rendezvous_client *client, const struct settings *settings, int64_t deadline,
                         struct topology *topology, hvd_status *status);

#endif
