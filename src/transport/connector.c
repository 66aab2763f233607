/* connector.c - dials, claims and negotiates until links are there, and decides what a failure means. One
 * thread at a time. While a mesh is opened a failure is returned; later it is the loss of the peer. */
#include "transport/connector.h"

#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "transport/address_record.h"
#include "transport/lane_paths.h"
#include "transport/link_dial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_INTERVAL (CLOCK_SECOND / 20)
#define NEWS_PER_TURN  64

static bool is_hub(const struct connector *connector)
{
    return connector->mesh == connector->mesh->hub;
}

static struct acceptor *acceptor_of(const struct connector *connector)
{
    return connector->mesh->hub->acceptor;
}

/* ---- life --------------------------------------------------------------------------------------------- */

hvd_code connector_create(struct mesh *mesh, struct connector **connector, hvd_status *status)
{
    struct connector *created = calloc(1, sizeof *created);
    if (!created)
        return status_no_memory(status);
    *created = (struct connector){.mesh = mesh, .claimant.event = -1, .next = CLOCK_NEVER};
    created->poller = platform_poller_create();
    if (!is_hub(created))
        created->claimant.event = platform_event_create();
    *connector = created;
    if (created->poller < 0 ||
        (!is_hub(created) &&
         (created->claimant.event < 0 ||
          !platform_poller_add(created->poller, created->claimant.event, POLLER_READ, NULL))))
        return status_set_errno(status, errno, "rank %d can't make its descriptors", mesh->rank);
    if (!is_hub(created))
        acceptor_add_claimant(acceptor_of(created), &created->claimant);
    return HVD_OK;
}

void connector_free(struct connector *connector)
{
    if (!connector)
        return;
    if (!is_hub(connector))
        acceptor_remove_claimant(acceptor_of(connector), &connector->claimant);
    while (connector->dials)
        link_dial_remove(&connector->dials);
    while (connector->attempts)
        attempt_free(attempts_pop(&connector->attempts));
    socket_close(&connector->claimant.event);
    socket_close(&connector->poller);
    free(connector);
}

void connector_abandon(struct connector *connector)
{
    for (struct link_dial *link = connector->dials; link; link = link->next)
        for (int i = 0; i < link->dial.count; i++)
            socket_close(&link->attempts[i].candidate.socket.fd);
    attempts_abandon(connector->attempts);
    socket_close(&connector->claimant.event);
    socket_close(&connector->poller);
}

/* Writes why the peer has no links after the time to connect. */
static void report_unconnected(const struct connector *connector, const struct peer *peer, hvd_status *status)
{
    char who[128];
    const struct mesh *hub = peer->mesh->hub;
    const struct address_record *own = &hub->records[hub->rank];
    int row = 31 - __builtin_clz(peer->reachable); /* the last resort */
    status_set(status, HVD_TIMED_OUT,
               "%s has joined, but within %g s (HOROVOD_START_TIMEOUT) it and rank %d were not connected",
               peer_text(peer, who, sizeof who), hub->settings->start_timeout_seconds, hub->rank);
    for (const struct link_dial *link = connector->dials; link; link = link->next)
        if (link->peer == peer && !link->ended) {
            link_dial_append_outcomes(link, status);
            return;
        }
    if (peer->cause.code)
        append_text(status->text, sizeof status->text, ": %.300s", peer->cause.text);
    append_text(status->text, sizeof status->text, "; may its host reach host %s at", own->host);
    for (const char *at = own->addresses[row]; at; at = address_record_next(at))
        append_text(status->text, sizeof status->text, "%s %.*s", at == own->addresses[row] ? "" : " or",
                    (int)strcspn(at, "\n"), at);
    append_text(status->text, sizeof status->text, "?");
}

/* ---- how attempts end --------------------------------------------------------------------------------- */

/* A mesh that is being opened fails as a whole; in use the peer is lost. */
static hvd_code fail_peer(struct connector *connector, struct peer *peer, hvd_status *status)
{
    if (!peer->mesh->attached)
        return status->code;
    hvd_status cause = *status;
    cause.code = HVD_PEER_LOST;
    for (struct link_dial *link = connector->dials; link; link = link->next)
        link->ended |= link->peer == peer;
    for (struct attempt *attempt = connector->attempts; attempt; attempt = attempt->next)
        if (attempt->peer == peer)
            attempt->stage = ATTEMPT_ENDED;
    peer_give_up(peer, &cause);
    return HVD_OK;
}

/* `address`: at which this rank has reached the peer. */
static hvd_code make_links(struct attempt *attempt, int address, hvd_status *status)
{
    struct peer *peer = attempt->peer;
    int lane = attempt->number / peer->mesh->channels;
    int fd = attempt->candidate.socket.fd;
    struct tls *tls = attempt->handshake.tls;
    polled_unwatch(&attempt->candidate.socket);
    attempt->candidate.socket.fd = -1;
    attempt->handshake.tls = NULL;
    peer->transport = transport_at(attempt->row);
    hvd_code code = peer->transport->open(peer, attempt->number, fd, tls, attempt->state, status);
    peer->lanes |= lane ? 1U << lane : 0;
    peer->address = lane == 1 ? address : peer->address;
    if (lane > 1)
        return code;
    for (int channel = 0; channel < peer->mesh->channels; channel++)
        if (!peer->links[channel])
            return code;
    if (!code && !peer_linked(peer))
        code = status_set_errno(status, errno, "rank %d can't wait for news of rank %d", peer->mesh->rank,
                                peer->rank);
    return code;
}

/* ---- what this rank dials ----------------------------------------------------------------------------- */

/* Returns the next row that reaches the peer, or -1. */
static int next_row(const struct peer *peer, int row)
{
    while (transport_at(++row))
        if (peer->reachable >> row & 1)
            return row;
    return -1;
}

/* The next turn starts it. `address`: as in link_dial_create. */
static hvd_code add_dial(struct connector *connector, struct peer *peer, int row, int number, int address,
                         hvd_status *status)
{
    struct link_dial *link = link_dial_create(peer, row, number, address, connector->poller);
    if (!link)
        return status_no_memory(status);
    atfork_lock();
    link->next = connector->dials;
    connector->dials = link;
    atfork_unlock();
    connector->next = 0;
    return HVD_OK;
}

static hvd_code add_dials(struct connector *connector, struct peer *peer, int row, hvd_status *status)
{
    int channels = peer->mesh->channels;
    int connections = transport_at(row)->connection_per_channel ? channels : 1;
    for (int channel = 0; channel < connections; channel++) {
        int lane = lane_paths_count(peer, row, channel) > 1;
        TRY(add_dial(connector, peer, row, lane * channels + channel, -1, status));
    }
    return HVD_OK;
}

/* A transport did not work: the end that dials continues with the next one, for which the other end waits. */
static hvd_code fall_back(struct connector *connector, struct peer *peer, int row, bool dials,
                          hvd_status *status)
{
    char who[128];
    const char *name = transport_at(row)->name;
    int next = next_row(peer, row);
    peer_text(peer, who, sizeof who);
    if (next < 0)
        return status_set(status, HVD_UNSUPPORTED,
                          "can't use %s with %s: %.300s; HOROVOD_TRANSPORT=auto would try other transports",
                          name, who, peer->cause.text);
    log_info(peer->mesh->rank, "no %s with %s, using %s: %s", name, who, transport_at(next)->name,
             peer->cause.text);
    return dials ? add_dials(connector, peer, next, status) : HVD_OK;
}

static hvd_code use_next_transport(struct connector *connector, struct link_dial *link, hvd_status *status)
{
    link->ended = true;
    hvd_code code = fall_back(connector, link->peer, link->row, true, status);
    return code ? fail_peer(connector, link->peer, status) : HVD_OK;
}

/* Returns HVD_OK unless the whole mesh fails. */
static hvd_code all_have_failed(struct connector *connector, struct link_dial *link, hvd_status *status)
{
    if (link_dial_is_optional(link)) {
        link_dial_give_up(link);
        return HVD_OK;
    }
    if (link_dial_has_failed_with(link, HVD_PEER_LOST)) {
        link->again_at = clock_now() + RETRY_INTERVAL;
        return HVD_OK;
    }
    if (link_dial_has_failed_with(link, HVD_UNSUPPORTED))
        return use_next_transport(connector, link, status);
    status_copy(status, &link->peer->cause);
    if (link->dial.count > 1)
        link_dial_append_outcomes(link, status);
    return fail_peer(connector, link->peer, status);
}

/* `code` and `status`: those of dial_turn or dial_advance. Returns HVD_OK unless the whole mesh fails. */
static hvd_code conclude_dial(struct connector *connector, struct link_dial *link, hvd_code code,
                              hvd_status *status)
{
    switch (code) {
    case HVD_IN_PROGRESS:
        return HVD_OK;
    case HVD_PEER_LOST:
        return all_have_failed(connector, link, status);
    case HVD_OK:
        link->ended = true;
        code = make_links(attempt_of(link->dial.winner), link->first + dial_index(link->dial.winner), status);
        return code ? fail_peer(connector, link->peer, status) : HVD_OK;
    case HVD_UNSUPPORTED:
        status_copy(&link->peer->cause, status);
        return use_next_transport(connector, link, status);
    default:
        return fail_peer(connector, link->peer, status);
    }
}

/* ---- what this rank has accepted ---------------------------------------------------------------------- */

/* Returns HVD_OK unless the whole mesh fails. */
static hvd_code advance_accepted(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = attempt_advance(&attempt->candidate, &fault);
    if (code == HVD_IN_PROGRESS) {
        if (attempt_watch(attempt, connector->poller))
            return HVD_OK;
        code = status_set_errno(&fault, errno, "rank %d can't wait for its connections", attempt->mesh->rank);
    }
    if (code)
        status_copy(&attempt->peer->cause, &fault);
    switch (code) {
    case HVD_OK:
        code = make_links(attempt, 0, status);
        break;
    case HVD_UNSUPPORTED:
        code = fall_back(connector, attempt->peer, attempt->row, false, status);
        break;
    case HVD_SYSTEM: /* a fault of this rank */
        status_copy(status, &fault);
        break;
    default:
        log_warning(attempt->mesh->rank, "%s", fault.text);
        code = HVD_OK;
    }
    /* After a failure the peer sees the end of the connection once the cause is published. */
    if (code)
        return fail_peer(connector, attempt->peer, status);
    attempt->stage = ATTEMPT_ENDED;
    return HVD_OK;
}

static hvd_code claim_authenticated(struct connector *connector, hvd_status *status)
{
    struct attempt *attempt;
    while ((attempt = acceptor_claim(acceptor_of(connector), connector->mesh))) {
        attempts_push(&connector->attempts, attempt);
        connector->next = 0;
        TRY(advance_accepted(connector, attempt, status));
    }
    return HVD_OK;
}

/* ---- a turn ------------------------------------------------------------------------------------------- */

static hvd_code keep_time_of(struct connector *connector, struct link_dial *link, hvd_status *status)
{
    int64_t now = clock_now();
    if (link->ended || link_dial_due(link) > now)
        return HVD_OK;
    if (link_dial_deadline(link) <= now) {
        if (link_dial_is_optional(link)) {
            link_dial_give_up(link);
            return HVD_OK;
        }
        report_unconnected(connector, link->peer, status);
        return fail_peer(connector, link->peer, status);
    }
    if (link->again_at <= now)
        dial_restart(&link->dial);
    link->again_at = CLOCK_NEVER;
    return conclude_dial(connector, link, dial_turn(&link->dial, status), status);
}

/* Starts what is due, and frees what has ended. */
static hvd_code keep_time(struct connector *connector, hvd_status *status)
{
    connector->next = is_hub(connector) ? acceptor_keep_time(acceptor_of(connector)) : CLOCK_NEVER;
    for (struct link_dial *link = connector->dials; link; link = link->next)
        TRY(keep_time_of(connector, link, status));
    for (struct link_dial **place = &connector->dials; *place;) {
        if ((*place)->ended) {
            link_dial_remove(place);
            continue;
        }
        connector->next = clock_earlier(connector->next, link_dial_due(*place));
        place = &(*place)->next;
    }
    for (struct attempt **place = &connector->attempts; *place;) {
        if ((*place)->stage == ATTEMPT_ENDED)
            attempt_free(attempts_pop(place));
        else
            place = &(*place)->next;
    }
    return HVD_OK;
}

/* The poller has reported the attempt, which may have ended since. */
static hvd_code advance(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    if (attempt_is_dialled(attempt)) {
        struct link_dial *link = (struct link_dial *)attempt->candidate.dial;
        if (link->ended || attempt->candidate.socket.fd < 0)
            return HVD_OK;
        return conclude_dial(connector, link, dial_advance(&attempt->candidate, status), status);
    }
    if (!attempt->peer)
        acceptor_advance(acceptor_of(connector), attempt);
    else if (attempt->stage != ATTEMPT_ENDED)
        return advance_accepted(connector, attempt, status);
    return HVD_OK;
}

hvd_code connector_turn(struct connector *connector, hvd_status *status)
{
    struct poller_news news[NEWS_PER_TURN];
    struct acceptor *acceptor = acceptor_of(connector);
    int count = platform_poller_read(connector->poller, news, NEWS_PER_TURN);
    bool arrived = false;
    for (int i = 0; i < count; i++) {
        if (news[i].tag)
            TRY(advance(connector, news[i].tag, status));
        else
            arrived = true;
    }
    if (arrived)
        TRY(is_hub(connector) ? acceptor_accept(acceptor, status)
                              : acceptor_read_fault(acceptor, &connector->claimant, status));
    TRY(claim_authenticated(connector, status));
    return keep_time(connector, status);
}

void connector_turn_logged(struct connector *connector)
{
    hvd_status fault;
    if (connector_turn(connector, &fault))
        log_warning(connector->mesh->rank, "%s", fault.text);
}

static void connector_ready(void *owner, unsigned what)
{
    (void)what;
    connector_turn_logged(owner);
}

bool connector_watch(struct connector *connector)
{
    struct mesh *hub = connector->mesh;
    connector->watch = (struct watch){connector_ready, connector};
    hub->watches = true;
    return platform_poller_add(hub->poller, connector->poller, POLLER_READ, &connector->watch);
}

/* ---- on first use ------------------------------------------------------------------------------------- */

void connector_want(struct connector *connector, struct peer *peer)
{
    hvd_status status;
    peer->wanted = true;
    peer->deadline = clock_after(peer->mesh->hub->settings->start_timeout_seconds);
    connector->next = 0;
    if (peer->rank < peer->mesh->rank && add_dials(connector, peer, next_row(peer, -1), &status))
        fail_peer(connector, peer, &status);
}

bool peer_want_lanes(struct peer *peer, int channel)
{
    const struct mesh *mesh = peer->mesh;
    hvd_status status;
    int row = 0;
    if (!mesh->attached)
        return false;
    while (transport_at(row) != peer->transport)
        row++;
    int lanes = lane_paths_count(peer, row, channel);
    for (int lane = 2; lane <= lanes; lane++)
        if (add_dial(mesh->hub->connector, peer, row, lane * mesh->channels + channel,
                     lane_paths_address(peer, row, lane), &status))
            break;
    return true;
}

void connector_forget(struct connector *connector, const struct mesh *mesh)
{
    if (!connector)
        return;
    for (struct link_dial **place = &connector->dials; *place;) {
        if ((*place)->peer->mesh == mesh)
            link_dial_remove(place);
        else
            place = &(*place)->next;
    }
    for (struct attempt **place = &connector->attempts; *place;) {
        if ((*place)->mesh == mesh)
            attempt_free(attempts_pop(place));
        else
            place = &(*place)->next;
    }
}

/* ---- opening a mesh ----------------------------------------------------------------------------------- */

static const struct peer *find_incomplete(const struct mesh *mesh)
{
    for (int i = 0; i < mesh->peer_count; i++)
        if (mesh->peers[i].neighbour && !mesh->peers[i].linked)
            return &mesh->peers[i];
    return NULL;
}

/* Asks now and then, but not at once, whether a peer has published a failure. */
static hvd_code check_peers(const struct mesh_config *config, int64_t *next, hvd_status *status)
{
    int64_t now = clock_now();
    if (now < *next)
        return HVD_OK;
    hvd_code code = *next ? address_record_failure(config, status) : HVD_OK;
    *next = now + ADDRESS_RECORD_LOOK_INTERVAL;
    return code;
}

hvd_code connector_run(struct connector *connector, const struct mesh_config *config, hvd_status *status)
{
    int64_t next_check = 0;
    for (int i = 0; i < connector->mesh->peer_count; i++) {
        struct peer *peer = &connector->mesh->peers[i];
        if (peer->neighbour && peer->rank < connector->mesh->rank)
            TRY(add_dials(connector, peer, next_row(peer, -1), status));
    }
    for (;;) {
        TRY(connector_turn(connector, status));
        const struct peer *incomplete = find_incomplete(connector->mesh);
        if (!incomplete)
            return HVD_OK;
        if (clock_now() >= config->deadline) {
            report_unconnected(connector, incomplete, status);
            return HVD_TIMED_OUT;
        }
        if (interrupt_is_set(config->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while connecting to the other ranks");
        TRY(check_peers(config, &next_check, status));
        int64_t next = clock_earlier(connector->next, next_check);
        platform_poller_wait(connector->poller, -1,
                             clock_earlier(next, interrupt_slice(config->interrupt, config->deadline)));
    }
}
