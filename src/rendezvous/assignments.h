/* assignments.h - the ranks of an epoch by slot: the starter publishes them at the rendezvous
 * (hvd_rendezvous_assign in horovod.h), and a process looks up its slot. One thread at a time for a client.
 */
#ifndef HVD_RENDEZVOUS_ASSIGNMENTS_H
#define HVD_RENDEZVOUS_ASSIGNMENTS_H

#include "base/topology.h"
#include "rendezvous/client.h"

struct assignment {
    int rank, size;
    char host[TOPOLOGY_HOST_LIMIT]; /* "": to be found out */
};

/* False: malformed. A negative rank: the slot has no place. */
bool assignment_decode(struct assignment *assignment, const uint8_t *bytes, size_t length);
/* Waits for the assignment until `deadline`. HVD_REFUSED: the slot has none, or a newer epoch has begun. */
hvd_code assignments_look_up(struct rendezvous_client *client, const char *slot, int64_t deadline,
                             struct assignment *assignment, hvd_status *status);

#endif
