/* gathering.c - see gathering.h. The thread of mesh_open only. */
#include "transport/gathering.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_INTERVAL (CLOCK_SECOND / 20)

enum { POLL_TCP, POLL_LOCAL, POLL_CANDIDATES };

bool record_can_share(const struct record *a, const struct record *b)
{
    return a->local_name[0] && b->local_name[0] && strcmp(a->host_identity, b->host_identity) == 0;
}

bool record_can_connect(const struct record *a, const struct record *b)
{
    return a->address[0] && b->address[0];
}

bool gathering_peer_is_complete(const struct peer *peer)
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
        if (!gathering_peer_is_complete(&mesh->peers[i]))
            return false;
    }
    return true;
}

/* ---- the list of candidates --------------------------------------------------------------------------- */

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
}

/* Takes over the candidate, also on failure. */
static hvd_code add(struct gathering *gathering, struct candidate *candidate, hvd_status *status)
{
    if (candidate && gathering->count == gathering->capacity) {
        int capacity = gathering->capacity ? 2 * gathering->capacity : 32;
        struct candidate **candidates =
            realloc(gathering->candidates, (size_t)capacity * sizeof *gathering->candidates);
        if (candidates)
            gathering->candidates = candidates;
        struct pollfd *polls =
            realloc(gathering->polls, (size_t)(capacity + POLL_CANDIDATES) * sizeof *gathering->polls);
        if (polls)
            gathering->polls = polls;
        gathering->capacity = candidates && polls ? capacity : gathering->capacity;
    }
    if (!candidate || gathering->count == gathering->capacity) {
        candidate_free(candidate);
        return out_of_memory(status);
    }
    gathering->candidates[gathering->count++] = candidate;
    return HVD_OK;
}

static void drop(struct gathering *gathering, int index)
{
    candidate_free(gathering->candidates[index]);
    gathering->candidates[index] = gathering->candidates[--gathering->count];
}

static const struct record *record_of(const struct gathering *gathering, const struct peer *peer)
{
    return &gathering->records[peer - gathering->mesh->peers];
}

static void log_stranger(struct gathering *gathering, const char *text)
{
    int held;
    if (throttle_passes(&gathering->throttle, &held))
        log_warning(gathering->mesh->rank, "%s%s", text, held ? " (and more before it)" : "");
}

/* ---- how candidates end ------------------------------------------------------------------------------- */

static hvd_code make_links(struct candidate *candidate, hvd_status *status)
{
    struct peer *peer = candidate->peer;
    int fd = candidate->fd;
    candidate->fd = -1;
    if (!candidate->local)
        return tcp_open_link(peer, candidate->channel, fd, status);
    /* The hub's connection to the same process serves both meshes; both ends find it, or neither. */
    if (peer->hub)
        socket_close(&fd);
    peer->doorbell = fd;
    peer->segment = candidate->sharing.segment;
    candidate->sharing.segment = NULL;
    return shm_open_links(peer, candidate->sharing.rings, status);
}

static hvd_code add_tcp_candidates(struct gathering *gathering, struct peer *peer, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int channel = 0; !code && channel < gathering->mesh->channels; channel++)
        code = add(gathering, candidate_for_peer(peer, false, channel), status);
    return code;
}

/* Sharing memory did not work: the initiator goes on with TCP, the acceptor waits for that. */
static hvd_code fall_back(struct gathering *gathering, const struct candidate *candidate,
                          const hvd_status *why, hvd_status *status)
{
    char who[128];
    struct peer *peer = candidate->peer;
    peer_text(peer, who, sizeof who);
    if (!record_can_connect(gathering->mine, record_of(gathering, peer)))
        return status_set(status, HVD_UNSUPPORTED,
                          "can't share memory with %s: %.300s; HOROVOD_TRANSPORT=auto would use TCP instead",
                          who, why->text);
    log_info(gathering->mesh->rank, "no shared memory with %s, using TCP: %s", who, why->text);
    return candidate->initiator ? add_tcp_candidates(gathering, peer, status) : HVD_OK;
}

static void pause_candidate(struct candidate *candidate)
{
    socket_close(&candidate->fd);
    candidate->stage = CANDIDATE_PAUSED;
    candidate->since = clock_now() + RETRY_INTERVAL;
}

/* `code` and `fault` are the candidate's. Returns HVD_OK unless the whole mesh fails. */
static hvd_code settle(struct gathering *gathering, int index, hvd_code code, const hvd_status *fault,
                       hvd_status *status)
{
    struct candidate *candidate = gathering->candidates[index];
    hvd_code outcome = HVD_OK;
    if (code == HVD_IN_PROGRESS)
        return HVD_OK;
    if (code && candidate->peer)
        status_copy(&candidate->peer->cause, fault);
    if (code == HVD_PEER_LOST && candidate->initiator) {
        pause_candidate(candidate);
        return HVD_OK;
    }
    if (code == HVD_OK)
        outcome = make_links(candidate, status);
    else if (code == HVD_UNSUPPORTED && candidate->peer)
        outcome = fall_back(gathering, candidate, fault, status);
    else if (candidate->initiator || code == HVD_SYSTEM) /* a fault of this rank */
        outcome = status_copy(status, fault);
    else
        log_stranger(gathering, fault->text);
    /* After a failure its peer sees the end of the connection once the cause is published. */
    if (!outcome)
        drop(gathering, index);
    return outcome;
}

static hvd_code begin(struct gathering *gathering, int index, hvd_status *status)
{
    hvd_status fault;
    struct candidate *candidate = gathering->candidates[index];
    hvd_code code =
        candidate_connect(candidate, gathering->config, record_of(gathering, candidate->peer), &fault);
    return settle(gathering, index, code, &fault, status);
}

static hvd_code advance(struct gathering *gathering, int index, hvd_status *status)
{
    hvd_status fault;
    hvd_code code = candidate_advance(gathering->candidates[index], gathering->config, &fault);
    return settle(gathering, index, code, &fault, status);
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static bool is_stranger(const struct candidate *candidate)
{
    return !candidate->peer;
}

static int find_strangers(const struct gathering *gathering, int *oldest)
{
    int count = 0;
    *oldest = -1;
    for (int i = 0; i < gathering->count; i++) {
        const struct candidate *candidate = gathering->candidates[i];
        if (!is_stranger(candidate))
            continue;
        count++;
        if (*oldest < 0 || candidate->since < gathering->candidates[*oldest]->since)
            *oldest = i;
    }
    return count;
}

/* A flood makes the oldest strangers go, so that an honest one gets its turn. */
static bool may_accept(struct gathering *gathering)
{
    int oldest;
    if (find_strangers(gathering, &oldest) < STRANGER_LIMIT)
        return true;
    if (clock_now() - gathering->candidates[oldest]->since < STRANGER_GRACE)
        return false;
    drop(gathering, oldest);
    return true;
}

/* Takes over the descriptor. */
static hvd_code take_stranger(struct gathering *gathering, int fd, bool local, hvd_status *status)
{
    if (local && !platform_peer_is_same_user(fd)) {
        log_stranger(gathering, "a process of another user tried to connect");
        socket_close(&fd);
        return HVD_OK;
    }
    return add(gathering, candidate_of_stranger(gathering->mesh, gathering->config, fd, local), status);
}

static hvd_code accept_all(struct gathering *gathering, int listener, bool local, hvd_status *status)
{
    hvd_code code = HVD_OK;
    while (!code && may_accept(gathering)) {
        int fd = socket_accept(listener);
        if (fd >= 0)
            code = take_stranger(gathering, fd, local, status);
        else if (errno == EAGAIN)
            return HVD_OK;
        else if (errno == EMFILE || errno == ENFILE)
            return status_set_errno(status, errno, "can't accept a connection of another rank");
        else if (errno != ECONNABORTED && errno != EINTR)
            break; /* short of memory */
    }
    gathering->paused_until = clock_now() + RETRY_INTERVAL;
    return code;
}

/* ---- the loop ----------------------------------------------------------------------------------------- */

/* Drops late strangers, begins again what was paused; yields when to look again. */
static hvd_code keep_time(struct gathering *gathering, int64_t *next, hvd_status *status)
{
    int64_t now = clock_now();
    *next = interrupt_slice(gathering->config->interrupt, gathering->config->deadline);
    if (now >= gathering->next_look) {
        hvd_code failed = gathering->next_look ? record_failure(gathering->config, status) : HVD_OK;
        if (failed)
            return failed;
        gathering->next_look = now + RECORD_LOOK_INTERVAL;
    }
    *next = clock_earlier(*next, gathering->next_look);
    if (now < gathering->paused_until)
        *next = clock_earlier(*next, gathering->paused_until);
    for (int i = gathering->count - 1; i >= 0; i--) {
        const struct candidate *candidate = gathering->candidates[i];
        bool paused = candidate->stage == CANDIDATE_PAUSED;
        int64_t due = candidate->since + (paused ? 0 : STRANGER_TIME);
        if (!paused && !is_stranger(candidate))
            continue;
        if (now < due) {
            *next = clock_earlier(*next, due);
        } else if (paused) {
            *next = now; /* look at it below */
            hvd_code code = begin(gathering, i, status);
            if (code)
                return code;
        } else {
            log_stranger(gathering, "a connection did not finish its handshake in time");
            drop(gathering, i);
        }
    }
    return HVD_OK;
}

static void fill_polls(struct gathering *gathering)
{
    bool paused = clock_now() < gathering->paused_until;
    struct pollfd *polls = gathering->polls;
    polls[POLL_TCP] = (struct pollfd){paused ? -1 : gathering->tcp_listener, POLLIN, 0};
    polls[POLL_LOCAL] = (struct pollfd){paused ? -1 : gathering->local_listener, POLLIN, 0};
    for (int i = 0; i < gathering->count; i++) {
        const struct candidate *candidate = gathering->candidates[i];
        polls[POLL_CANDIDATES + i] = (struct pollfd){candidate->fd, candidate_events(candidate), 0};
    }
}

static hvd_code take_turn(struct gathering *gathering, hvd_status *status)
{
    int64_t next;
    hvd_code code = keep_time(gathering, &next, status);
    if (code || is_complete(gathering->mesh))
        return code;
    fill_polls(gathering);
    int polled = gathering->count;
    poll(gathering->polls, (nfds_t)(polled + POLL_CANDIDATES), socket_poll_timeout(next));
    /* Downward: what is dropped is replaced by the last one, which has had its turn or is new. */
    for (int i = polled - 1; !code && i >= 0; i--) {
        if (gathering->polls[POLL_CANDIDATES + i].revents)
            code = advance(gathering, i, status);
    }
    if (!code && gathering->polls[POLL_TCP].revents)
        code = accept_all(gathering, gathering->tcp_listener, false, status);
    if (!code && gathering->polls[POLL_LOCAL].revents)
        code = accept_all(gathering, gathering->local_listener, true, status);
    return code;
}

/* New candidates are paused until now: the loop begins them. */
static hvd_code add_initiators(struct gathering *gathering, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < gathering->mesh->peer_count; i++) {
        struct peer *peer = &gathering->mesh->peers[i];
        if (peer->rank > gathering->mesh->rank)
            continue;
        if (record_can_share(gathering->mine, record_of(gathering, peer)))
            code = add(gathering, candidate_for_peer(peer, true, 0), status);
        else
            code = add_tcp_candidates(gathering, peer, status);
    }
    return code;
}

hvd_code gathering_run(struct gathering *gathering, hvd_status *status)
{
    gathering->polls = calloc(POLL_CANDIDATES, sizeof *gathering->polls);
    if (!gathering->polls)
        return out_of_memory(status);
    hvd_code code = add_initiators(gathering, status);
    while (!code && !is_complete(gathering->mesh)) {
        if (clock_now() >= gathering->config->deadline)
            return HVD_TIMED_OUT;
        if (interrupt_asked(gathering->config->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while connecting to the other ranks");
        code = take_turn(gathering, status);
    }
    return code;
}

void gathering_free(struct gathering *gathering)
{
    while (gathering->count)
        drop(gathering, gathering->count - 1);
    socket_close(&gathering->tcp_listener);
    socket_close(&gathering->local_listener);
    free(gathering->candidates);
    free(gathering->polls);
}
