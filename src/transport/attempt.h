/* attempt.h - one connection between two ranks on its way to become links. Of two ranks the higher one dials
 * (link_dial.h) and the lower one accepts (acceptor.h); the handshake authenticates both; then the transport
 * negotiates what else it needs. Nothing blocks.
 *
 * One thread at a time: the one of the connector that dials or has claimed the attempt, before that the one
 * that accepts. Lists change under atfork_lock, so that a child of fork() finds them consistent. */
#ifndef HVD_TRANSPORT_ATTEMPT_H
#define HVD_TRANSPORT_ATTEMPT_H

#include "net/admission.h"
#include "net/dial.h"
#include "net/handshake.h"
#include "transport/peer.h"

enum attempt_stage {
    ATTEMPT_CONNECTING, /* only if this rank dials */
    ATTEMPT_SHAKING,
    ATTEMPT_PROVEN, /* accepted and authenticated: the mesh that it names claims it */
    ATTEMPT_NEGOTIATING,
    ATTEMPT_ENDED
};

struct attempt {
    struct candidate candidate; /* the tag of the poller */
    enum attempt_stage stage;
    int row; /* of its transport */
    struct newcomer newcomer;
    int64_t since;     /* when it was authenticated, if it was accepted */
    struct mesh *mesh; /* the hub until the mesh that it names has claimed it */
    struct peer *peer; /* NULL: not known yet */
    int number;        /* of the connection: lane * channels + channel; 0 if one connection carries all */
    struct handshake handshake;
    void *state; /* of the negotiation */
    struct attempt *next;
};

static inline struct attempt *attempt_of(const struct candidate *candidate)
{
    return (struct attempt *)candidate;
}

static inline bool attempt_is_dialled(const struct attempt *attempt)
{
    return attempt->candidate.dial != NULL;
}

/* What identifies a connection to this rank. */
struct handshake_claim attempt_claim(const struct mesh *hub, int row);

/* Starts to connect to the address: HVD_IN_PROGRESS. Otherwise the fault, as from attempt_advance. */
hvd_code attempt_dial(struct attempt *attempt, const char *address, hvd_status *status);

/* Continues as far as possible. HVD_IN_PROGRESS: to be called again after attempt_events; HVD_OK: it is
 * proven, or ready to become links; HVD_PEER_LOST: another attempt may help; HVD_UNSUPPORTED: this transport
 * does not work, another one may. */
hvd_code attempt_advance(struct candidate *candidate, hvd_status *status);
short attempt_events(const struct candidate *candidate);
/* Waits for attempt_events. False: errno. */
bool attempt_watch(struct attempt *attempt, int poller);

/* Closes the connection; attempt_dial may follow. */
void attempt_release(struct attempt *attempt);
void attempt_free(struct attempt *attempt); /* NULL is fine */

void attempts_push(struct attempt **list, struct attempt *attempt);
struct attempt *attempts_pop(struct attempt **place);
void attempts_abandon(struct attempt *attempts); /* as mesh_abandon */

#endif
