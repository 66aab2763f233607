/* connect.c - how two ranks come to be connected: one attempt, the lanes of a striped link, the acceptor, and
 * the connector, from below to above. */
#include "transport/connect.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"
#include "transport/address_record.h"
#include "transport/lanes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ==== an attempt
 * ============================================================================================= */

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

static struct attempt *allocate_attempt(struct mesh *mesh, int row, int fd)
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
    struct attempt *attempt = allocate_attempt(hub, row, fd);
    if (!attempt)
        return NULL;
    attempt->stage = ATTEMPT_SHAKING;
    handshake_accept(&attempt->handshake, hub->settings->secret, &expected, who);
    return attempt;
}

struct attempt *attempt_for_peer(struct peer *peer, int row, int number, int address)
{
    struct attempt *attempt = allocate_attempt(peer->mesh, row, -1);
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
    return address_record_get(&hub->records[attempt->peer->rank], &hub->records[hub->rank], attempt->row,
                              index);
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

/* ==== lanes
 * ================================================================================================== */

struct rail {
    int address; /* by address_record_get, of the peer */
    struct route route;
};

/* Interfaces that this rank must not use have no address in its record; an address of this host leads to
 * itself. */
static bool find_route(const struct peer *peer, int row, const char *address, struct route *route)
{
    const struct mesh *hub = peer->mesh->hub;
    return transport_at(row)->route(address, route) && !address_record_has_address(address, route->source) &&
           address_record_has_address(hub->records[hub->rank].addresses[row], route->source);
}

static int find_interface(const struct rail *rails, int count, const struct route *route)
{
    int i = 0;
    while (i < count && strcmp(rails[i].route.interface, route->interface) != 0)
        i++;
    return i;
}

static const char *address_at(const struct peer *peer, int row, int index)
{
    const struct mesh *hub = peer->mesh->hub;
    return address_record_get(&hub->records[peer->rank], &hub->records[hub->rank], row, index);
}

/* One for each interface; none where the peer is on this host. */
static int find_rails(const struct peer *peer, int row, struct rail rails[LANES_LIMIT])
{
    int count = 0;
    const char *address;
    for (int i = 0; count < LANES_LIMIT && (address = address_at(peer, row, i)); i++) {
        struct rail *rail = &rails[count];
        rail->address = i;
        if (find_route(peer, row, address, &rail->route))
            count += find_interface(rails, count, &rail->route) == count;
    }
    return count;
}

int rails_lanes(const struct peer *peer, int row, int channel)
{
    struct rail rails[LANES_LIMIT];
    int lanes = (int)peer->mesh->hub->settings->sockets_per_peer;
    if (!transport_at(row)->route || !channel || channel != peer->mesh->striped_channel)
        return 1;
    if (!lanes && address_at(peer, row, 1))
        lanes = find_rails(peer, row, rails);
    return lanes ? lanes : 1;
}

/* The rails take turns, from that of the first lane on. */
int rails_address(const struct peer *peer, int row, int lane)
{
    struct rail rails[LANES_LIMIT];
    struct route first;
    int count = find_rails(peer, row, rails);
    if (!count || !find_route(peer, row, address_at(peer, row, peer->address), &first))
        return peer->address;
    return rails[(find_interface(rails, count, &first) + lane - 1) % count].address;
}

/* ==== the acceptor
 * =========================================================================================== */

#define ACCEPT_PAUSE (CLOCK_SECOND / 20)

/* ---- life --------------------------------------------------------------------------------------------- */

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller)
{
    *acceptor = (struct acceptor){.hub = hub, .poller = poller};
    pthread_mutex_init(&acceptor->lock, NULL);
}

/* The lists change under atfork_lock, so that a child of fork() finds them whole. */
static void push_attempt(struct attempt **list, struct attempt *attempt)
{
    atfork_lock();
    attempt->next = *list;
    *list = attempt;
    atfork_unlock();
}

static struct attempt *take_attempt(struct attempt **place)
{
    atfork_lock();
    struct attempt *attempt = *place;
    *place = attempt->next;
    atfork_unlock();
    return attempt;
}

void acceptor_close(struct acceptor *acceptor)
{
    while (acceptor->attempts)
        attempt_free(take_attempt(&acceptor->attempts));
    while (acceptor->authenticated)
        attempt_free(take_attempt(&acceptor->authenticated));
    for (int i = 0; i < acceptor->listener_count; i++)
        socket_close(&acceptor->listeners[i].fd);
    pthread_mutex_destroy(&acceptor->lock);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    for (struct attempt *attempt = acceptor->attempts; attempt; attempt = attempt->next)
        socket_close(&attempt->fd);
    for (struct attempt *attempt = acceptor->authenticated; attempt; attempt = attempt->next)
        socket_close(&attempt->fd);
    for (int i = 0; i < acceptor->listener_count; i++)
        socket_close(&acceptor->listeners[i].fd);
}

hvd_code acceptor_listen(struct acceptor *acceptor, int row, int listener, hvd_status *status)
{
    acceptor->listeners[acceptor->listener_count].fd = listener;
    acceptor->listeners[acceptor->listener_count++].row = row;
    if (platform_poller_add(acceptor->poller, listener, POLLER_READ, NULL))
        return HVD_OK;
    return status_set_errno(status, errno, "rank %d can't wait for connections", acceptor->hub->rank);
}

void acceptor_log(struct acceptor *acceptor, const char *text)
{
    int held;
    if (rate_limit_allows(&acceptor->rate_limit, &held))
        log_warning(acceptor->hub->rank, "%s%s", text, held ? " (and more before it)" : "");
}

/* 0: it goes on. */
static void pause_until(struct acceptor *acceptor, int64_t until)
{
    acceptor->paused_until = until;
    for (int i = 0; i < acceptor->listener_count; i++)
        platform_poller_change(acceptor->poller, acceptor->listeners[i].fd, until ? 0 : POLLER_READ, NULL);
}

/* ---- unauthenticated connections ---------------------------------------------------------------------- */

static struct attempt *unlist(struct acceptor *acceptor, const struct attempt *attempt)
{
    struct attempt **place = &acceptor->attempts;
    while (*place != attempt)
        place = &(*place)->next;
    acceptor->count--;
    return take_attempt(place);
}

static struct attempt *find_oldest(const struct acceptor *acceptor)
{
    struct attempt *oldest = acceptor->attempts;
    while (oldest && oldest->next)
        oldest = oldest->next;
    return oldest;
}

/* The newest comes first in the list. */
static struct attempt *find_dispensable(const struct acceptor *acceptor)
{
    struct attempt *silent = NULL;
    for (struct attempt *each = acceptor->attempts; each; each = each->next)
        silent = handshake_is_silent(&each->handshake) ? each : silent;
    return silent ? silent : find_oldest(acceptor);
}

/* 0: the next connection may be accepted; else until when it has to wait. */
static int64_t wait_for_room(const struct acceptor *acceptor, int listener)
{
    if (acceptor->count < UNAUTHENTICATED_LIMIT)
        return 0;
    const struct attempt *attempt = find_dispensable(acceptor);
    return handshake_wait_for_room(listener, attempt->since, handshake_is_silent(&attempt->handshake));
}

/* In a flood the oldest are dropped, so that a rank's own connection gets its turn. */
static void make_room(struct acceptor *acceptor)
{
    if (acceptor->count < UNAUTHENTICATED_LIMIT)
        return;
    acceptor_log(acceptor, "too many connections without a handshake; dropping the oldest");
    attempt_free(unlist(acceptor, find_dispensable(acceptor)));
}

static void acceptor_add(struct acceptor *acceptor, int row, int fd, const char *who)
{
    struct attempt *attempt = attempt_accept(acceptor->hub, row, fd, who);
    if (!attempt || !attempt_watch(attempt, acceptor->poller)) {
        attempt_free(attempt);
        acceptor_log(acceptor, "out of memory for a connection");
        return;
    }
    push_attempt(&acceptor->attempts, attempt);
    acceptor->count++;
}

static hvd_code lack_descriptors(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = status_set_errno(status, errno, "can't accept a connection of another rank");
    if (!acceptor->hub->attached)
        return code;
    pthread_mutex_lock(&acceptor->lock);
    if (!acceptor->connectors)
        acceptor_log(acceptor, status->text);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed) {
        status_copy(&connector->fault, status);
        platform_event_set(connector->event);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return HVD_OK;
}

/* HVD_IN_PROGRESS: the rest has to wait a little, until *until. */
static hvd_code accept_all(struct acceptor *acceptor, int listener, int row, int64_t *until,
                           hvd_status *status)
{
    while (!(*until = wait_for_room(acceptor, listener))) {
        char who[SOCKET_TEXT];
        int fd = transport_at(row)->accept(listener, who);
        if (fd >= 0) {
            make_room(acceptor);
            acceptor_add(acceptor, row, fd, who);
        } else if (errno == EAGAIN) {
            return HVD_OK;
        } else if (errno == EPERM) {
            acceptor_log(acceptor, "a process of another user tried to connect");
        } else if (errno == EMFILE || errno == ENFILE) {
            hvd_code code = lack_descriptors(acceptor, status);
            *until = clock_now() + ACCEPT_PAUSE;
            return code ? code : HVD_IN_PROGRESS;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            *until = clock_now() + ACCEPT_PAUSE; /* short of memory */
            break;
        }
    }
    return HVD_IN_PROGRESS;
}

hvd_code acceptor_accept(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; i < acceptor->listener_count && !acceptor->paused_until; i++) {
        int64_t until;
        code = accept_all(acceptor, acceptor->listeners[i].fd, acceptor->listeners[i].row, &until, status);
        if (code)
            pause_until(acceptor, until);
        if (code && code != HVD_IN_PROGRESS)
            return code;
    }
    return HVD_OK;
}

static void hand_over(struct acceptor *acceptor, struct attempt *attempt)
{
    attempt->since = clock_now();
    pthread_mutex_lock(&acceptor->lock);
    push_attempt(&acceptor->authenticated, attempt);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed)
        platform_event_set(connector->event);
    pthread_mutex_unlock(&acceptor->lock);
}

void acceptor_advance(struct acceptor *acceptor, struct attempt *attempt)
{
    hvd_status fault;
    hvd_code code = attempt_advance(attempt, &fault);
    if (code == HVD_IN_PROGRESS && attempt_watch(attempt, acceptor->poller))
        return;
    unlist(acceptor, attempt);
    attempt_unwatch(attempt);
    if (code == HVD_OK) {
        hand_over(acceptor, attempt);
        return;
    }
    /* Who tries several addresses closes all connections but one. */
    if (code != HVD_PEER_LOST)
        acceptor_log(acceptor, code == HVD_IN_PROGRESS ? "out of memory for a connection" : fault.text);
    attempt_free(attempt);
}

/* Of a mesh that this rank has not opened, or has closed. */
static void drop_unclaimed(struct acceptor *acceptor, int64_t now, int64_t *next)
{
    int64_t time = (int64_t)(acceptor->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    pthread_mutex_lock(&acceptor->lock);
    for (struct attempt **place = &acceptor->authenticated; *place;) {
        if (now - (*place)->since >= time) {
            attempt_free(take_attempt(place));
            continue;
        }
        *next = clock_earlier(*next, (*place)->since + time);
        place = &(*place)->next;
    }
    pthread_mutex_unlock(&acceptor->lock);
}

int64_t acceptor_keep_time(struct acceptor *acceptor)
{
    int64_t now = clock_now(), next = CLOCK_NEVER;
    if (acceptor->paused_until && now >= acceptor->paused_until)
        pause_until(acceptor, 0);
    if (acceptor->paused_until)
        next = acceptor->paused_until;
    for (struct attempt *oldest; (oldest = find_oldest(acceptor));) {
        if (now - oldest->since < UNAUTHENTICATED_TIME) {
            next = clock_earlier(next, oldest->since + UNAUTHENTICATED_TIME);
            break;
        }
        acceptor_log(acceptor, "a connection did not finish its handshake in time");
        attempt_free(unlist(acceptor, oldest));
    }
    drop_unclaimed(acceptor, now, &next);
    return next;
}

/* ---- authenticated connections ------------------------------------------------------------------------ */

void acceptor_enlist(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    connector->next_listed = acceptor->connectors;
    acceptor->connectors = connector;
    pthread_mutex_unlock(&acceptor->lock);
    platform_event_set(connector->event); /* for what is there already */
}

void acceptor_delist(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct connector **place = &acceptor->connectors;
    while (*place && *place != connector)
        place = &(*place)->next_listed;
    if (*place)
        *place = connector->next_listed;
    pthread_mutex_unlock(&acceptor->lock);
}

struct attempt *acceptor_take(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct attempt **place = &acceptor->authenticated, *taken = NULL;
    while (*place && !connector_mesh(connector, (*place)->handshake.claim.mesh))
        place = &(*place)->next;
    if (*place)
        taken = take_attempt(place);
    pthread_mutex_unlock(&acceptor->lock);
    return taken;
}

/* ==== the connector
 * ========================================================================================== */

#define RETRY_INTERVAL (CLOCK_SECOND / 20)
#define NEWS_PER_TURN  64

/* When a peer's next address is tried as well, after the last one's connection was begun (RFC 8305 recommends
 * this), and after it was made, since a busy peer needs more time for the handshake than its kernel. */
#define NEXT_ADDRESS_DELAY   (CLOCK_SECOND / 4)
#define NEXT_HANDSHAKE_DELAY (CLOCK_SECOND / 2)

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
    *created = (struct connector){.mesh = mesh, .event = -1, .next = CLOCK_NEVER};
    created->poller = platform_poller_create();
    if (!is_hub(created))
        created->event = platform_event_create();
    *connector = created;
    if (created->poller < 0 ||
        (!is_hub(created) &&
         (created->event < 0 || !platform_poller_add(created->poller, created->event, POLLER_READ, NULL))))
        return status_set_errno(status, errno, "rank %d can't make its descriptors", mesh->rank);
    if (!is_hub(created))
        acceptor_enlist(acceptor_of(created), created);
    return HVD_OK;
}

static void drop_attempt(struct attempt **place)
{
    struct attempt *attempt = *place;
    atfork_lock();
    *place = attempt->next;
    atfork_unlock();
    attempt_free(attempt);
}

void connector_free(struct connector *connector)
{
    if (!connector)
        return;
    if (!is_hub(connector))
        acceptor_delist(acceptor_of(connector), connector);
    while (connector->attempts)
        drop_attempt(&connector->attempts);
    socket_close(&connector->event);
    socket_close(&connector->poller);
    free(connector);
}

void connector_abandon(struct connector *connector)
{
    for (struct attempt *attempt = connector->attempts; attempt; attempt = attempt->next)
        socket_close(&attempt->fd);
    socket_close(&connector->event);
    socket_close(&connector->poller);
}

/* Takes over the attempt, also on failure. */
static hvd_code connector_add(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    if (!attempt)
        return status_no_memory(status);
    atfork_lock();
    attempt->next = connector->attempts;
    connector->attempts = attempt;
    atfork_unlock();
    connector->next = 0;
    return HVD_OK;
}

/* ---- how attempts end ------------------------------------------------------------------------------- */

/* Nothing waits for the lanes behind the first. */
static bool is_optional(const struct attempt *attempt)
{
    return attempt->initiator && connection_lane(attempt) > 1;
}

/* Of one link there is an attempt for each of the peer's addresses. */
static bool same_link(const struct attempt *a, const struct attempt *b)
{
    return a->initiator && a->peer == b->peer && a->row == b->row && a->number == b->number &&
           a->stage != ATTEMPT_ENDED;
}

/* In the order of addresses, the one that follows the index; or NULL. */
static const struct attempt *find_attempt(const struct connector *connector, const struct attempt *like,
                                          int index)
{
    const struct attempt *found = NULL;
    for (const struct attempt *each = connector->attempts; each; each = each->next)
        if (same_link(each, like) && each->address > index && (!found || each->address < found->address))
            found = each;
    return found;
}

/* "; rank 3 (host a) tried: 10.0.0.2 port 4242 (from 10.0.0.1): no answer; ..." */
static void append_outcomes(const struct connector *connector, const struct attempt *like, char *text,
                            size_t capacity)
{
    const struct mesh *hub = connector->mesh->hub;
    append_text(text, capacity, "; rank %d (host %s) tried", hub->rank, hub->records[hub->rank].host);
    for (const struct attempt *each = find_attempt(connector, like, -1); each;
         each = find_attempt(connector, like, each->address)) {
        append_text(text, capacity, each->address ? "; " : ": ");
        attempt_append_outcome(each, text, capacity);
    }
}

/* Why the peer has no links after all that time. */
static void report_unconnected(const struct connector *connector, const struct peer *peer, hvd_status *status)
{
    char who[128];
    const struct mesh *hub = peer->mesh->hub;
    const struct address_record *own = &hub->records[hub->rank];
    int row = 31 - __builtin_clz(peer->reachable); /* the last resort */
    status_set(status, HVD_TIMED_OUT,
               "%s has joined, but within %g s (HOROVOD_START_TIMEOUT) it and rank %d were not connected",
               peer_text(peer, who, sizeof who), hub->settings->start_timeout_seconds, hub->rank);
    for (const struct attempt *each = connector->attempts; each; each = each->next)
        if (each->initiator && each->peer == peer && each->stage != ATTEMPT_ENDED) {
            append_outcomes(connector, each, status->text, sizeof status->text);
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

static void end_attempts(struct connector *connector, const struct peer *peer)
{
    for (struct attempt *attempt = connector->attempts; attempt; attempt = attempt->next)
        if (attempt->peer == peer)
            attempt->stage = ATTEMPT_ENDED;
}

/* While a mesh is opened that fails as a whole; in use the peer is lost. */
static hvd_code fail_peer(struct connector *connector, struct peer *peer, hvd_status *status)
{
    if (!peer->mesh->attached)
        return status->code;
    hvd_status cause = *status;
    cause.code = HVD_PEER_LOST;
    end_attempts(connector, peer);
    peer_give_up(peer, &cause);
    return HVD_OK;
}

static hvd_code make_links(struct attempt *attempt, hvd_status *status)
{
    struct peer *peer = attempt->peer;
    int lane = connection_lane(attempt);
    int fd = attempt->fd;
    struct tls *tls = attempt->handshake.tls;
    attempt_unwatch(attempt);
    attempt->fd = -1;
    attempt->handshake.tls = NULL;
    peer->transport = transport_at(attempt->row);
    hvd_code code = peer->transport->open(peer, attempt->number, fd, tls, attempt->state, status);
    peer->lanes |= lane ? 1U << lane : 0;
    peer->address = lane == 1 ? attempt->address : peer->address;
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

/* The next row that reaches the peer, or -1. */
static int next_row(const struct peer *peer, int row)
{
    while (transport_at(++row))
        if (peer->reachable >> row & 1)
            return row;
    return -1;
}

/* New attempts are paused until now: the next turn begins them. */
static hvd_code add_attempts(struct connector *connector, struct peer *peer, int row, hvd_status *status)
{
    hvd_code code = HVD_OK;
    int connections = transport_at(row)->connection_per_channel ? peer->mesh->channels : 1;
    for (int channel = 0; !code && channel < connections; channel++) {
        int lane = rails_lanes(peer, row, channel) > 1;
        code = connector_add(connector, attempt_for_peer(peer, row, lane * peer->mesh->channels + channel, 0),
                             status);
    }
    return code;
}

/* A transport did not work: the initiator goes on with the next one, the acceptor waits for that. */
static hvd_code fall_back(struct connector *connector, const struct attempt *attempt, const hvd_status *why,
                          hvd_status *status)
{
    char who[128];
    struct peer *peer = attempt->peer;
    const char *name = transport_at(attempt->row)->name;
    int next = next_row(peer, attempt->row);
    peer_text(peer, who, sizeof who);
    if (next < 0)
        return status_set(status, HVD_UNSUPPORTED,
                          "can't use %s with %s: %.300s; HOROVOD_TRANSPORT=auto would try other transports",
                          name, who, why->text);
    log_info(peer->mesh->rank, "no %s with %s, using %s: %s", name, who, transport_at(next)->name, why->text);
    return attempt->initiator ? add_attempts(connector, peer, next, status) : HVD_OK;
}

/* Only one of what is tried for a link becomes it. */
static void end_others(const struct connector *connector, const struct attempt *winner)
{
    for (struct attempt *each = connector->attempts; each; each = each->next)
        if (each != winner && same_link(each, winner))
            each->stage = ATTEMPT_ENDED;
}

static hvd_code try_next_address(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    attempt->next_due = CLOCK_NEVER;
    if (is_optional(attempt) || !attempt_address(attempt, attempt->address + 1) ||
        find_attempt(connector, attempt, attempt->address))
        return HVD_OK;
    return connector_add(connector,
                         attempt_for_peer(attempt->peer, attempt->row, attempt->number, attempt->address + 1),
                         status);
}

/* All addresses have failed: all are tried again if that may help. Else what the first one has to say is the
 * fault: the others may lead anywhere. */
static hvd_code end_round(struct connector *connector, const struct attempt *last, hvd_status *status)
{
    bool again = false;
    for (const struct attempt *each = connector->attempts; each; each = each->next)
        again |= same_link(each, last) && each->code == HVD_PEER_LOST;
    for (struct attempt *each = connector->attempts; again && each; each = each->next) {
        if (!same_link(each, last))
            continue;
        each->stage = ATTEMPT_PAUSED;
        each->since = clock_now() + RETRY_INTERVAL;
    }
    if (again)
        return HVD_OK;
    status_copy(status, &last->peer->cause);
    if (attempt_address(last, 1))
        append_outcomes(connector, last, status->text, sizeof status->text);
    return fail_peer(connector, last->peer, status);
}

/* Of what this rank began: the next address is tried at once. */
static hvd_code take_failure(struct connector *connector, struct attempt *attempt, hvd_code code,
                             const hvd_status *fault, hvd_status *status)
{
    attempt_fail(attempt, code, fault);
    if (attempt->address == 0)
        status_copy(&attempt->peer->cause, fault);
    if (try_next_address(connector, attempt, status))
        return fail_peer(connector, attempt->peer, status);
    for (const struct attempt *each = connector->attempts; each; each = each->next)
        if (same_link(each, attempt) && each->stage != ATTEMPT_FAILED)
            return HVD_OK;
    return end_round(connector, attempt, status);
}

static void give_up_lane(struct attempt *attempt)
{
    char who[128], outcome[256] = "";
    attempt_append_outcome(attempt, outcome, sizeof outcome);
    log_info(attempt->mesh->rank, "no further connection to %s: %s",
             peer_text(attempt->peer, who, sizeof who), outcome);
    attempt->stage = ATTEMPT_ENDED;
}

/* `code` and `fault` are the attempt's. Returns HVD_OK unless the whole mesh fails. */
static hvd_code settle_attempt(struct connector *connector, struct attempt *attempt, hvd_code code,
                               const hvd_status *fault, hvd_status *status)
{
    hvd_code outcome = HVD_OK;
    if (code == HVD_IN_PROGRESS) {
        if (attempt_watch(attempt, connector->poller))
            return HVD_OK;
        status_set_errno(status, errno, "rank %d can't wait for its connections", attempt->mesh->rank);
        return fail_peer(connector, attempt->peer, status);
    }
    if (code && is_optional(attempt)) {
        attempt_fail(attempt, code, fault);
        give_up_lane(attempt);
        return HVD_OK;
    }
    /* Once the peer is authenticated, only a lost connection is worth another attempt. */
    bool proven = attempt->stage == ATTEMPT_NEGOTIATING;
    if (code && code != HVD_UNSUPPORTED && attempt->initiator && (!proven || code == HVD_PEER_LOST))
        return take_failure(connector, attempt, code, fault, status);
    if (code)
        status_copy(&attempt->peer->cause, fault);
    if (code == HVD_OK) {
        end_others(connector, attempt);
        outcome = make_links(attempt, status);
    } else if (code == HVD_UNSUPPORTED) {
        outcome = fall_back(connector, attempt, fault, status);
    } else if (attempt->initiator || code == HVD_SYSTEM) { /* a fault of this rank */
        outcome = status_copy(status, fault);
    } else {
        acceptor_log(acceptor_of(connector), fault->text);
    }
    /* After a failure its peer sees the end of the connection once the cause is published. */
    if (outcome)
        return fail_peer(connector, attempt->peer, status);
    attempt->stage = ATTEMPT_ENDED;
    return HVD_OK;
}

static hvd_code begin_attempt(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = attempt_connect(attempt, &fault);
    attempt->next_due = clock_now() + NEXT_ADDRESS_DELAY;
    return settle_attempt(connector, attempt, code, &fault, status);
}

static hvd_code advance_attempt(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    bool connecting = attempt->stage == ATTEMPT_CONNECTING;
    hvd_code code = attempt_advance(attempt, &fault);
    if (connecting && attempt->next_due != CLOCK_NEVER)
        attempt->next_due = clock_now() + NEXT_HANDSHAKE_DELAY;
    return settle_attempt(connector, attempt, code, &fault, status);
}

/* ---- a turn ------------------------------------------------------------------------------------------- */

struct mesh *connector_mesh(const struct connector *connector, unsigned number)
{
    if (connector->mesh->number == number)
        return connector->mesh;
    return is_hub(connector) ? mesh_attached(connector->mesh, number) : NULL;
}

static hvd_code take_authenticated(struct connector *connector, hvd_status *status)
{
    hvd_code code = HVD_OK;
    struct attempt *attempt;
    while (!code && (attempt = acceptor_take(acceptor_of(connector), connector))) {
        hvd_status fault;
        struct mesh *mesh = connector_mesh(connector, attempt->handshake.claim.mesh);
        if (attempt_identify(attempt, mesh, &fault)) {
            acceptor_log(acceptor_of(connector), fault.text);
            attempt_free(attempt);
            continue;
        }
        code = connector_add(connector, attempt, status);
        if (!code)
            code = advance_attempt(connector, attempt, status);
    }
    return code;
}

/* When it needs a turn though nothing arrives. */
static int64_t due_at(const struct attempt *attempt)
{
    const struct settings *settings = attempt->mesh->hub->settings;
    int64_t due = attempt->initiator && attempt->mesh->attached ? attempt->peer->deadline : CLOCK_NEVER;
    if (is_optional(attempt))
        due = attempt->since + (int64_t)(settings->start_timeout_seconds * CLOCK_SECOND);
    due = attempt->initiator ? clock_earlier(due, attempt->next_due) : due;
    return attempt->stage == ATTEMPT_PAUSED ? clock_earlier(due, attempt->since) : due;
}

static hvd_code keep_time_of(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    int64_t now = clock_now();
    if (attempt->stage == ATTEMPT_ENDED || due_at(attempt) > now)
        return HVD_OK;
    if (attempt->stage == ATTEMPT_PAUSED && attempt->since <= now)
        return begin_attempt(connector, attempt, status);
    if (attempt->next_due <= now)
        return try_next_address(connector, attempt, status) ? fail_peer(connector, attempt->peer, status)
                                                            : HVD_OK;
    if (is_optional(attempt)) {
        give_up_lane(attempt);
        return HVD_OK;
    }
    report_unconnected(connector, attempt->peer, status);
    return fail_peer(connector, attempt->peer, status);
}

/* Begins again what was paused, and frees what has ended. */
static hvd_code keep_time(struct connector *connector, hvd_status *status)
{
    hvd_code code = HVD_OK;
    connector->next = is_hub(connector) ? acceptor_keep_time(acceptor_of(connector)) : CLOCK_NEVER;
    for (struct attempt *attempt = connector->attempts; !code && attempt; attempt = attempt->next)
        code = keep_time_of(connector, attempt, status);
    for (struct attempt **place = &connector->attempts; !code && *place;) {
        if ((*place)->stage == ATTEMPT_ENDED) {
            drop_attempt(place);
            continue;
        }
        connector->next = clock_earlier(connector->next, due_at(*place));
        place = &(*place)->next;
    }
    return code;
}

/* An opening of another thread than that which accepts. */
static hvd_code take_event(struct connector *connector, hvd_status *status)
{
    struct acceptor *acceptor = acceptor_of(connector);
    platform_event_clear(connector->event);
    pthread_mutex_lock(&acceptor->lock);
    hvd_code code = connector->fault.code ? status_copy(status, &connector->fault) : HVD_OK;
    pthread_mutex_unlock(&acceptor->lock);
    return code;
}

hvd_code connector_turn(struct connector *connector, hvd_status *status)
{
    struct poller_news news[NEWS_PER_TURN];
    int count = platform_poller_take(connector->poller, news, NEWS_PER_TURN);
    bool arrived = false;
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < count; i++) {
        struct attempt *attempt = news[i].tag;
        if (!attempt)
            arrived = true;
        else if (!attempt->peer)
            acceptor_advance(acceptor_of(connector), attempt);
        else if (attempt->stage != ATTEMPT_ENDED)
            code = advance_attempt(connector, attempt, status);
    }
    if (!code && arrived)
        code = is_hub(connector) ? acceptor_accept(acceptor_of(connector), status)
                                 : take_event(connector, status);
    if (!code)
        code = take_authenticated(connector, status);
    return code ? code : keep_time(connector, status);
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
    if (peer->rank < peer->mesh->rank && add_attempts(connector, peer, next_row(peer, -1), &status))
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
    int lanes = rails_lanes(peer, row, channel);
    for (int lane = 2; lane <= lanes; lane++) {
        struct attempt *attempt =
            attempt_for_peer(peer, row, lane * mesh->channels + channel, rails_address(peer, row, lane));
        if (connector_add(mesh->hub->connector, attempt, &status))
            break;
    }
    return true;
}

void connector_forget(struct connector *connector, const struct mesh *mesh)
{
    for (struct attempt **place = connector ? &connector->attempts : NULL; place && *place;) {
        if ((*place)->mesh == mesh)
            drop_attempt(place);
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

static hvd_code add_initiators(struct connector *connector, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < connector->mesh->peer_count; i++) {
        struct peer *peer = &connector->mesh->peers[i];
        if (peer->neighbour && peer->rank < connector->mesh->rank)
            code = add_attempts(connector, peer, next_row(peer, -1), status);
    }
    return code;
}

/* Looks whether a peer has published a failure. */
static hvd_code check_peers(struct connector *connector, hvd_status *status)
{
    int64_t now = clock_now();
    if (now < connector->next_heartbeat)
        return HVD_OK;
    hvd_code failed = connector->next_heartbeat ? address_record_failure(connector->config, status) : HVD_OK;
    connector->next_heartbeat = now + ADDRESS_RECORD_LOOK_INTERVAL;
    return failed;
}

static hvd_code run_connector(struct connector *connector, hvd_status *status)
{
    const struct mesh_config *config = connector->config;
    hvd_code code = add_initiators(connector, status);
    while (!code) {
        code = connector_turn(connector, status);
        const struct peer *incomplete = code ? NULL : find_incomplete(connector->mesh);
        if (!incomplete)
            return code;
        if (clock_now() >= config->deadline) {
            report_unconnected(connector, incomplete, status);
            return HVD_TIMED_OUT;
        }
        if (interrupt_is_set(config->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while connecting to the other ranks");
        code = check_peers(connector, status);
        int64_t next = clock_earlier(connector->next, connector->next_heartbeat);
        if (!code)
            platform_poller_wait(connector->poller, -1,
                                 clock_earlier(next, interrupt_slice(config->interrupt, config->deadline)));
    }
    return code;
}

hvd_code connector_run(struct connector *connector, const struct mesh_config *config, hvd_status *status)
{
    connector->config = config;
    hvd_code code = run_connector(connector, status);
    connector->config = NULL;
    return code;
}
