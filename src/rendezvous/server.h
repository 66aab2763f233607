/* server.h - what this process may ask the server of the key-value store that it runs. The functions of
 * horovod.h (hvd_rendezvous_start, ...) start, use and stop it. Any thread. */
#ifndef HVD_RENDEZVOUS_SERVER_H
#define HVD_RENDEZVOUS_SERVER_H

#include "rendezvous/client.h"

/* As rendezvous_connect, to a server of this process. */
hvd_code rendezvous_connect_to(const hvd_rendezvous *server, int64_t deadline,
                               struct rendezvous_client **client, hvd_status *status);

/* Puts a key of the starter into the epoch of the job, without a connection; the epoch begins if it is newer
 * than the last one. HVD_REFUSED: a newer one has begun. HVD_OUT_OF_MEMORY: the store is full. Any thread. */
hvd_code server_publish(hvd_rendezvous *server, const char *job, uint32_t epoch, const char *key,
                        const void *value, size_t length, hvd_status *status);

/* How many entries the server holds: keys, and ranks that have joined. Any thread. */
size_t rendezvous_entries(const hvd_rendezvous *rendezvous);
/* How often it has visited a connection, to advance or to answer it. Any thread. */
size_t rendezvous_visits(const hvd_rendezvous *rendezvous);

#endif
