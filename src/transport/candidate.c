/* candidate.c - see candidate.h. The thread of mesh_open only. */
#include "transport/candidate.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* By which ranks of this mesh know each other. */
static struct handshake_claim claim_of(const struct mesh_config *config, bool local)
{
    struct handshake_claim claim = {.role = local ? HANDSHAKE_LOCAL : HANDSHAKE_LINK,
                                    .generation = config->generation,
                                    .to = (uint32_t)config->settings->rank};
    snprintf(claim.job, sizeof claim.job, "%s", config->settings->job);
    return claim;
}

static struct candidate *allocate(struct mesh *mesh, int fd, bool local)
{
    struct candidate *candidate = calloc(1, sizeof *candidate);
    if (!candidate) {
        socket_close(&fd);
        return NULL;
    }
    candidate->mesh = mesh;
    candidate->fd = fd;
    candidate->local = local;
    candidate->since = clock_now();
    return candidate;
}

struct candidate *candidate_of_stranger(struct mesh *mesh, const struct mesh_config *config, int fd,
                                        bool local)
{
    char who[SOCKET_TEXT] = "a process of this host";
    struct handshake_claim expected = claim_of(config, local);
    struct candidate *candidate = allocate(mesh, fd, local);
    if (!candidate)
        return NULL;
    candidate->stage = CANDIDATE_SHAKING;
    if (!local)
        socket_peer_text(fd, who);
    handshake_accept(&candidate->handshake, config->settings->secret, &expected, who);
    return candidate;
}

struct candidate *candidate_for_peer(struct peer *peer, bool local, int channel)
{
    struct candidate *candidate = allocate(peer->mesh, -1, local);
    if (!candidate)
        return NULL;
    candidate->initiator = true;
    candidate->peer = peer;
    candidate->channel = channel;
    return candidate;
}

void candidate_free(struct candidate *candidate)
{
    if (!candidate)
        return;
    socket_close(&candidate->fd);
    sharing_free(&candidate->sharing);
    free(candidate);
}

/* ---- connecting --------------------------------------------------------------------------------------- */

static hvd_code cannot_connect(const struct candidate *candidate, int error, hvd_status *status)
{
    char who[128];
    peer_text(candidate->peer, who, sizeof who);
    status_set_errno(status, error,
                     error == ECONNREFUSED ? "%s has probably ended, see its output; connecting to it fails"
                                           : "can't connect to %s",
                     who);
    if (error == EMFILE || error == ENFILE)
        return HVD_SYSTEM;
    if (candidate->local && error != EAGAIN)
        return HVD_UNSUPPORTED;
    return error == ECONNREFUSED ? HVD_SYSTEM : HVD_PEER_LOST;
}

hvd_code candidate_connect(struct candidate *candidate, const struct mesh_config *config,
                           const struct record *record, hvd_status *status)
{
    char who[128];
    struct handshake_claim claim = claim_of(config, candidate->local);
    claim.from = claim.to;
    claim.to = (uint32_t)candidate->peer->rank;
    claim.channel = (uint32_t)candidate->channel;
    candidate->fd = candidate->local ? platform_local_connect(record->local_name)
                                     : socket_connect_numeric(record->address, record->port);
    if (candidate->fd < 0)
        return cannot_connect(candidate, errno, status);
    candidate->stage = CANDIDATE_CONNECTING;
    hvd_code code = handshake_initiate(&candidate->handshake, config->settings->secret, &claim,
                                       peer_text(candidate->peer, who, sizeof who), status);
    return code ? code : HVD_IN_PROGRESS;
}

/* ---- proving ------------------------------------------------------------------------------------------ */

/* The handshake has proven the claim; now it must also make sense here: the higher rank connects, once for
 * each channel. */
static hvd_code identify(struct candidate *candidate, const struct mesh_config *config, hvd_status *status)
{
    const struct handshake_claim *claim = &candidate->handshake.claim;
    struct peer *peer = mesh_peer(candidate->mesh, (int)claim->from);
    bool plausible = peer && claim->from > claim->to && claim->channel < (uint32_t)config->channels;
    if (plausible && !peer->links[claim->channel]) {
        candidate->peer = peer;
        candidate->channel = (int)claim->channel;
        return HVD_OK;
    }
    return status_set(status, HVD_REFUSED,
                      "%s says it is rank %u and wants channel %u, which %s; two processes may share a rank "
                      "(HOROVOD_RANK)",
                      candidate->handshake.who, claim->from, claim->channel,
                      plausible ? "is connected already" : "has no business here");
}

static hvd_code begin_sharing(struct candidate *candidate, const struct mesh_config *config,
                              hvd_status *status)
{
    candidate->stage = CANDIDATE_SHARING;
    if (candidate->peer->local_index < 0)
        return status_set(status, HVD_UNSUPPORTED, "rank %d is not on this host", candidate->peer->rank);
    return sharing_begin(&candidate->sharing, candidate->mesh->segment, candidate->peer->local_index,
                         config->channels, status);
}

static hvd_code shake_hands(struct candidate *candidate, const struct mesh_config *config, hvd_status *status)
{
    hvd_code code = handshake_advance(&candidate->handshake, candidate->fd, status);
    if (!code && !candidate->initiator)
        code = identify(candidate, config, status);
    if (!code && candidate->local)
        code = begin_sharing(candidate, config, status);
    return code;
}

static hvd_code check_connected(struct candidate *candidate, hvd_status *status)
{
    int error = socket_error(candidate->fd);
    if (error)
        return cannot_connect(candidate, error, status);
    if (candidate->local && !platform_peer_is_same_user(candidate->fd))
        return status_set(status, HVD_UNSUPPORTED, "rank %d runs as another user", candidate->peer->rank);
    candidate->stage = CANDIDATE_SHAKING;
    return HVD_OK;
}

hvd_code candidate_advance(struct candidate *candidate, const struct mesh_config *config, hvd_status *status)
{
    hvd_code code = HVD_OK;
    if (candidate->stage == CANDIDATE_CONNECTING)
        code = check_connected(candidate, status);
    if (!code && candidate->stage == CANDIDATE_SHAKING)
        code = shake_hands(candidate, config, status);
    if (!code && candidate->stage == CANDIDATE_SHARING)
        code = sharing_advance(&candidate->sharing, candidate->fd, status);
    return code;
}

short candidate_events(const struct candidate *candidate)
{
    switch (candidate->stage) {
    case CANDIDATE_PAUSED:
        return 0;
    case CANDIDATE_CONNECTING:
        return POLLOUT;
    case CANDIDATE_SHAKING:
        return handshake_events(&candidate->handshake);
    case CANDIDATE_SHARING:
        return sharing_events(&candidate->sharing);
    }
    return 0;
}
