/* munge.h - MUNGE, by which the hosts of a cluster authenticate users (Dunlap, 2004). Its credentials are
 * encrypted with a key that all hosts have and no user can read. These can be decoded by this user only.
 * HVD_UNSUPPORTED: there is no libmunge, or no munged. */
#ifndef HVD_BOOTSTRAP_MUNGE_H
#define HVD_BOOTSTRAP_MUNGE_H

#include "bootstrap/pmi.h"
#include "net/addresses.h"

/* Serves `text` at this port of these addresses (none: all) until munge_stop. One thread at a time. */
hvd_code munge_serve(const struct addresses *own, int port, const char *text, hvd_status *status);
void munge_stop(void); /* fine when nothing is served */
/* Fetches the text that a process of this user serves at "host:port"; all addresses of the host are tried
 * concurrently. It ends early when interrupted. */
hvd_code munge_fetch(const char *address, char text[PMI_VALUE_LIMIT], int64_t deadline,
                     const struct interrupt *interrupt, hvd_status *status);

#endif
