/* placement.h - the topology of a job: every rank publishes at the rendezvous on which host it is, with what
 * must be equal on all ranks; rank 0 compares, and publishes the table for all, or the first difference. So
 * all ranks hold the same table, or end with the same error. No state. */
#ifndef HVD_ENGINE_PLACEMENT_H
#define HVD_ENGINE_PLACEMENT_H

#include "base/settings.h"
#include "base/topology.h"
#include "base/wire.h"
#include "horovod.h"
#include "rendezvous/client.h"

/* In the thread that joins the job. `client` is NULL for a job of one rank. HVD_TIMED_OUT names ranks that
 * are missing, HVD_INVALID_ARGUMENT the ranks that differ, and their values. */
hvd_code placement_agree(struct rendezvous_client *client, const struct settings *settings, int64_t deadline,
                         struct topology *topology, hvd_status *status);

/* ---- the messages, which any thread may encode and decode ---------------------------------------------- */

#define RELEASE_LIMIT 32

/* Local rank and size, cross rank and size; -1: not in the rank's environment. */
enum { PLACEMENT_NUMBERS = 4 };

/* What a rank publishes. */
struct claim {
    char release[RELEASE_LIMIT];
    int size, fanout;
    bool mpi;        /* moves the bytes */
    bool host_given; /* by HOROVOD_HOST_ID, else found out */
    char host[TOPOLOGY_HOST_LIMIT];
    int numbers[PLACEMENT_NUMBERS];
    int label; /* of its host, once all claims are there */
};

void claim_encode(struct wire_writer *writer, const struct claim *claim);
/* Of another release only that is read. False: malformed. */
bool claim_decode(struct claim *claim, const uint8_t *bytes, size_t length);
/* HVD_INVALID_ARGUMENT: what must be equal on all ranks is not; the text names it and both ranks. */
hvd_code claim_compare(const struct claim *first, const struct claim *other, int rank, hvd_status *status);
/* The topology that the claims of all ranks make, which compare equal. */
hvd_code claims_settle(struct claim *claims, int size, struct topology *topology, hvd_status *status);

/* What rank 0 publishes: the topology, or the problem where that has a code. */
void verdict_encode(struct wire_writer *writer, const struct topology *topology, const hvd_status *problem);
/* The problem is this call's outcome. HVD_REFUSED: malformed. */
hvd_code verdict_decode(const uint8_t *bytes, size_t length, int size, struct topology *topology,
                        hvd_status *status);

#endif
