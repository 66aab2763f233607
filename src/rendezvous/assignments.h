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

/* Returns false if the bytes are malformed. A negative rank: the slot has no place. */
bool assignment_decode(struct assignment *assignment, const uint8_t *bytes, size_t length);
/* Enters an epoch as rendezvous_enter does, and finds the assignment of the slot in the same round trip. With
 * `wait` it waits for the assignment until the client's deadline; otherwise the rank is -1 if there is none
 * yet. HVD_REFUSED: the slot has no place, or a newer epoch has begun. */
hvd_code assignments_enter(struct rendezvous_client *client, const struct rendezvous_place *place,
                           const char *slot, bool wait, uint32_t *generation, struct assignment *assignment,
                           hvd_status *status);

/* As hvd_watch_open; entries are returned without the first `skipped` bytes of their keys. */
hvd_code assignments_watch(hvd_rendezvous *rendezvous, const char *job, int32_t epoch, const char *prefix,
                           size_t skipped, hvd_watch **watch, hvd_status *status);

/* Removes a key of the starter from epoch 0 of the job, if it is there. */
hvd_code assignments_remove(hvd_rendezvous *rendezvous, const char *job, const char *key, hvd_status *status);

#endif
