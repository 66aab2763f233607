/* placement.h - what ranks publish of their places: the messages behind placement_agree (config.h), in
 * placement.c. No state; any thread. */
#ifndef HVD_ENGINE_PLACEMENT_H
#define HVD_ENGINE_PLACEMENT_H

#include "base/topology.h"
#include "base/wire.h"
#include "horovod.h"

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
