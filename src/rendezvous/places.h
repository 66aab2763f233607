/* places.h - the placement table of an epoch: the starter publishes it (hvd_rendezvous_place in horovod.h), a
 * process looks up its slot. */
#ifndef HVD_RENDEZVOUS_PLACES_H
#define HVD_RENDEZVOUS_PLACES_H

#include "base/topology.h"
#include "rendezvous/rendezvous.h"

struct place_in_epoch {
    int rank, size;
    char host[TOPOLOGY_HOST_LIMIT]; /* "": to be found out */
};

/* Waits for the place until `deadline`. HVD_REFUSED: the slot has none, or the epoch is over. */
hvd_code places_look_up(struct rendezvous_client *client, const char *slot, int64_t deadline,
                        struct place_in_epoch *place, hvd_status *status);

#endif
