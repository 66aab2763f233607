/* server.h - what this process may ask the server of the key-value store that it runs. The functions of
 * horovod.h (hvd_rendezvous_start, ...) start, use and stop it. Any thread. */
#ifndef HVD_RENDEZVOUS_SERVER_H
#define HVD_RENDEZVOUS_SERVER_H

#include "horovod.h"
#include "rendezvous/store.h"

/* Returns the server's store, which its thread does not use until server_unlock. NULL: this is a child of
 * fork(), in which nothing serves; then there is nothing to unlock. Any thread. */
struct store *server_lock(hvd_rendezvous *server, hvd_status *status);
void server_unlock(hvd_rendezvous *server);

/* How many entries the server holds: keys, and ranks that have joined. Any thread. */
size_t rendezvous_entries(const hvd_rendezvous *rendezvous);
/* How often it has visited a connection, to advance or to answer it. Any thread. */
size_t rendezvous_visits(const hvd_rendezvous *rendezvous);

#endif
