/* rendezvous.h - the ranks' side of the job's key-value store (the server's is in horovod.h:
 * hvd_rendezvous_start).
 *
 * Keys are short texts, values at most RENDEZVOUS_VALUE_LIMIT bytes. Every connection is authenticated both
 * ways with the job's secret before anything else is read. A client belongs to one thread at a time. */
#ifndef HVD_RENDEZVOUS_RENDEZVOUS_H
#define HVD_RENDEZVOUS_RENDEZVOUS_H

#include "base/clock.h"
#include "base/wire.h"
#include "horovod.h"

#define RENDEZVOUS_KEY_LIMIT   256 /* with the NUL */
#define RENDEZVOUS_VALUE_LIMIT 65536

struct rendezvous_client;

/* `address` is "host:port" (also "[::1]:port"); tries again until it answers or `deadline` (clock_now's)
 * passes. `interrupt` (NULL: never) ends this and every later wait; it is not copied. */
hvd_code rendezvous_connect(const char *address, const char *secret, int64_t deadline,
                            const struct interrupt *interrupt, struct rendezvous_client **client,
                            hvd_status *status);
void rendezvous_close(struct rendezvous_client *client); /* NULL is fine */

/* Counts how often `rank` has joined `job`: 0 the first time. All ranks of a job join equally often, so the
 * number names one life of the job, and keys of different lives never meet. */
hvd_code rendezvous_join(struct rendezvous_client *client, const char *job, int rank, uint32_t *generation,
                         hvd_status *status);

hvd_code rendezvous_put(struct rendezvous_client *client, const char *key, const void *value, size_t length,
                        hvd_status *status);

/* Waits until the key is there; the value is appended to `value`. A deadline that has passed: only looks.
 * HVD_TIMED_OUT: it is not there. */
hvd_code rendezvous_get(struct rendezvous_client *client, const char *key, int64_t deadline,
                        struct wire_writer *value, hvd_status *status);

/* The address by which this rank reaches the rendezvous, e.g. "10.0.0.7": what it can publish to its peers.
 */
const char *rendezvous_local_address(const struct rendezvous_client *client);

#endif
