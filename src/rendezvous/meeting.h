/* meeting.h - how ranks that something else than horovodrun has started learn where the rendezvous is, and
 * the secret. Rank 0 serves the rendezvous itself, as long as its process lives.
 *
 * In this order: HOROVOD_RENDEZVOUS says where, and HOROVOD_SECRET or HOROVOD_SECRET_FILE give the secret;
 * rank 0 publishes a secret of its own and its addresses through the process manager (PMI); the starter names
 * rank 0's host, all derive the port, and the secret is given; rank 0 writes a secret and its addresses into
 * ~/.horovod/<job>, which only this user can read, and serves them as a credential of MUNGE at that port. */
#ifndef HVD_RENDEZVOUS_MEETING_H
#define HVD_RENDEZVOUS_MEETING_H

#include "base/addresses.h"
#include "base/clock.h"
#include "base/settings.h"
#include "base/starters.h"

/* Takes the secret from HOROVOD_SECRET_FILE, unless it is there already; it is an error to have neither. */
hvd_code meeting_take_secret(struct settings *settings, hvd_status *status);

/* Puts rendezvous and secret into the settings of a job of several ranks. What has been published stays so
 * for the life of the process, or until a later call is given another rendezvous, secret or job. Any thread.
 */
hvd_code meeting_arrange(const struct starter *starter, struct settings *settings, int64_t deadline,
                         const struct interrupt *interrupt, hvd_status *status);

/* Rank 0, when it leaves and before the others may: the file and the credential are for processes that have
 * not met it. A program that the rank starts next is a rank 0 of its own, with an offer of the same name.
 * Later lives of these processes use the server again. */
void meeting_withdraw_offer(void);

/* ---- pmi.c: PMI-1, the text protocol between a process manager and its processes --------------------------
 * The connection is also that of the MPI library in this process, which may use it before and after. */

#define PMI_VALUE_LIMIT 1024 /* with the NUL; no blanks or newlines */

/* Hands the value of rank 0 (`text` there) to all ranks: each has to call this once. */
hvd_code pmi_broadcast(int fd, bool own, char text[PMI_VALUE_LIMIT], int64_t deadline,
                       const struct interrupt *interrupt, hvd_status *status);
/* Before the process ends: without it, or before its answer, the process manager takes the end for a crash.
 * Fine when the MPI library has done so. */
void pmi_finalize(int fd);

/* ---- munge.c: MUNGE, by which the hosts of a cluster authenticate users (Dunlap, 2004) -------------------
 * Its credentials are encrypted with a key that all hosts have and no user can read. These can be decoded
 * by this user only. HVD_UNSUPPORTED: there is no libmunge, or no munged. */

/* Serves `text` at this port of these addresses (none: all) until munge_stop. One thread at a time. */
hvd_code munge_serve(const struct addresses *own, int port, const char *text, hvd_status *status);
void munge_stop(void); /* fine when nothing is served */
/* What is served at "host:port" by a process of this user; all addresses of the host are tried side by side.
 * It ends early when interrupted. */
hvd_code munge_fetch(const char *address, char text[PMI_VALUE_LIMIT], int64_t deadline,
                     const struct interrupt *interrupt, hvd_status *status);

#endif
