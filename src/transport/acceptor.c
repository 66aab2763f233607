/* acceptor.c - accepts connections, keeps those that have authenticated, and finds their peers. The thread of
 * the hub's connector; claimants in threads of their own, under the acceptor's lock. A connection is in one
 * list at a time: the newcomers', then the authenticated ones', then its claimant's. */
#include "transport/acceptor.h"

#include "base/platform_poller.h"
#include "base/settings.h"
#include "base/status.h"
#include "transport/lanes.h"

#include <errno.h>
#include <stdlib.h>

/* ---- newcomers ---------------------------------------------------------------------------------------- */

static int accept_connection(int listener, int row, char from[SOCKET_TEXT])
{
    return transport_at(row)->accept(listener, from);
}

static bool adopt_connection(void *owner, int fd, int row, const char *from)
{
    struct acceptor *acceptor = owner;
    struct handshake_claim expected = attempt_claim(acceptor->hub, row);
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt) {
        socket_close(&fd);
        return false;
    }
    attempt->mesh = acceptor->hub;
    attempt->row = row;
    attempt->candidate.socket = POLLED_NONE;
    attempt->candidate.socket.fd = fd;
    attempt->stage = ATTEMPT_SHAKING;
    handshake_accept(&attempt->handshake, acceptor->hub->settings->secret, &expected, from);
    if (!attempt_watch(attempt, acceptor->admission.poller)) {
        attempt_free(attempt);
        return false;
    }
    admission_add(&acceptor->admission, &attempt->newcomer, &attempt->handshake);
    return true;
}

static struct attempt *attempt_of_newcomer(struct newcomer *newcomer)
{
    return (struct attempt *)((char *)newcomer - offsetof(struct attempt, newcomer));
}

static void drop_newcomer(void *owner, struct newcomer *newcomer)
{
    (void)owner;
    attempt_free(attempt_of_newcomer(newcomer));
}

/* ---- life --------------------------------------------------------------------------------------------- */

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller)
{
    static const struct admission_operations operations = {
        .accept = accept_connection, .adopt = adopt_connection, .drop = drop_newcomer};
    *acceptor = (struct acceptor){
        .hub = hub,
        .admission = {.operations = &operations, .owner = acceptor, .poller = poller, .rank = hub->rank}};
    pthread_mutex_init(&acceptor->lock, NULL);
}

void acceptor_close(struct acceptor *acceptor)
{
    admission_close(&acceptor->admission);
    while (acceptor->authenticated)
        attempt_free(attempts_pop(&acceptor->authenticated));
    pthread_mutex_destroy(&acceptor->lock);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    const struct newcomer *oldest = acceptor->admission.oldest;
    struct newcomer *each = acceptor->admission.oldest;
    for (; each; each = each->next == oldest ? NULL : each->next)
        socket_close(&attempt_of_newcomer(each)->candidate.socket.fd);
    attempts_abandon(acceptor->authenticated);
    admission_abandon(&acceptor->admission);
}

/* ---- claimants ---------------------------------------------------------------------------------------- */

void acceptor_add_claimant(struct acceptor *acceptor, struct claimant *claimant)
{
    pthread_mutex_lock(&acceptor->lock);
    claimant->next = acceptor->claimants;
    acceptor->claimants = claimant;
    pthread_mutex_unlock(&acceptor->lock);
    platform_event_set(claimant->event);
}

void acceptor_remove_claimant(struct acceptor *acceptor, const struct claimant *claimant)
{
    pthread_mutex_lock(&acceptor->lock);
    struct claimant **place = &acceptor->claimants;
    while (*place && *place != claimant)
        place = &(*place)->next;
    if (*place)
        *place = claimant->next;
    pthread_mutex_unlock(&acceptor->lock);
}

hvd_code acceptor_read_fault(struct acceptor *acceptor, struct claimant *claimant, hvd_status *status)
{
    platform_event_clear(claimant->event);
    pthread_mutex_lock(&acceptor->lock);
    hvd_code code = claimant->fault.code ? status_copy(status, &claimant->fault) : HVD_OK;
    pthread_mutex_unlock(&acceptor->lock);
    return code;
}

/* ---- progress ----------------------------------------------------------------------------------------- */

hvd_code acceptor_accept(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = admission_accept(&acceptor->admission, status);
    if (!code || !acceptor->hub->attached)
        return code;
    pthread_mutex_lock(&acceptor->lock);
    if (!acceptor->claimants)
        admission_log(&acceptor->admission, status->text);
    for (struct claimant *each = acceptor->claimants; each; each = each->next) {
        status_copy(&each->fault, status);
        platform_event_set(each->event);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return HVD_OK;
}

static void keep_authenticated(struct acceptor *acceptor, struct attempt *attempt)
{
    attempt->since = clock_now();
    pthread_mutex_lock(&acceptor->lock);
    attempts_push(&acceptor->authenticated, attempt);
    for (const struct claimant *each = acceptor->claimants; each; each = each->next)
        platform_event_set(each->event);
    pthread_mutex_unlock(&acceptor->lock);
}

void acceptor_advance(struct acceptor *acceptor, struct attempt *attempt)
{
    hvd_status fault;
    hvd_code code = attempt_advance(&attempt->candidate, &fault);
    if (code == HVD_IN_PROGRESS && attempt_watch(attempt, acceptor->admission.poller))
        return;
    admission_remove(&acceptor->admission, &attempt->newcomer);
    polled_unwatch(&attempt->candidate.socket);
    if (code == HVD_OK) {
        keep_authenticated(acceptor, attempt);
        return;
    }
    /* A rank that tries several addresses closes all connections except one. */
    if (code == HVD_IN_PROGRESS)
        status_no_memory(&fault);
    if (code != HVD_PEER_LOST)
        admission_log(&acceptor->admission, fault.text);
    attempt_free(attempt);
}

int64_t acceptor_keep_time(struct acceptor *acceptor)
{
    int64_t time = (int64_t)(acceptor->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    int64_t next = admission_keep_time(&acceptor->admission), now = clock_now();
    pthread_mutex_lock(&acceptor->lock);
    for (struct attempt **place = &acceptor->authenticated; *place;) {
        if (now - (*place)->since >= time) {
            attempt_free(attempts_pop(place));
            continue;
        }
        next = clock_earlier(next, (*place)->since + time);
        place = &(*place)->next;
    }
    pthread_mutex_unlock(&acceptor->lock);
    return next;
}

/* ---- what an authenticated claim must mean here ------------------------------------------------------- */

/* The higher rank connects: once for each channel and each further lane, or once. */
static bool is_plausible(const struct attempt *attempt, const struct mesh *mesh, const struct peer *peer)
{
    const struct handshake_claim *claim = &attempt->handshake.claim;
    uint32_t channels = (uint32_t)mesh->channels;
    uint32_t limit = transport_at(attempt->row)->connection_per_channel ? channels * (LANES_LIMIT + 1) : 1;
    return peer && channels && claim->from > claim->to && claim->channel < limit &&
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

/* Finds the peer of an authenticated attempt in the mesh that it names. */
static hvd_code identify(struct attempt *attempt, struct mesh *mesh, hvd_status *status)
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
    return status_set(
        status, HVD_REFUSED,
        "%s says it is rank %u and requests channel %u, which %s; two processes may share a rank "
        "(HOROVOD_RANK)",
        attempt->handshake.who, claim->from, claim->channel,
        plausible ? "is connected already" : "has no business here");
}

/* Returns the mesh that the attempt names, if it is this one or, for the hub, an attached one. */
static struct mesh *named_mesh(const struct attempt *attempt, struct mesh *mesh)
{
    unsigned number = attempt->handshake.claim.mesh;
    if (mesh->number == number)
        return mesh;
    return mesh->hub == mesh ? mesh_attached(mesh, number) : NULL;
}

static struct attempt *pop_authenticated(struct acceptor *acceptor, struct mesh *mesh)
{
    struct attempt *found = NULL;
    pthread_mutex_lock(&acceptor->lock);
    struct attempt **place = &acceptor->authenticated;
    while (*place && !named_mesh(*place, mesh))
        place = &(*place)->next;
    if (*place)
        found = attempts_pop(place);
    pthread_mutex_unlock(&acceptor->lock);
    return found;
}

struct attempt *acceptor_claim(struct acceptor *acceptor, struct mesh *mesh)
{
    struct attempt *attempt;
    hvd_status fault;
    while ((attempt = pop_authenticated(acceptor, mesh)) &&
           identify(attempt, named_mesh(attempt, mesh), &fault)) {
        log_warning(acceptor->hub->rank, "%s", fault.text); /* of an authenticated peer, in any thread */
        attempt_free(attempt);
    }
    return attempt;
}
