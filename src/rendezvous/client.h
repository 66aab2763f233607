/* client.h - a rank's connection to the job's key-value store
 * (the server is that of horovod.h, hvd_rendezvous_start).
 *
 * Keys are short texts, values at most RENDEZVOUS_VALUE_LIMIT bytes. They belong to an epoch of a job: when a
 * newer epoch begins the server drops them, and from then on every call in the older one is HVD_REFUSED, also
 * a rendezvous_get that waits; the text names both numbers. Every connection is authenticated both
 * ways with the job's secret before anything else is read. A client belongs to one thread at a time; in a
 * child of fork() it is closed. */
#ifndef HVD_RENDEZVOUS_CLIENT_H
#define HVD_RENDEZVOUS_CLIENT_H

#include "base/clock.h"
#include "base/wire.h"
#include "horovod.h"

#define RENDEZVOUS_KEY_LIMIT   256 /* with the NUL */
#define RENDEZVOUS_VALUE_LIMIT 65536

struct rendezvous_client;

/* `address` is "host:port" (also "[::1]:port"), or several, separated by commas. All addresses that their
 * names stand for are tried in turn and concurrently, and again, until the first completes the handshake or
 * `deadline` (clock_now's) passes; names that are unknown are looked up again. The server takes encrypted and
 * plain connections. `interrupt` (NULL: never) ends this and every later wait; it is not copied. */
hvd_code rendezvous_connect(const char *address, const char *secret, bool encrypted, int64_t deadline,
                            const struct interrupt *interrupt, struct rendezvous_client **client,
                            hvd_status *status);
void rendezvous_close(struct rendezvous_client *client); /* NULL is fine */

/* Must be called first: enters an epoch of a job. The first rank or key of a newer epoch begins it. With a
 * `size` this joins as one of that many ranks, which lasts until the client enters another epoch or is
 * closed: when all have joined and left, the server drops their keys. *generation is then one higher for each
 * time that the rank joins: all ranks join equally often, so the number names one life of the job, in all its
 * epochs. Size 0: only to put and get, as a rank that has joined by another client, or (rank -1) as no rank:
 * what that puts stays until a newer epoch begins; `generation` may be NULL then. */
hvd_code rendezvous_enter(struct rendezvous_client *client, const char *job, uint32_t epoch, int rank,
                          int size, uint32_t *generation, hvd_status *status);

/* From here on keys are those of this process set in this life, and never meet those of others. */
void rendezvous_scope(struct rendezvous_client *client, uint32_t generation, int set);

hvd_code rendezvous_put(struct rendezvous_client *client, const char *key, const void *value, size_t length,
                        hvd_status *status);

/* Waits until the key is there; the value is appended to `value`. With a deadline that has passed it only
 * asks. HVD_TIMED_OUT: it is not there. */
hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status);

/* Puts a key for the starter, which is not this process set's, and lasts until a newer epoch begins. Waits
 * for the answer until `deadline` at most. */
hvd_code rendezvous_publish(struct rendezvous_client *client, const char *key, const void *value,
                            size_t length, int64_t deadline, hvd_status *status);

/* Where a watch for lasting keys of an epoch has got to. */
struct watched {
    uint64_t after; /* the number of the last put that was returned; 0: from the first one on */
    uint32_t asked; /* the question that is open at the server; 0: none */
};

/* Waits for the next put of a lasting key with this prefix, of other ranks or the starter, until `deadline`;
 * HVD_TIMED_OUT leaves the question open at the server, and the next call goes on with it: then the socket is
 * readable once an answer has arrived. So a client that watches is used for nothing else. Key and value lie
 * in the client until the next call. */
hvd_code rendezvous_watch(struct rendezvous_client *client, const char *prefix, int64_t deadline,
                          struct watched *watched, char key[RENDEZVOUS_KEY_LIMIT], const uint8_t **value,
                          size_t *length, hvd_status *status);
int rendezvous_descriptor(const struct rendezvous_client *client);

/* The address by which this rank reaches the rendezvous, e.g. "10.0.0.7": what it can publish to its peers.
 */
const char *rendezvous_local_address(const struct rendezvous_client *client);

#endif
