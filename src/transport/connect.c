/* connect.c - how two ranks come to be connected: one attempt, the lanes of a striped link, the acceptor, and
 * the connector, each of which calls only those before it. */
#include "transport/connect.h"

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

#define RETRY_INTERVAL (CLOCK_SECOND / 20)
#define NEWS_PER_TURN  64

/* Lists change under atfork_lock, so that a child of fork() finds them whole. */
static void push_attempt(struct attempt **list, struct attempt *attempt)
{
    atfork_lock();
    attempt->next = *list;
    *list = attempt;
    atfork_unlock();
}

static struct attempt *pop_attempt(struct attempt **place)
{
    atfork_lock();
    struct attempt *attempt = *place;
    *place = attempt->next;
    atfork_unlock();
    return attempt;
}

/* ==== one attempt ====================================================================================== */

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

static bool is_dialled(const struct attempt *attempt)
{
    return attempt->candidate.dial != NULL;
}

static struct attempt *attempt_of(const struct candidate *candidate)
{
    return (struct attempt *)candidate;
}

static void release_attempt(struct attempt *attempt)
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
    release_attempt(attempt);
    free(attempt);
}

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

static hvd_code negotiate(struct attempt *attempt, hvd_status *status)
{
    const struct transport *transport = transport_at(attempt->row);
    if (!transport->negotiate)
        return HVD_OK;
    attempt->peer->index = peer_index(attempt->peer, attempt->row);
    return transport->negotiate(attempt->peer, attempt->candidate.socket.fd, &attempt->state, status);
}

/* HVD_IN_PROGRESS; HVD_OK: it is proven, or ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this transport does not work, another one may. */
static hvd_code attempt_advance(struct candidate *candidate, hvd_status *status)
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
        attempt->stage = is_dialled(attempt) ? ATTEMPT_NEGOTIATING : ATTEMPT_PROVEN;
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

static short attempt_events(const struct candidate *candidate)
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

static bool watch_attempt(struct attempt *attempt, int poller)
{
    return polled_watch(&attempt->candidate.socket, poller, attempt_events(&attempt->candidate), attempt);
}

/* ---- what this rank dials ----------------------------------------------------------------------------- */

/* One connection to a peer, dialled at each of its addresses.
 *
 * Connections to a peer are numbered: lane * channels + channel. Lane 0 is the whole link; of a striped one,
 * lane 1 is opened as lane 0 would be, and the further ones are opened once it has moved much. Only the end
 * that dials decides whether and how a link is striped. */
struct link_dial {
    struct dial dial;
    struct peer *peer;
    int row, number;
    int first; /* its first address, by address_record_get */
    int64_t since;
    int64_t again_at; /* all have failed, and are tried again then; CLOCK_NEVER: they are being tried */
    bool ended;
    struct link_dial *next;
    struct attempt attempts[]; /* by address */
};

static const char *address_of(const struct peer *peer, int row, int index)
{
    const struct mesh *hub = peer->mesh->hub;
    return address_record_get(&hub->records[peer->rank], &hub->records[hub->rank], row, index);
}

static int lane_of(const struct link_dial *link)
{
    return link->number / link->peer->mesh->channels;
}

/* Nothing waits for the lanes behind the first. */
static bool is_optional(const struct link_dial *link)
{
    return lane_of(link) > 1;
}

static const char *candidate_address(const struct candidate *candidate)
{
    const struct link_dial *link = (const struct link_dial *)candidate->dial;
    return address_of(link->peer, link->row, link->first + dial_index(candidate));
}

static hvd_code begin_attempt(struct candidate *candidate, hvd_status *status)
{
    char who[128];
    struct attempt *attempt = attempt_of(candidate);
    const struct mesh *hub = attempt->mesh->hub;
    struct handshake_claim claim = claim_of(hub, attempt->row);
    claim.from = claim.to;
    claim.to = (uint32_t)attempt->peer->rank;
    claim.channel = (uint32_t)attempt->number;
    claim.mesh = attempt->mesh->number;
    candidate->socket.fd = transport_at(attempt->row)->dial(candidate_address(candidate));
    if (candidate->socket.fd < 0)
        return cannot_connect(attempt, errno, status);
    attempt->stage = ATTEMPT_CONNECTING;
    TRY(handshake_initiate(&attempt->handshake, hub->settings->secret, &claim,
                           peer_text(attempt->peer, who, sizeof who), status));
    return HVD_IN_PROGRESS;
}

/* The first address has the word: the others may lead anywhere. */
static void end_attempt(struct candidate *candidate, const hvd_status *fault)
{
    struct attempt *attempt = attempt_of(candidate);
    if (fault && dial_index(candidate) == 0 && attempt->number / attempt->mesh->channels < 2)
        status_copy(&attempt->peer->cause, fault);
    release_attempt(attempt);
}

static void name_attempt(const struct candidate *candidate, char *text, size_t capacity)
{
    const char *address = candidate_address(candidate);
    snprintf(text, capacity, "%.*s", (int)strcspn(address, "\n"), address);
}

static const struct dial_operations dial_operations = {
    .begin = begin_attempt,
    .advance = attempt_advance,
    .events = attempt_events,
    .end = end_attempt,
    .name = name_attempt,
};

/* `address` < 0: at all addresses of the peer; NULL: memory is out. */
static struct link_dial *create_dial(struct peer *peer, int row, int number, int address, int poller)
{
    int count = address >= 0;
    while (address < 0 && address_of(peer, row, count))
        count++;
    struct link_dial *link = calloc(1, sizeof *link + (size_t)count * sizeof *link->attempts);
    if (!link)
        return NULL;
    link->peer = peer;
    link->row = row;
    link->number = number;
    link->first = address < 0 ? 0 : address;
    link->since = clock_now();
    link->again_at = CLOCK_NEVER;
    for (int i = 0; i < count; i++) {
        struct attempt *attempt = &link->attempts[i];
        attempt->mesh = peer->mesh;
        attempt->peer = peer;
        attempt->row = row;
        attempt->number = number;
    }
    dial_init(&link->dial, &dial_operations, poller, link->attempts, sizeof *link->attempts, count);
    return link;
}

/* ==== lanes of a striped link ========================================================================== */

/* A network path to a peer which leaves this host by an interface of its own. */
struct path_out {
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

static int find_interface(const struct path_out *paths, int count, const struct route *route)
{
    int i = 0;
    while (i < count && strcmp(paths[i].route.interface, route->interface) != 0)
        i++;
    return i;
}

/* One for each interface; none where the peer is on this host. */
static int find_paths(const struct peer *peer, int row, struct path_out paths[LANES_LIMIT])
{
    int count = 0;
    const char *address;
    for (int i = 0; count < LANES_LIMIT && (address = address_of(peer, row, i)); i++) {
        struct path_out *path = &paths[count];
        path->address = i;
        if (find_route(peer, row, address, &path->route))
            count += find_interface(paths, count, &path->route) == count;
    }
    return count;
}

/* The sockets over which messages of the channel go; 1: the link is not striped. */
static int count_lanes(const struct peer *peer, int row, int channel)
{
    struct path_out paths[LANES_LIMIT];
    int lanes = (int)peer->mesh->hub->settings->sockets_per_peer;
    if (!transport_at(row)->route || !channel || channel != peer->mesh->striped_channel)
        return 1;
    if (!lanes && address_of(peer, row, 1))
        lanes = find_paths(peer, row, paths);
    return lanes ? lanes : 1;
}

/* The peer's address for a lane behind the first, which is open: the paths take turns, from that of the first
 * lane on. */
static int lane_address(const struct peer *peer, int row, int lane)
{
    struct path_out paths[LANES_LIMIT];
    struct route first;
    int count = find_paths(peer, row, paths);
    if (!count || !find_route(peer, row, address_of(peer, row, peer->address), &first))
        return peer->address;
    return paths[(find_interface(paths, count, &first) + lane - 1) % count].address;
}

/* ==== the acceptor ===================================================================================== */

static int accept_connection(int listener, int row, char from[SOCKET_TEXT])
{
    return transport_at(row)->accept(listener, from);
}

static bool take_connection(void *owner, int fd, int row, const char *from)
{
    struct acceptor *acceptor = owner;
    const struct mesh *hub = acceptor->hub;
    struct handshake_claim expected = claim_of(hub, row);
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
    handshake_accept(&attempt->handshake, hub->settings->secret, &expected, from);
    if (!watch_attempt(attempt, acceptor->admission.poller)) {
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

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller)
{
    static const struct admission_operations operations = {
        .accept = accept_connection, .take = take_connection, .drop = drop_newcomer};
    *acceptor = (struct acceptor){
        .hub = hub,
        .admission = {.operations = &operations, .owner = acceptor, .poller = poller, .rank = hub->rank}};
    pthread_mutex_init(&acceptor->lock, NULL);
}

void acceptor_close(struct acceptor *acceptor)
{
    admission_close(&acceptor->admission);
    while (acceptor->authenticated)
        attempt_free(pop_attempt(&acceptor->authenticated));
    pthread_mutex_destroy(&acceptor->lock);
}

static void abandon_attempts(struct attempt *attempts)
{
    for (; attempts; attempts = attempts->next)
        socket_close(&attempts->candidate.socket.fd);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    const struct newcomer *oldest = acceptor->admission.oldest;
    struct newcomer *each = acceptor->admission.oldest;
    for (; each; each = each->next == oldest ? NULL : each->next)
        socket_close(&attempt_of_newcomer(each)->candidate.socket.fd);
    abandon_attempts(acceptor->authenticated);
    admission_abandon(&acceptor->admission);
}

/* Without a descriptor for a connection, meshes that are being opened fail; otherwise accepting is repeated
 * after a pause. */
static hvd_code accept_connections(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = admission_accept(&acceptor->admission, status);
    if (!code || !acceptor->hub->attached)
        return code;
    pthread_mutex_lock(&acceptor->lock);
    if (!acceptor->connectors)
        admission_log(&acceptor->admission, status->text);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed) {
        status_copy(&connector->fault, status);
        platform_event_set(connector->event);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return HVD_OK;
}

/* The attempt is authenticated: it waits for the connector of its mesh. */
static void keep_authenticated(struct acceptor *acceptor, struct attempt *attempt)
{
    attempt->since = clock_now();
    pthread_mutex_lock(&acceptor->lock);
    push_attempt(&acceptor->authenticated, attempt);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed)
        platform_event_set(connector->event);
    pthread_mutex_unlock(&acceptor->lock);
}

/* The poller has reported a newcomer. */
static void advance_newcomer(struct acceptor *acceptor, struct attempt *attempt)
{
    hvd_status fault;
    hvd_code code = attempt_advance(&attempt->candidate, &fault);
    if (code == HVD_IN_PROGRESS && watch_attempt(attempt, acceptor->admission.poller))
        return;
    admission_remove(&acceptor->admission, &attempt->newcomer);
    polled_unwatch(&attempt->candidate.socket);
    if (code == HVD_OK) {
        keep_authenticated(acceptor, attempt);
        return;
    }
    /* A rank that tries several addresses closes all connections except one. */
    if (code != HVD_PEER_LOST)
        admission_log(&acceptor->admission,
                      code == HVD_IN_PROGRESS ? "out of memory for a connection" : fault.text);
    attempt_free(attempt);
}

/* Drops connections to a mesh that this rank has not opened, or has closed. Returns when to call it again. */
static int64_t drop_unclaimed(struct acceptor *acceptor)
{
    int64_t time = (int64_t)(acceptor->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    int64_t now = clock_now(), next = CLOCK_NEVER;
    pthread_mutex_lock(&acceptor->lock);
    for (struct attempt **place = &acceptor->authenticated; *place;) {
        if (now - (*place)->since >= time) {
            attempt_free(pop_attempt(place));
            continue;
        }
        next = clock_earlier(next, (*place)->since + time);
        place = &(*place)->next;
    }
    pthread_mutex_unlock(&acceptor->lock);
    return next;
}

/* Until it is delisted the connector's event is set when an authenticated connection arrives. */
static void acceptor_enlist(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    connector->next_listed = acceptor->connectors;
    acceptor->connectors = connector;
    pthread_mutex_unlock(&acceptor->lock);
    platform_event_set(connector->event); /* for those that have arrived already */
}

static void acceptor_delist(struct acceptor *acceptor, const struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct connector **place = &acceptor->connectors;
    while (*place && *place != connector)
        place = &(*place)->next_listed;
    if (*place)
        *place = connector->next_listed;
    pthread_mutex_unlock(&acceptor->lock);
}

static bool is_hub(const struct connector *connector)
{
    return connector->mesh == connector->mesh->hub;
}

/* The mesh of this number, if the connector serves it, otherwise NULL. */
static struct mesh *connector_mesh(const struct connector *connector, unsigned number)
{
    if (connector->mesh->number == number)
        return connector->mesh;
    return is_hub(connector) ? mesh_attached(connector->mesh, number) : NULL;
}

struct attempt *acceptor_claim(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct attempt **place = &acceptor->authenticated, *claimed = NULL;
    while (*place && !connector_mesh(connector, (*place)->handshake.claim.mesh))
        place = &(*place)->next;
    if (*place)
        claimed = pop_attempt(place);
    pthread_mutex_unlock(&acceptor->lock);
    return claimed;
}

/* ---- what a proven claim must mean here --------------------------------------------------------------- */

/* Of a peer, or NULL: the higher rank connects, once for each channel and each further lane, or once. */
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

/* Finds the peer of a proven attempt in the mesh that it names. */
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
    return status_set(status, HVD_REFUSED,
                      "%s says it is rank %u and wants channel %u, which %s; two processes may share a rank "
                      "(HOROVOD_RANK)",
                      attempt->handshake.who, claim->from, claim->channel,
                      plausible ? "is connected already" : "has no business here");
}

/* ==== the connector ==================================================================================== */

static struct acceptor *acceptor_of(const struct connector *connector)
{
    return connector->mesh->hub->acceptor;
}

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

static void drop_dial(struct link_dial **place)
{
    struct link_dial *link = *place;
    atfork_lock();
    *place = link->next;
    atfork_unlock();
    dial_end(&link->dial);
    free(link);
}

void connector_free(struct connector *connector)
{
    if (!connector)
        return;
    if (!is_hub(connector))
        acceptor_delist(acceptor_of(connector), connector);
    while (connector->dials)
        drop_dial(&connector->dials);
    while (connector->attempts)
        attempt_free(pop_attempt(&connector->attempts));
    socket_close(&connector->event);
    socket_close(&connector->poller);
    free(connector);
}

void connector_abandon(struct connector *connector)
{
    for (struct link_dial *link = connector->dials; link; link = link->next)
        for (int i = 0; i < link->dial.count; i++)
            socket_close(&link->attempts[i].candidate.socket.fd);
    abandon_attempts(connector->attempts);
    socket_close(&connector->event);
    socket_close(&connector->poller);
}

/* ---- texts -------------------------------------------------------------------------------------------- */

/* "; rank 3 (host a) tried: 10.0.0.2 port 4242 (from 10.0.0.1): no answer; ..." */
static void append_outcomes(const struct link_dial *link, hvd_status *status)
{
    const struct mesh *hub = link->peer->mesh->hub;
    append_text(status->text, sizeof status->text, "; rank %d (host %s) tried", hub->rank,
                hub->records[hub->rank].host);
    dial_append_outcomes(&link->dial, status->text, sizeof status->text);
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
    for (const struct link_dial *link = connector->dials; link; link = link->next)
        if (link->peer == peer && !link->ended) {
            append_outcomes(link, status);
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

static void end_attempts(struct connector *connector, const struct peer *peer)
{
    for (struct link_dial *link = connector->dials; link; link = link->next)
        link->ended |= link->peer == peer;
    for (struct attempt *attempt = connector->attempts; attempt; attempt = attempt->next)
        if (attempt->peer == peer)
            attempt->stage = ATTEMPT_ENDED;
}

/* While a mesh is opened it fails as a whole; in use the peer is lost. */
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

/* The next row that reaches the peer, or -1. */
static int next_row(const struct peer *peer, int row)
{
    while (transport_at(++row))
        if (peer->reachable >> row & 1)
            return row;
    return -1;
}

/* The next turn starts it. `address` as in create_dial. */
static hvd_code add_dial(struct connector *connector, struct peer *peer, int row, int number, int address,
                         hvd_status *status)
{
    struct link_dial *link = create_dial(peer, row, number, address, connector->poller);
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
        int lane = count_lanes(peer, row, channel) > 1;
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

static void give_up_lane(struct link_dial *link)
{
    char who[128], outcome[256] = "";
    dial_append_outcomes(&link->dial, outcome, sizeof outcome);
    log_info(link->peer->mesh->rank, "no further connection to %s%s", peer_text(link->peer, who, sizeof who),
             outcome);
    link->ended = true;
}

static bool any_failed_with(const struct link_dial *link, hvd_code code)
{
    bool any = false;
    for (int i = 0; i < link->dial.count; i++)
        any |= link->attempts[i].candidate.code == code;
    return any;
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
    if (is_optional(link)) {
        give_up_lane(link);
        return HVD_OK;
    }
    if (any_failed_with(link, HVD_PEER_LOST)) {
        link->again_at = clock_now() + RETRY_INTERVAL;
        return HVD_OK;
    }
    if (any_failed_with(link, HVD_UNSUPPORTED))
        return use_next_transport(connector, link, status);
    status_copy(status, &link->peer->cause);
    if (link->dial.count > 1)
        append_outcomes(link, status);
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

/* Of an attempt that was accepted. Returns HVD_OK unless the whole mesh fails. */
static hvd_code advance_accepted(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = attempt_advance(&attempt->candidate, &fault);
    if (code == HVD_IN_PROGRESS) {
        if (watch_attempt(attempt, connector->poller))
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
        admission_log(&acceptor_of(connector)->admission, fault.text);
        code = HVD_OK;
    }
    /* After a failure the peer sees the end of the connection once the cause is published. */
    if (code)
        return fail_peer(connector, attempt->peer, status);
    attempt->stage = ATTEMPT_ENDED;
    return HVD_OK;
}

/* ---- a turn ------------------------------------------------------------------------------------------- */

static hvd_code claim_authenticated(struct connector *connector, hvd_status *status)
{
    struct attempt *attempt;
    while ((attempt = acceptor_claim(acceptor_of(connector), connector))) {
        hvd_status fault;
        struct mesh *mesh = connector_mesh(connector, attempt->handshake.claim.mesh);
        if (identify(attempt, mesh, &fault)) {
            admission_log(&acceptor_of(connector)->admission, fault.text);
            attempt_free(attempt);
            continue;
        }
        push_attempt(&connector->attempts, attempt);
        connector->next = 0;
        TRY(advance_accepted(connector, attempt, status));
    }
    return HVD_OK;
}

/* When the time to connect ends. */
static int64_t deadline_of(const struct link_dial *link)
{
    const struct mesh *mesh = link->peer->mesh;
    if (is_optional(link))
        return link->since + (int64_t)(mesh->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    return mesh->attached ? link->peer->deadline : CLOCK_NEVER; /* otherwise connector_run has one */
}

static int64_t due_at(const struct link_dial *link)
{
    int64_t due = link->again_at == CLOCK_NEVER ? dial_due(&link->dial) : link->again_at;
    return clock_earlier(due, deadline_of(link));
}

static hvd_code keep_time_of(struct connector *connector, struct link_dial *link, hvd_status *status)
{
    int64_t now = clock_now();
    if (link->ended || due_at(link) > now)
        return HVD_OK;
    if (deadline_of(link) <= now) {
        if (is_optional(link)) {
            give_up_lane(link);
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
    struct acceptor *acceptor = acceptor_of(connector);
    connector->next = CLOCK_NEVER;
    if (is_hub(connector))
        connector->next = clock_earlier(admission_keep_time(&acceptor->admission), drop_unclaimed(acceptor));
    for (struct link_dial *link = connector->dials; link; link = link->next)
        TRY(keep_time_of(connector, link, status));
    for (struct link_dial **place = &connector->dials; *place;) {
        if ((*place)->ended) {
            drop_dial(place);
            continue;
        }
        connector->next = clock_earlier(connector->next, due_at(*place));
        place = &(*place)->next;
    }
    for (struct attempt **place = &connector->attempts; *place;) {
        if ((*place)->stage == ATTEMPT_ENDED)
            attempt_free(pop_attempt(place));
        else
            place = &(*place)->next;
    }
    return HVD_OK;
}

/* For an opening in another thread than the one that accepts. */
static hvd_code read_event(struct connector *connector, hvd_status *status)
{
    struct acceptor *acceptor = acceptor_of(connector);
    platform_event_clear(connector->event);
    pthread_mutex_lock(&acceptor->lock);
    hvd_code code = connector->fault.code ? status_copy(status, &connector->fault) : HVD_OK;
    pthread_mutex_unlock(&acceptor->lock);
    return code;
}

/* The poller has reported the attempt, which may have ended since. */
static hvd_code advance(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    if (is_dialled(attempt)) {
        struct link_dial *link = (struct link_dial *)attempt->candidate.dial;
        if (link->ended || attempt->candidate.socket.fd < 0)
            return HVD_OK;
        return conclude_dial(connector, link, dial_advance(&attempt->candidate, status), status);
    }
    if (!attempt->peer)
        advance_newcomer(acceptor_of(connector), attempt);
    else if (attempt->stage != ATTEMPT_ENDED)
        return advance_accepted(connector, attempt, status);
    return HVD_OK;
}

hvd_code connector_turn(struct connector *connector, hvd_status *status)
{
    struct poller_news news[NEWS_PER_TURN];
    int count = platform_poller_take(connector->poller, news, NEWS_PER_TURN);
    bool arrived = false;
    for (int i = 0; i < count; i++) {
        if (news[i].tag)
            TRY(advance(connector, news[i].tag, status));
        else
            arrived = true;
    }
    if (arrived)
        TRY(is_hub(connector) ? accept_connections(acceptor_of(connector), status)
                              : read_event(connector, status));
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
    int lanes = count_lanes(peer, row, channel);
    for (int lane = 2; lane <= lanes; lane++)
        if (add_dial(mesh->hub->connector, peer, row, lane * mesh->channels + channel,
                     lane_address(peer, row, lane), &status))
            break;
    return true;
}

void connector_forget(struct connector *connector, const struct mesh *mesh)
{
    if (!connector)
        return;
    for (struct link_dial **place = &connector->dials; *place;) {
        if ((*place)->peer->mesh == mesh)
            drop_dial(place);
        else
            place = &(*place)->next;
    }
    for (struct attempt **place = &connector->attempts; *place;) {
        if ((*place)->mesh == mesh)
            attempt_free(pop_attempt(place));
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

static hvd_code dial_neighbours(struct connector *connector, hvd_status *status)
{
    for (int i = 0; i < connector->mesh->peer_count; i++) {
        struct peer *peer = &connector->mesh->peers[i];
        if (peer->neighbour && peer->rank < connector->mesh->rank)
            TRY(add_dials(connector, peer, next_row(peer, -1), status));
    }
    return HVD_OK;
}

/* Asks now and then whether a peer has published a failure. */
static hvd_code check_peers(struct connector *connector, hvd_status *status)
{
    int64_t now = clock_now();
    if (now < connector->next_heartbeat)
        return HVD_OK;
    hvd_code failed = connector->next_heartbeat ? address_record_failure(connector->config, status) : HVD_OK;
    connector->next_heartbeat = now + ADDRESS_RECORD_LOOK_INTERVAL;
    return failed;
}

static hvd_code run(struct connector *connector, hvd_status *status)
{
    const struct mesh_config *config = connector->config;
    TRY(dial_neighbours(connector, status));
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
        TRY(check_peers(connector, status));
        int64_t next = clock_earlier(connector->next, connector->next_heartbeat);
        platform_poller_wait(connector->poller, -1,
                             clock_earlier(next, interrupt_slice(config->interrupt, config->deadline)));
    }
}

hvd_code connector_run(struct connector *connector, const struct mesh_config *config, hvd_status *status)
{
    connector->config = config;
    hvd_code code = run(connector, status);
    connector->config = NULL;
    return code;
}
