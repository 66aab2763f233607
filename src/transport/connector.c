/* connector.c - see opening.h. */
#include "transport/opening.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_INTERVAL (CLOCK_SECOND / 20)
#define NEWS_PER_TURN  64

/* When a peer's next address is tried as well, after the last one's connection was begun (RFC 8305 recommends
 * this), and after it was made, since a busy peer needs more time for the handshake than its kernel. */
#define NEXT_ADDRESS_DELAY   (CLOCK_SECOND / 4)
#define NEXT_HANDSHAKE_DELAY (CLOCK_SECOND / 2)

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
}

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
        return out_of_memory(status);
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

static void drop(struct attempt **place)
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
        drop(&connector->attempts);
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
static hvd_code add(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    if (!attempt)
        return out_of_memory(status);
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
    const struct record *own = &hub->records[hub->rank];
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
    for (const char *at = own->addresses[row]; at; at = record_next(at))
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
static hvd_code fail(struct connector *connector, struct peer *peer, hvd_status *status)
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
        code = add(connector, attempt_for_peer(peer, row, lane * peer->mesh->channels + channel, 0), status);
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
    return add(connector,
               attempt_for_peer(attempt->peer, attempt->row, attempt->number, attempt->address + 1), status);
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
    return fail(connector, last->peer, status);
}

/* Of what this rank began: the next address is tried at once. */
static hvd_code take_failure(struct connector *connector, struct attempt *attempt, hvd_code code,
                             const hvd_status *fault, hvd_status *status)
{
    attempt_fail(attempt, code, fault);
    if (attempt->address == 0)
        status_copy(&attempt->peer->cause, fault);
    if (try_next_address(connector, attempt, status))
        return fail(connector, attempt->peer, status);
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
static hvd_code settle(struct connector *connector, struct attempt *attempt, hvd_code code,
                       const hvd_status *fault, hvd_status *status)
{
    hvd_code outcome = HVD_OK;
    if (code == HVD_IN_PROGRESS) {
        if (attempt_watch(attempt, connector->poller))
            return HVD_OK;
        status_set_errno(status, errno, "rank %d can't wait for its connections", attempt->mesh->rank);
        return fail(connector, attempt->peer, status);
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
        return fail(connector, attempt->peer, status);
    attempt->stage = ATTEMPT_ENDED;
    return HVD_OK;
}

static hvd_code begin(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = attempt_connect(attempt, &fault);
    attempt->next_due = clock_now() + NEXT_ADDRESS_DELAY;
    return settle(connector, attempt, code, &fault, status);
}

static hvd_code advance(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    hvd_status fault;
    bool connecting = attempt->stage == ATTEMPT_CONNECTING;
    hvd_code code = attempt_advance(attempt, &fault);
    if (connecting && attempt->next_due != CLOCK_NEVER)
        attempt->next_due = clock_now() + NEXT_HANDSHAKE_DELAY;
    return settle(connector, attempt, code, &fault, status);
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
        code = add(connector, attempt, status);
        if (!code)
            code = advance(connector, attempt, status);
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
        return begin(connector, attempt, status);
    if (attempt->next_due <= now)
        return try_next_address(connector, attempt, status) ? fail(connector, attempt->peer, status) : HVD_OK;
    if (is_optional(attempt)) {
        give_up_lane(attempt);
        return HVD_OK;
    }
    report_unconnected(connector, attempt->peer, status);
    return fail(connector, attempt->peer, status);
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
            drop(place);
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
            code = advance(connector, attempt, status);
    }
    if (!code && arrived)
        code = is_hub(connector) ? acceptor_accept(acceptor_of(connector), status)
                                 : take_event(connector, status);
    if (!code)
        code = take_authenticated(connector, status);
    return code ? code : keep_time(connector, status);
}

/* ---- on first use ------------------------------------------------------------------------------------- */

void connector_want(struct connector *connector, struct peer *peer)
{
    hvd_status status;
    peer->wanted = true;
    peer->deadline = clock_after(peer->mesh->hub->settings->start_timeout_seconds);
    connector->next = 0;
    if (peer->rank < peer->mesh->rank && add_attempts(connector, peer, next_row(peer, -1), &status))
        fail(connector, peer, &status);
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
        if (add(mesh->hub->connector, attempt, &status))
            break;
    }
    return true;
}

void connector_forget(struct connector *connector, const struct mesh *mesh)
{
    for (struct attempt **place = connector ? &connector->attempts : NULL; place && *place;) {
        if ((*place)->mesh == mesh)
            drop(place);
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
    hvd_code failed = connector->next_heartbeat ? record_failure(connector->config, status) : HVD_OK;
    connector->next_heartbeat = now + RECORD_LOOK_INTERVAL;
    return failed;
}

static hvd_code run(struct connector *connector, hvd_status *status)
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
    hvd_code code = run(connector, status);
    connector->config = NULL;
    return code;
}
