/* attempt.c - see attempt.h. The thread of mesh_open only. */
#include "transport/attempt.h"

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

static struct attempt *allocate(struct mesh *mesh, int fd, bool local)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt) {
        socket_close(&fd);
        return NULL;
    }
    attempt->mesh = mesh;
    attempt->fd = fd;
    attempt->local = local;
    attempt->since = clock_now();
    return attempt;
}

struct attempt *attempt_accept(struct mesh *mesh, const struct mesh_config *config, int fd, bool local)
{
    char who[SOCKET_TEXT] = "a process of this host";
    struct handshake_claim expected = claim_of(config, local);
    struct attempt *attempt = allocate(mesh, fd, local);
    if (!attempt)
        return NULL;
    attempt->stage = ATTEMPT_SHAKING;
    if (!local)
        socket_peer_text(fd, who);
    handshake_accept(&attempt->handshake, config->settings->secret, &expected, who);
    return attempt;
}

struct attempt *attempt_for_peer(struct peer *peer, bool local, int channel)
{
    struct attempt *attempt = allocate(peer->mesh, -1, local);
    if (!attempt)
        return NULL;
    attempt->initiator = true;
    attempt->peer = peer;
    attempt->channel = channel;
    return attempt;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    socket_close(&attempt->fd);
    sharing_free(&attempt->sharing);
    free(attempt);
}

/* ---- connecting --------------------------------------------------------------------------------------- */

static hvd_code cannot_connect(const struct attempt *attempt, int error, hvd_status *status)
{
    char who[128];
    peer_text(attempt->peer, who, sizeof who);
    status_set_errno(status, error,
                     error == ECONNREFUSED ? "%s has probably ended, see its output; connecting to it fails"
                                           : "can't connect to %s",
                     who);
    if (error == EMFILE || error == ENFILE)
        return HVD_SYSTEM;
    if (attempt->local && error != EAGAIN)
        return HVD_UNSUPPORTED;
    return error == ECONNREFUSED ? HVD_SYSTEM : HVD_PEER_LOST;
}

hvd_code attempt_connect(struct attempt *attempt, const struct mesh_config *config,
                         const struct record *record, hvd_status *status)
{
    char who[128];
    struct handshake_claim claim = claim_of(config, attempt->local);
    claim.from = claim.to;
    claim.to = (uint32_t)attempt->peer->rank;
    claim.channel = (uint32_t)attempt->channel;
    attempt->fd = attempt->local ? platform_local_connect(record->local_name)
                                 : socket_connect_numeric(record->address, record->port);
    if (attempt->fd < 0)
        return cannot_connect(attempt, errno, status);
    attempt->stage = ATTEMPT_CONNECTING;
    hvd_code code = handshake_initiate(&attempt->handshake, config->settings->secret, &claim,
                                       peer_text(attempt->peer, who, sizeof who), status);
    return code ? code : HVD_IN_PROGRESS;
}

/* ---- proving ------------------------------------------------------------------------------------------ */

/* The handshake has proven the claim; now it must also make sense here: the higher rank connects, once for
 * each channel. */
static hvd_code identify(struct attempt *attempt, const struct mesh_config *config, hvd_status *status)
{
    const struct handshake_claim *claim = &attempt->handshake.claim;
    struct peer *peer = mesh_peer(attempt->mesh, (int)claim->from);
    bool plausible = peer && claim->from > claim->to && claim->channel < (uint32_t)config->channels;
    if (plausible && !peer->links[claim->channel]) {
        attempt->peer = peer;
        attempt->channel = (int)claim->channel;
        return HVD_OK;
    }
    return status_set(status, HVD_REFUSED,
                      "%s says it is rank %u and wants channel %u, which %s; two processes may share a rank "
                      "(HOROVOD_RANK)",
                      attempt->handshake.who, claim->from, claim->channel,
                      plausible ? "is connected already" : "has no business here");
}

static hvd_code begin_sharing(struct attempt *attempt, const struct mesh_config *config, hvd_status *status)
{
    attempt->stage = ATTEMPT_SHARING;
    if (attempt->peer->local_index < 0)
        return status_set(status, HVD_UNSUPPORTED, "rank %d is not on this host", attempt->peer->rank);
    return sharing_begin(&attempt->sharing, attempt->mesh->segment, attempt->peer->local_index,
                         config->channels, status);
}

static hvd_code shake_hands(struct attempt *attempt, const struct mesh_config *config, hvd_status *status)
{
    hvd_code code = handshake_advance(&attempt->handshake, attempt->fd, status);
    if (!code && !attempt->initiator)
        code = identify(attempt, config, status);
    if (!code && attempt->local)
        code = begin_sharing(attempt, config, status);
    return code;
}

static hvd_code check_connected(struct attempt *attempt, hvd_status *status)
{
    int error = socket_error(attempt->fd);
    if (error)
        return cannot_connect(attempt, error, status);
    if (attempt->local && !platform_peer_is_same_user(attempt->fd))
        return status_set(status, HVD_UNSUPPORTED, "rank %d runs as another user", attempt->peer->rank);
    attempt->stage = ATTEMPT_SHAKING;
    return HVD_OK;
}

hvd_code attempt_advance(struct attempt *attempt, const struct mesh_config *config, hvd_status *status)
{
    hvd_code code = HVD_OK;
    if (attempt->stage == ATTEMPT_CONNECTING)
        code = check_connected(attempt, status);
    if (!code && attempt->stage == ATTEMPT_SHAKING)
        code = shake_hands(attempt, config, status);
    if (!code && attempt->stage == ATTEMPT_SHARING)
        code = sharing_advance(&attempt->sharing, attempt->fd, status);
    return code;
}

short attempt_events(const struct attempt *attempt)
{
    switch (attempt->stage) {
    case ATTEMPT_PAUSED:
        return 0;
    case ATTEMPT_CONNECTING:
        return POLLOUT;
    case ATTEMPT_SHAKING:
        return handshake_events(&attempt->handshake);
    case ATTEMPT_SHARING:
        return sharing_events(&attempt->sharing);
    }
    return 0;
}
