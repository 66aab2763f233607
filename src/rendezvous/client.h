/* client.h - a rank's connection to the job's key-value store, which hvd_rendezvous_start of horovod.h
 * serves.
 *
 * Keys are short texts, values have at most RENDEZVOUS_VALUE_LIMIT bytes. They belong to an epoch of a job.
 * When a newer epoch starts the server drops them, and every call in the older one returns HVD_REFUSED, also
 * a rendezvous_get that waits; the text names both numbers. Every connection is authenticated both ways with
 * the job's secret before anything else is read. A client belongs to one thread at a time; in a child of
 * fork() it is closed. */
#ifndef HVD_RENDEZVOUS_CLIENT_H
#define HVD_RENDEZVOUS_CLIENT_H

#include "base/clock.h"
#include "base/wire.h"
#include "horovod.h"

#define RENDEZVOUS_KEY_LIMIT   256 /* with the NUL */
#define RENDEZVOUS_VALUE_LIMIT 65536

struct rendezvous_client;

/* `address` is "host:port" (also "[::1]:port"), or several, separated by commas. All addresses of these names
 * are tried in turn and concurrently, and again, until the first completes the handshake or `deadline`
 * (clock_now's) passes; unknown names are looked up again. The server accepts encrypted and plain
 * connections. `interrupt` (NULL: never) ends this and every later wait; it is not copied. */
hvd_code rendezvous_connect(const char *address, const char *secret, bool encrypted, int64_t deadline,
                            const struct interrupt *interrupt, struct rendezvous_client **client,
                            hvd_status *status);
void rendezvous_close(struct rendezvous_client *client); /* NULL is fine */

/* Enters an epoch of a job; must be called first. The first rank or key of a newer epoch starts it.
 *
 * With a `size` this rank joins as one of that many ranks, until the client enters another epoch or is
 * closed. When all ranks have joined and left, the server drops their keys. *generation is one higher each
 * time that the rank joins; all ranks join equally often, so the number identifies one life of the job, in
 * all its epochs.
 *
 * With size 0 the client only puts and gets: for a rank that has joined by another client, or (rank -1) for
 * no rank. A key that is put as no rank stays until a newer epoch starts; `generation` may be NULL then. */
hvd_code rendezvous_enter(struct rendezvous_client *client, const char *job, uint32_t epoch, int rank,
                          int size, uint32_t *generation, hvd_status *status);

/* Restricts keys from here on to this process set in this life, so that they never equal those of others. */
void rendezvous_scope(struct rendezvous_client *client, uint32_t generation, int set);

hvd_code rendezvous_put(struct rendezvous_client *client, const char *key, const void *value, size_t length,
                        hvd_status *status);

/* Waits until the key is there; the value is appended to `value`. If the deadline has passed it asks once,
 * without waiting. HVD_TIMED_OUT: the key is not there. */
hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status);

/* Puts a key for the starter, outside this process set, which lasts until a newer epoch starts. Waits for the
 * answer until `deadline` at most. */
hvd_code rendezvous_publish(struct rendezvous_client *client, const char *key, const void *value,
                            size_t length, int64_t deadline, hvd_status *status);

/* The position of a watch for lasting keys of an epoch. */
struct watched {
    uint64_t after; /* the number of the last put that was returned; 0: from the first one on */
    uint32_t asked; /* the question that is open at the server; 0: none */
};

/* Waits for the next put of a lasting key with this prefix, by other ranks or the starter, until `deadline`.
 * After HVD_TIMED_OUT the question stays open at the server, and the next call continues it; meanwhile the
 * socket becomes readable once an answer has arrived. So a client that watches is used for nothing else. Key
 * and value stay in the client until the next call. */
hvd_code rendezvous_watch(struct rendezvous_client *client, const char *prefix, int64_t deadline,
                          struct watched *watched, char key[RENDEZVOUS_KEY_LIMIT], const uint8_t **value,
                          size_t *length, hvd_status *status);
int rendezvous_descriptor(const struct rendezvous_client *client);

/* The address by which this rank reaches the rendezvous, e.g. "10.0.0.7": what it can publish to its peers.
 */
const char *rendezvous_local_address(const struct rendezvous_client *client);

#endif
