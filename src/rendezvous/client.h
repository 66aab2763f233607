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

/* A place in a job, for rendezvous_enter. */
struct rendezvous_place {
    const char *job;
    uint32_t epoch;
    int rank, size;
};

/* Enters an epoch of a job; must be called first. The first rank or key of a newer epoch starts it.
 *
 * With a `size` this rank joins as one of that many ranks, until the client enters another epoch or is
 * closed. When all ranks have joined and left, the server drops their keys. *generation is one higher each
 * time that the rank joins; all ranks join equally often, so the number identifies one life of the job, in
 * all its epochs.
 *
 * With size 0 the client only puts and gets, for a rank that has joined by another client, or that is not
 * known yet (-1); `generation` may be NULL then. */
hvd_code rendezvous_enter(struct rendezvous_client *client, const struct rendezvous_place *place,
                          uint32_t *generation, hvd_status *status);

/* Enters, and gets a key in the same round trip: its value is appended to `value`. With `wait` it waits for
 * the key until the client's deadline, HVD_TIMED_OUT; otherwise nothing is appended if the key is not there.
 */
hvd_code rendezvous_enter_and_get(struct rendezvous_client *client, const struct rendezvous_place *place,
                                  const char *key, bool wait, uint32_t *generation, struct wire_writer *value,
                                  hvd_status *status);

/* Restricts keys from here on to this process set in this life, so that they never equal those of others. */
void rendezvous_scope(struct rendezvous_client *client, uint32_t generation, int set);

hvd_code rendezvous_put(struct rendezvous_client *client, const char *key, const void *value, size_t length,
                        hvd_status *status);

/* Waits until the key is there; the value is appended to `value`. If the deadline has passed it asks once,
 * without waiting. HVD_TIMED_OUT: the key is not there. HVD_PEER_LOST: also if the server has not answered in
 * time to a question that it answers at once, so that nothing is known of the key. */
hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status);

/* Puts a key for the starter, outside this process set, which lasts until a newer epoch starts. Waits for the
 * answer until `deadline` at most. */
hvd_code rendezvous_publish(struct rendezvous_client *client, const char *key, const void *value,
                            size_t length, int64_t deadline, hvd_status *status);

/* As rendezvous_publish; in addition the value becomes empty when this client's connection ends, unless
 * another client has put the key since. A client has one such key. */
hvd_code rendezvous_report(struct rendezvous_client *client, const char *key, const void *value,
                           size_t length, int64_t deadline, hvd_status *status);

/* Waits until the key is there with a value of another put than *seen, and sets *seen to its number; at first
 * *seen is 0. After HVD_TIMED_OUT, also with a deadline that has passed, the question stays open at the
 * server: the next call with the same key only looks whether the answer has arrived. */
hvd_code rendezvous_follow(struct rendezvous_client *client, const char *key, uint32_t *seen,
                           int64_t deadline, struct wire_writer *value, hvd_status *status);

/* Replaces the interrupt of rendezvous_connect; NULL: none. */
void rendezvous_interrupt(struct rendezvous_client *client, const struct interrupt *interrupt);

/* Its socket, to see the end of the connection; -1: it has ended. */
int rendezvous_descriptor(const struct rendezvous_client *client);

/* The address by which this rank reaches the rendezvous, e.g. "10.0.0.7": what it can publish to its peers.
 */
const char *rendezvous_local_address(const struct rendezvous_client *client);

#endif
