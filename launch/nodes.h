/* nodes.h - node 0: accepts the connections of all other nodes before the job begins, so that the number of
 * ranks is known. Each connection is authenticated with the secret that all nodes are given. One thread. */
#ifndef HVD_LAUNCH_NODES_H
#define HVD_LAUNCH_NODES_H

#include "frames.h"
#include "guard.h"
#include "node.h"

struct nodes {
    const char *secret;
    struct stream *streams; /* [count] by node; that of node 0 is unused. Whoever takes one zeroes it */
    int count;
};

/* Waits for all nodes, and fills `hosts`: node i is host i. After a failure the nodes that have come know the
 * text. *exit_code is then horovodrun's. */
hvd_code nodes_gather(struct hosts *hosts, const struct node *node, const struct settings *settings,
                      const struct guard *guard, int *exit_code, hvd_status *status);
void nodes_free(struct nodes *nodes); /* NULL is fine */

/* Sends the nodes whose connections nobody has taken why the job has ended. NULL is fine. */
void nodes_dismiss(struct nodes *nodes, int exit_code, const char *why);

/* Makes the secret of the ranks of a job, which is never sent, from the one that the nodes are given. */
void nodes_derive_secret(const char *given, const char *job, char secret[JOB_SECRET_DIGITS + 1]);

/* Returns the signal, if one that ends horovodrun waits for this process to handle it, or SIGKILL if the
 * first process has ended; otherwise 0. */
int nodes_signal(const struct guard *guard);

/* The claim of the connections between nodes. */
struct handshake_claim nodes_claim(const struct settings *settings);

#endif
