/* attempt.c - see opening.h. */
#include "transport/lanes.h"
#include "transport/opening.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What identifies a connection to this rank. */
static struct handshake_claim claim_of(const struct mesh *hub, int row)
{
    struct handshake_claim claim = {.role = HANDSHAKE_LINK + (unsigned)row,
                                    .generation = hub->generation,
                                    .to = (uint32_t)hub->rank,
                                    .encrypted = hub->settings->encryption && transport_at(row)->encrypts};
    snprintf(claim.job, sizeof claim.job, "%s", hub->settings->job);
    return claim;
}

static struct attempt *allocate(struct mesh *mesh, int row, int fd)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt) {
        socket_close(&fd);
        return NULL;
    }
    attempt->mesh = mesh;
    attempt->row = row;
    attempt->fd = fd;
    attempt->poller = -1;
    attempt->since = clock_now();
    return attempt;
}

struct attempt *attempt_accept(struct mesh *hub, int row, int fd, const char *who)
{
    struct handshake_claim expected = claim_of(hub, row);
    struct attempt *attempt = allocate(hub, row, fd);
    if (!attempt)
        return NULL;
    attempt->stage = ATTEMPT_SHAKING;
    handshake_accept(&attempt->handshake, hub->settings->secret, &expected, who);
    return attempt;
}

struct attempt *attempt_for_peer(struct peer *peer, int row, int number, int address)
{
    struct attempt *attempt = allocate(peer->mesh, row, -1);
    if (!attempt)
        return NULL;
    attempt->initiator = true;
    attempt->peer = peer;
    attempt->number = number;
    attempt->address = address;
    attempt->next_due = CLOCK_NEVER;
    return attempt;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    attempt_unwatch(attempt);
    socket_close(&attempt->fd);
    handshake_end(&attempt->handshake);
    if (attempt->state)
        transport_at(attempt->row)->discard(attempt->state);
    free(attempt);
}

/* ---- connecting --------------------------------------------------------------------------------------- */

static hvd_code cannot_connect(const struct attempt *attempt, int error, hvd_status *status)
{
    char who[128];
    peer_text(attempt->peer, who, sizeof who);
    status_set_errno(status, error,
                     error == EPERM          ? "%s runs as another user; connecting to it fails"
                     : error == ECONNREFUSED ? "%s has probably ended, see its output; connecting to it fails"
                                             : "can't connect to %s",
                     who);
    if (error == EMFILE || error == ENFILE)
        return HVD_SYSTEM;
    /* In use, what ended the peer is the better reason, and on its way from its neighbours. */
    if (error == ECONNREFUSED && attempt->mesh->attached)
        return HVD_PEER_LOST;
    if (!transport_at(attempt->row)->connection_per_channel && error != EAGAIN)
        return HVD_UNSUPPORTED;
    return error == ECONNREFUSED ? HVD_SYSTEM : HVD_PEER_LOST;
}

const char *attempt_address(const struct attempt *attempt, int index)
{
    const struct mesh *hub = attempt->mesh->hub;
    return record_address(&hub->records[attempt->peer->rank], &hub->records[hub->rank], attempt->row, index);
}

void attempt_fail(struct attempt *attempt, hvd_code code, const hvd_status *fault)
{
    char from[SOCKET_TEXT], *outcome = attempt->outcome;
    const char *reason = strstr(fault->text, ": ");
    *outcome = '\0';
    if (attempt->fd >= 0 && socket_local_address(attempt->fd, from))
        append_text(outcome, sizeof attempt->outcome, " (from %s)", from);
    append_text(outcome, sizeof attempt->outcome, ": %s", reason ? reason + 2 : fault->text);
    attempt->code = code;
    attempt->stage = ATTEMPT_FAILED;
    attempt_unwatch(attempt);
    socket_close(&attempt->fd);
    handshake_end(&attempt->handshake);
}

void attempt_append_outcome(const struct attempt *attempt, char *text, size_t capacity)
{
    char from[SOCKET_TEXT];
    const char *address = attempt_address(attempt, attempt->address);
    append_text(text, capacity, "%.*s", (int)strcspn(address, "\n"), address);
    if (attempt->code)
        append_text(text, capacity, "%s", attempt->outcome);
    else if (attempt->fd >= 0 && socket_local_address(attempt->fd, from))
        append_text(text, capacity, " (from %s): %s", from,
                    attempt->stage == ATTEMPT_CONNECTING ? "no answer" : "no end of the handshake");
    else
        append_text(text, capacity, ": not tried yet");
}

hvd_code attempt_connect(struct attempt *attempt, hvd_status *status)
{
    char who[128];
    struct handshake_claim claim = claim_of(attempt->mesh->hub, attempt->row);
    claim.from = claim.to;
    claim.to = (uint32_t)attempt->peer->rank;
    claim.channel = (uint32_t)attempt->number;
    claim.mesh = attempt->mesh->number;
    attempt->fd = transport_at(attempt->row)->dial(attempt_address(attempt, attempt->address));
    if (attempt->fd < 0)
        return cannot_connect(attempt, errno, status);
    attempt->stage = ATTEMPT_CONNECTING;
    hvd_code code = handshake_initiate(&attempt->handshake, attempt->mesh->hub->settings->secret, &claim,
                                       peer_text(attempt->peer, who, sizeof who), status);
    return code ? code : HVD_IN_PROGRESS;
}

/* ---- proving ------------------------------------------------------------------------------------------ */

/* Of a peer, or NULL: the higher rank connects, once for each channel and each further lane, or once. */
static bool is_plausible(const struct attempt *attempt, const struct mesh *mesh, const struct peer *peer)
{
    const struct handshake_claim *claim = &attempt->handshake.claim;
    uint32_t channels = (uint32_t)mesh->channels;
    uint32_t limit = transport_at(attempt->row)->connection_per_channel ? channels * (LANES_LIMIT + 1) : 1;
    return peer && claim->from > claim->to && claim->channel < limit &&
           (claim->channel < channels ||
            (mesh->striped_channel && (int)(claim->channel % channels) == mesh->striped_channel)) &&
           (peer->reachable >> attempt->row & 1);
}

static bool is_vacant(const struct attempt *attempt, const struct mesh *mesh, const struct peer *peer)
{
    const struct transport *transport = transport_at(attempt->row);
    int channel = (int)attempt->handshake.claim.channel % mesh->channels;
    int lane = (int)attempt->handshake.claim.channel / mesh->channels;
    if (lane > 1)
        return peer->transport == transport && peer->lanes && !(peer->lanes >> lane & 1);
    return (!peer->transport || peer->transport == transport) && !peer->links[channel];
}

/* The handshake has proven the claim; now it must also make sense here. */
hvd_code attempt_identify(struct attempt *attempt, struct mesh *mesh, hvd_status *status)
{
    const struct handshake_claim *claim = &attempt->handshake.claim;
    struct peer *peer = mesh_peer(mesh, (int)claim->from);
    bool plausible = is_plausible(attempt, mesh, peer);
    if (plausible && is_vacant(attempt, mesh, peer)) {
        attempt->mesh = mesh;
        attempt->peer = peer;
        attempt->number = (int)claim->channel;
        attempt->stage = ATTEMPT_NEGOTIATING;
        return HVD_OK;
    }
    return status_set(status, HVD_REFUSED,
                      "%s says it is rank %u and wants channel %u, which %s; two processes may share a rank "
                      "(HOROVOD_RANK)",
                      attempt->handshake.who, claim->from, claim->channel,
                      plausible ? "is connected already" : "has no business here");
}

static hvd_code shake_hands(struct attempt *attempt, hvd_status *status)
{
    hvd_code code = handshake_advance(&attempt->handshake, attempt->fd, status);
    if (!code)
        attempt->stage = attempt->initiator ? ATTEMPT_NEGOTIATING : ATTEMPT_PROVEN;
    return code;
}

static hvd_code negotiate(struct attempt *attempt, hvd_status *status)
{
    const struct transport *transport = transport_at(attempt->row);
    if (!transport->negotiate)
        return HVD_OK;
    attempt->peer->index = peer_index(attempt->peer, attempt->row);
    return transport->negotiate(attempt->peer, attempt->fd, &attempt->state, status);
}

static hvd_code check_connected(struct attempt *attempt, hvd_status *status)
{
    int error = socket_error(attempt->fd);
    if (error)
        return cannot_connect(attempt, error, status);
    attempt->stage = ATTEMPT_SHAKING;
    return HVD_OK;
}

hvd_code attempt_advance(struct attempt *attempt, hvd_status *status)
{
    hvd_code code = HVD_OK;
    if (attempt->stage == ATTEMPT_CONNECTING)
        code = check_connected(attempt, status);
    if (!code && attempt->stage == ATTEMPT_SHAKING)
        code = shake_hands(attempt, status);
    if (!code && attempt->stage == ATTEMPT_NEGOTIATING)
        code = negotiate(attempt, status);
    return code;
}

/* ---- polling ------------------------------------------------------------------------------------------ */

static short events_of(const struct attempt *attempt)
{
    if (attempt->stage == ATTEMPT_CONNECTING)
        return POLLOUT;
    if (attempt->stage == ATTEMPT_SHAKING)
        return handshake_events(&attempt->handshake);
    return attempt->state ? transport_at(attempt->row)->events(attempt->state) : 0;
}

bool attempt_watch(struct attempt *attempt, int poller)
{
    short events = events_of(attempt);
    unsigned what = (events & POLLIN ? POLLER_READ : 0) | (events & POLLOUT ? POLLER_WRITE : 0);
    bool done = true;
    if (attempt->fd < 0 || (attempt->poller == poller && attempt->watched == events))
        return true;
    if (attempt->poller == poller)
        done = platform_poller_change(poller, attempt->fd, what, attempt);
    else
        done = platform_poller_add(poller, attempt->fd, what, attempt);
    attempt->poller = poller;
    attempt->watched = events;
    return done;
}

/* Explicitly, since a child of fork() may have inherited the descriptor. */
void attempt_unwatch(struct attempt *attempt)
{
    if (attempt->poller >= 0 && attempt->fd >= 0)
        platform_poller_remove(attempt->poller, attempt->fd);
    attempt->poller = -1;
}
