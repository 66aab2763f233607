/* claim.h - at most one process of a host is a given rank of a job at a time.
 *
 * A program that a rank starts inherits the variables of its rank. If it joined the job as well, it would
 * wait for ranks that have joined already, and rank 0's would replace the rendezvous. A claim is a local
 * socket whose name identifies the rank. The kernel gives it to one process only and frees it when that
 * process ends or calls exec. */
#ifndef HVD_BOOTSTRAP_CLAIM_H
#define HVD_BOOTSTRAP_CLAIM_H

#include "base/settings.h"
#include "bootstrap/starters.h"

/* Gives a descriptor that holds the rank which the environment names until it is closed; -1 if there is
 * nothing to hold or the system has no such sockets. HVD_INVALID_ARGUMENT: another process is that rank. */
hvd_code claim_rank(const struct settings *settings, const struct starter *starter, int *descriptor,
                    hvd_status *status);

#endif
