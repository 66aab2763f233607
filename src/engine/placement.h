/* placement.h - the topology of a job: every rank publishes at the rendezvous on which host it is, and the
 * settings that must be equal on all ranks; rank 0 compares them, and publishes the table for all ranks, or
 * the first difference. So all ranks have the same table, or end with the same error. No state. */
#ifndef HVD_ENGINE_PLACEMENT_H
#define HVD_ENGINE_PLACEMENT_H

#include "base/settings.h"
#include "base/topology.h"
#include "base/wire.h"
#include "horovod.h"
#include "rendezvous/client.h"

/* Called by the thread that joins the job. `client` is NULL for a job of one rank. The text of HVD_TIMED_OUT
 * names ranks that are missing, that of HVD_INVALID_ARGUMENT the ranks that differ, and their values. */
hvd_code placement_agree(struct rendezvous_client *client, const struct settings *settings, int64_t deadline,
                         struct topology *topology, hvd_status *status);

/* ---- the messages, which any thread may encode and decode ---------------------------------------------- */

#define RELEASE_LIMIT 32

/* The numbers are local rank and size, cross rank and size; -1: not in the rank's environment. */
enum { PLACEMENT_NUMBERS = 4 };

/* What a rank publishes. */
struct claim {
    char release[RELEASE_LIMIT];
    int size, fanout;
    bool mpi;        /* MPI moves the bytes */
    bool host_given; /* HOROVOD_HOST_ID names the host */
    char host[TOPOLOGY_HOST_LIMIT];
    int numbers[PLACEMENT_NUMBERS];
    int label; /* the number of its host, once all claims have arrived */
};

void claim_encode(struct wire_writer *writer, const struct claim *claim);
/* Reads only the release if it is another one. Returns false if the bytes are malformed. */
bool claim_decode(struct claim *claim, const uint8_t *bytes, size_t length);
/* HVD_INVALID_ARGUMENT: a setting that must be equal on all ranks differs; the text names both ranks. */
hvd_code claim_compare(const struct claim *first, const struct claim *other, int rank, hvd_status *status);
/* Makes the topology from the claims of all ranks, which compare equal. */
hvd_code claims_make_topology(struct claim *claims, int size, struct topology *topology, hvd_status *status);

/* Rank 0 publishes the topology, or the problem if that has a code. */
void verdict_encode(struct wire_writer *writer, const struct topology *topology, const hvd_status *problem);
/* Returns the problem if rank 0 published one. HVD_REFUSED: the bytes are malformed. */
hvd_code verdict_decode(const uint8_t *bytes, size_t length, int size, struct topology *topology,
                        hvd_status *status);

#endif
