/* bootstrap.h - how ranks learn the address of the rendezvous and the secret if a program other than
 * horovodrun has started them. Rank 0 then serves the rendezvous itself, as long as its process lives. Any
 * thread.
 *
 * The first of these ways that is possible is used: HOROVOD_RENDEZVOUS gives the address, and HOROVOD_SECRET
 * or HOROVOD_SECRET_FILE the secret; rank 0 publishes a secret and its addresses through the process manager
 * (PMI); the starter names rank 0's host, all ranks derive the port, and the secret is given; rank 0 writes a
 * secret and its addresses into ~/.horovod/<job>, which only this user can read, and serves them as a
 * credential of MUNGE at that port. */
#ifndef HVD_BOOTSTRAP_BOOTSTRAP_H
#define HVD_BOOTSTRAP_BOOTSTRAP_H

#include "base/clock.h"
#include "base/settings.h"
#include "bootstrap/starters.h"
#include "net/addresses.h"

/* Reads the secret from HOROVOD_SECRET_FILE, unless the settings have one already; to have neither is an
 * error. */
hvd_code bootstrap_read_secret(struct settings *settings, hvd_status *status);

/* Puts rendezvous and secret into the settings of a job of several ranks. What has been published stays so
 * for the life of the process, or until a later call is given another rendezvous, secret or job. Any thread.
 */
hvd_code bootstrap_arrange(const struct starter *starter, struct settings *settings, int64_t deadline,
                           const struct interrupt *interrupt, hvd_status *status);

/* Called by rank 0 when it leaves, before the others may leave: removes the file and the credential, which
 * only processes need that have not met rank 0. A program that the rank starts next is a rank 0 of its own,
 * with an offer of the same name. Later lives of these processes use the server again. */
void bootstrap_withdraw_offer(void);

#endif
