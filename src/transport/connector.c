/* connector.c - see connector.h. The thread of mesh_open only. */
#include "transport/connector.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>

#define RETRY_INTERVAL (CLOCK_SECOND / 20)

#define POLL_ATTEMPTS TRANSPORT_LIMIT /* after the listeners */

bool connector_peer_is_complete(const struct peer *peer)
{
    for (int channel = 0; channel < peer->mesh->channels; channel++) {
        if (!peer->links[channel])
            return false;
    }
    return true;
}

static bool is_complete(const struct mesh *mesh)
{
    for (int i = 0; i < mesh->peer_count; i++) {
        if (!connector_peer_is_complete(&mesh->peers[i]))
            return false;
    }
    return true;
}

/* ---- the list of attempts --------------------------------------------------------------------------- */

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
}

/* Takes over the attempt, also on failure. */
static hvd_code add(struct connector *connector, struct attempt *attempt, hvd_status *status)
{
    if (attempt && connector->count == connector->capacity) {
        int capacity = connector->capacity ? 2 * connector->capacity : 32;
        struct attempt **attempts =
            realloc(connector->attempts, (size_t)capacity * sizeof *connector->attempts);
        if (attempts)
            connector->attempts = attempts;
        struct pollfd *polls =
            realloc(connector->polls, (size_t)(capacity + POLL_ATTEMPTS) * sizeof *connector->polls);
        if (polls)
            connector->polls = polls;
        connector->capacity = attempts && polls ? capacity : connector->capacity;
    }
    if (!attempt || connector->count == connector->capacity) {
        attempt_free(attempt);
        return out_of_memory(status);
    }
    connector->attempts[connector->count++] = attempt;
    return HVD_OK;
}

static void drop(struct connector *connector, int index)
{
    attempt_free(connector->attempts[index]);
    connector->attempts[index] = connector->attempts[--connector->count];
}

static const struct record *record_of(const struct connector *connector, const struct peer *peer)
{
    return &connector->records[peer - connector->mesh->peers];
}

static void log_unauthenticated(struct connector *connector, const char *text)
{
    int held;
    if (rate_limit_allows(&connector->rate_limit, &held))
        log_warning(connector->mesh->rank, "%s%s", text, held ? " (and more before it)" : "");
}

/* ---- how attempts end ------------------------------------------------------------------------------- */

static hvd_code make_links(struct attempt *attempt, hvd_status *status)
{
    struct peer *peer = attempt->peer;
    int fd = attempt->fd;
    attempt->fd = -1;
    peer->transport = transport_at(attempt->row);
    return peer->transport->open(peer, attempt->channel, fd, attempt->state, status);
}

/* The next row that reaches the peer, or -1. */
static int next_row(const struct peer *peer, int row)
{
    while (transport_at(++row))
        if (peer->reachable >> row & 1)
            return row;
    return -1;
}

static hvd_code add_attempts(struct connector *connector, struct peer *peer, int row, hvd_status *status)
{
    hvd_code code = HVD_OK;
    int connections = transport_at(row)->connection_per_channel ? connector->mesh->channels : 1;
    for (int channel = 0; !code && channel < connections; channel++)
        code = add(connector, attempt_for_peer(peer, row, channel), status);
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
    log_info(connector->mesh->rank, "no %s with %s, using %s: %s", name, who, transport_at(next)->name,
             why->text);
    return attempt->initiator ? add_attempts(connector, peer, next, status) : HVD_OK;
}

static void pause_attempt(struct attempt *attempt)
{
    socket_close(&attempt->fd);
    attempt->stage = ATTEMPT_PAUSED;
    attempt->since = clock_now() + RETRY_INTERVAL;
}

/* `code` and `fault` are the attempt's. Returns HVD_OK unless the whole mesh fails. */
static hvd_code settle(struct connector *connector, int index, hvd_code code, const hvd_status *fault,
                       hvd_status *status)
{
    struct attempt *attempt = connector->attempts[index];
    hvd_code outcome = HVD_OK;
    if (code == HVD_IN_PROGRESS)
        return HVD_OK;
    if (code && attempt->peer)
        status_copy(&attempt->peer->cause, fault);
    if (code == HVD_PEER_LOST && attempt->initiator) {
        pause_attempt(attempt);
        return HVD_OK;
    }
    if (code == HVD_OK)
        outcome = make_links(attempt, status);
    else if (code == HVD_UNSUPPORTED && attempt->peer)
        outcome = fall_back(connector, attempt, fault, status);
    else if (attempt->initiator || code == HVD_SYSTEM) /* a fault of this rank */
        outcome = status_copy(status, fault);
    else
        log_unauthenticated(connector, fault->text);
    /* After a failure its peer sees the end of the connection once the cause is published. */
    if (!outcome)
        drop(connector, index);
    return outcome;
}

static hvd_code begin(struct connector *connector, int index, hvd_status *status)
{
    hvd_status fault;
    struct attempt *attempt = connector->attempts[index];
    const char *address = record_of(connector, attempt->peer)->addresses[attempt->row];
    hvd_code code = attempt_connect(attempt, connector->config, address, &fault);
    return settle(connector, index, code, &fault, status);
}

static hvd_code advance(struct connector *connector, int index, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = attempt_advance(connector->attempts[index], connector->config, &fault);
    return settle(connector, index, code, &fault, status);
}

/* ---- unauthenticated connections ---------------------------------------------------------------------- */

static bool is_unauthenticated(const struct attempt *attempt)
{
    return !attempt->peer;
}

static int find_unauthenticated(const struct connector *connector, int *oldest)
{
    int count = 0;
    *oldest = -1;
    for (int i = 0; i < connector->count; i++) {
        const struct attempt *attempt = connector->attempts[i];
        if (!is_unauthenticated(attempt))
            continue;
        count++;
        if (*oldest < 0 || attempt->since < connector->attempts[*oldest]->since)
            *oldest = i;
    }
    return count;
}

/* In a flood the oldest are dropped, so that a rank's own connection gets its turn. */
static bool may_accept(struct connector *connector)
{
    int oldest;
    if (find_unauthenticated(connector, &oldest) < UNAUTHENTICATED_LIMIT)
        return true;
    if (clock_now() - connector->attempts[oldest]->since < UNAUTHENTICATED_GRACE)
        return false;
    drop(connector, oldest);
    return true;
}

static hvd_code accept_all(struct connector *connector, int row, hvd_status *status)
{
    hvd_code code = HVD_OK;
    while (!code && may_accept(connector)) {
        char who[SOCKET_TEXT];
        int fd = transport_at(row)->accept(connector->listeners[row], who);
        if (fd >= 0)
            code = add(connector, attempt_accept(connector->mesh, connector->config, row, fd, who), status);
        else if (errno == EAGAIN)
            return HVD_OK;
        else if (errno == EPERM)
            log_unauthenticated(connector, "a process of another user tried to connect");
        else if (errno == EMFILE || errno == ENFILE)
            return status_set_errno(status, errno, "can't accept a connection of another rank");
        else if (errno != ECONNABORTED && errno != EINTR)
            break; /* short of memory */
    }
    connector->paused_until = clock_now() + RETRY_INTERVAL;
    return code;
}

/* ---- the loop ----------------------------------------------------------------------------------------- */

/* Drops what takes too long to authenticate, begins again what was paused; yields when to look again. */
static hvd_code keep_time(struct connector *connector, int64_t *next, hvd_status *status)
{
    int64_t now = clock_now();
    *next = interrupt_slice(connector->config->interrupt, connector->config->deadline);
    if (now >= connector->next_heartbeat) {
        hvd_code failed = connector->next_heartbeat ? record_failure(connector->config, status) : HVD_OK;
        if (failed)
            return failed;
        connector->next_heartbeat = now + RECORD_LOOK_INTERVAL;
    }
    *next = clock_earlier(*next, connector->next_heartbeat);
    if (now < connector->paused_until)
        *next = clock_earlier(*next, connector->paused_until);
    for (int i = connector->count - 1; i >= 0; i--) {
        const struct attempt *attempt = connector->attempts[i];
        bool paused = attempt->stage == ATTEMPT_PAUSED;
        int64_t due = attempt->since + (paused ? 0 : UNAUTHENTICATED_TIME);
        if (!paused && !is_unauthenticated(attempt))
            continue;
        if (now < due) {
            *next = clock_earlier(*next, due);
        } else if (paused) {
            *next = now; /* look at it below */
            hvd_code code = begin(connector, i, status);
            if (code)
                return code;
        } else {
            log_unauthenticated(connector, "a connection did not finish its handshake in time");
            drop(connector, i);
        }
    }
    return HVD_OK;
}

static void fill_polls(struct connector *connector)
{
    bool paused = clock_now() < connector->paused_until;
    struct pollfd *polls = connector->polls;
    for (int row = 0; row < TRANSPORT_LIMIT; row++)
        polls[row] = (struct pollfd){paused ? -1 : connector->listeners[row], POLLIN, 0};
    for (int i = 0; i < connector->count; i++) {
        const struct attempt *attempt = connector->attempts[i];
        polls[POLL_ATTEMPTS + i] = (struct pollfd){attempt->fd, attempt_events(attempt), 0};
    }
}

static hvd_code take_turn(struct connector *connector, hvd_status *status)
{
    int64_t next;
    hvd_code code = keep_time(connector, &next, status);
    if (code || is_complete(connector->mesh))
        return code;
    fill_polls(connector);
    int polled = connector->count;
    poll(connector->polls, (nfds_t)(polled + POLL_ATTEMPTS), socket_poll_timeout(next));
    /* Downward: what is dropped is replaced by the last one, which has had its turn or is new. */
    for (int i = polled - 1; !code && i >= 0; i--) {
        if (connector->polls[POLL_ATTEMPTS + i].revents)
            code = advance(connector, i, status);
    }
    for (int row = 0; !code && row < TRANSPORT_LIMIT; row++) {
        if (connector->polls[row].revents)
            code = accept_all(connector, row, status);
    }
    return code;
}

/* New attempts are paused until now: the loop begins them. */
static hvd_code add_initiators(struct connector *connector, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < connector->mesh->peer_count; i++) {
        struct peer *peer = &connector->mesh->peers[i];
        if (peer->rank < connector->mesh->rank)
            code = add_attempts(connector, peer, next_row(peer, -1), status);
    }
    return code;
}

hvd_code connector_run(struct connector *connector, hvd_status *status)
{
    connector->polls = calloc(POLL_ATTEMPTS, sizeof *connector->polls);
    if (!connector->polls)
        return out_of_memory(status);
    hvd_code code = add_initiators(connector, status);
    while (!code && !is_complete(connector->mesh)) {
        if (clock_now() >= connector->config->deadline)
            return HVD_TIMED_OUT;
        if (interrupt_is_set(connector->config->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while connecting to the other ranks");
        code = take_turn(connector, status);
    }
    return code;
}

void connector_free(struct connector *connector)
{
    while (connector->count)
        drop(connector, connector->count - 1);
    for (int row = 0; row < TRANSPORT_LIMIT; row++)
        socket_close(&connector->listeners[row]);
    free(connector->attempts);
    free(connector->polls);
}
