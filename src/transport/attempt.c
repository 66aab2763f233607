/* attempt.c - carries one connection from connecting through the handshake to the transport's negotiation.
 * One thread at a time, that of its connector or acceptor. */
#include "transport/attempt.h"

#include "base/settings.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

struct handshake_claim attempt_claim(const struct mesh *hub, int row)
{
    struct handshake_claim claim = {.role = HANDSHAKE_LINK + (unsigned)row,
                                    .generation = hub->generation,
                                    .to = (uint32_t)hub->rank,
                                    .encrypted = hub->settings->encryption && transport_at(row)->encrypts};
    snprintf(claim.job, sizeof claim.job, "%s", hub->settings->job);
    return claim;
}

/* ---- progress ----------------------------------------------------------------------------------------- */

static hvd_code cannot_connect(const struct attempt *attempt, int error, hvd_status *status)
{
    char who[128];
    peer_text(attempt->peer, who, sizeof who);
    status_set_errno(status, error,
                     error == EPERM          ? "%s runs as another user; connecting to it fails"
                     : error == ECONNREFUSED ? "%s has probably ended, see its output; connecting to it fails"
                                             : "can't connect to %s",
                     who);
    if (error == ECONNREFUSED)
        status_blame(status, HVD_CAUSE_CONNECTION, attempt->peer->rank, NULL);
    if (error == EMFILE || error == ENFILE)
        return HVD_SYSTEM;
    /* In use, what ended the peer is the better reason, and on its way from its neighbours. */
    if (error == ECONNREFUSED && attempt->mesh->attached)
        return HVD_PEER_LOST;
    if (!transport_at(attempt->row)->connection_per_channel && error != EAGAIN)
        return HVD_UNSUPPORTED;
    return error == ECONNREFUSED ? HVD_SYSTEM : HVD_PEER_LOST;
}

hvd_code attempt_dial(struct attempt *attempt, const char *address, hvd_status *status)
{
    char who[128];
    const struct mesh *hub = attempt->mesh->hub;
    struct handshake_claim claim = attempt_claim(hub, attempt->row);
    claim.from = claim.to;
    claim.to = (uint32_t)attempt->peer->rank;
    claim.channel = (uint32_t)attempt->number;
    claim.mesh = attempt->mesh->number;
    attempt->candidate.socket.fd = transport_at(attempt->row)->dial(address);
    if (attempt->candidate.socket.fd < 0)
        return cannot_connect(attempt, errno, status);
    attempt->stage = ATTEMPT_CONNECTING;
    TRY(handshake_initiate(&attempt->handshake, hub->settings->secret, &claim,
                           peer_text(attempt->peer, who, sizeof who), status));
    return HVD_IN_PROGRESS;
}

static hvd_code negotiate(struct attempt *attempt, hvd_status *status)
{
    const struct transport *transport = transport_at(attempt->row);
    if (!transport->negotiate)
        return HVD_OK;
    attempt->peer->index = peer_index(attempt->peer, attempt->row);
    return transport->negotiate(attempt->peer, attempt->candidate.socket.fd, &attempt->state, status);
}

hvd_code attempt_advance(struct candidate *candidate, hvd_status *status)
{
    struct attempt *attempt = attempt_of(candidate);
    int fd = candidate->socket.fd, error;
    switch (attempt->stage) {
    case ATTEMPT_CONNECTING:
        if ((error = socket_error(fd)))
            return cannot_connect(attempt, error, status);
        candidate->connected = true;
        attempt->stage = ATTEMPT_SHAKING;
        /* fall through */
    case ATTEMPT_SHAKING:
        TRY(handshake_advance(&attempt->handshake, fd, status));
        attempt->stage = attempt_is_dialled(attempt) ? ATTEMPT_NEGOTIATING : ATTEMPT_PROVEN;
        if (attempt->stage == ATTEMPT_PROVEN)
            return HVD_OK;
        candidate->proven = true;
        /* fall through */
    case ATTEMPT_NEGOTIATING:
        return negotiate(attempt, status);
    case ATTEMPT_PROVEN:
    case ATTEMPT_ENDED:
        break;
    }
    return HVD_OK;
}

short attempt_events(const struct candidate *candidate)
{
    const struct attempt *attempt = attempt_of(candidate);
    switch (attempt->stage) {
    case ATTEMPT_CONNECTING:
        return POLLOUT;
    case ATTEMPT_SHAKING:
        return handshake_events(&attempt->handshake);
    default:
        return attempt->state ? transport_at(attempt->row)->events(attempt->state) : 0;
    }
}

bool attempt_watch(struct attempt *attempt, int poller)
{
    return polled_watch(&attempt->candidate.socket, poller, attempt_events(&attempt->candidate), attempt);
}

/* ---- life --------------------------------------------------------------------------------------------- */

void attempt_release(struct attempt *attempt)
{
    polled_close(&attempt->candidate.socket);
    handshake_end(&attempt->handshake);
    if (attempt->state)
        transport_at(attempt->row)->discard(attempt->state);
    attempt->state = NULL;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    attempt_release(attempt);
    free(attempt);
}

void attempts_push(struct attempt **list, struct attempt *attempt)
{
    atfork_lock();
    attempt->next = *list;
    *list = attempt;
    atfork_unlock();
}

struct attempt *attempts_pop(struct attempt **place)
{
    atfork_lock();
    struct attempt *attempt = *place;
    *place = attempt->next;
    atfork_unlock();
    return attempt;
}

void attempts_abandon(struct attempt *attempts)
{
    for (; attempts; attempts = attempts->next)
        socket_close(&attempts->candidate.socket.fd);
}
