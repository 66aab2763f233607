/* sharing.c - see sharing.h. One connection's state, one thread. */
#include "transport/sharing.h"

#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

enum { OFFER_OUT, OFFER_IN, VERDICT_OUT, VERDICT_IN };

hvd_code sharing_begin(struct sharing *sharing, const struct segment *own, int index, int channels,
                       hvd_status *status)
{
    size_t bytes = segment_offer_bytes(channels);
    *sharing = (struct sharing){.channels = channels, .fd_out = own ? own->fd : -1, .fd_in = -1};
    sharing->out = calloc(1, bytes); /* all zeros is an offer of nothing */
    sharing->in = calloc(1, bytes);
    sharing->rings = calloc((size_t)channels, sizeof *sharing->rings);
    if (!sharing->out || !sharing->in || !sharing->rings)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    if (own)
        segment_offer(own, index, sharing->out);
    return HVD_OK;
}

void sharing_free(struct sharing *sharing)
{
    if (sharing->out) /* it was begun */
        socket_close(&sharing->fd_in);
    free(sharing->out);
    free(sharing->in);
    free(sharing->rings);
    segment_release(sharing->segment);
    *sharing = (struct sharing){0};
}

short sharing_events(const struct sharing *sharing)
{
    return sharing->stage == OFFER_OUT || sharing->stage == VERDICT_OUT ? POLLOUT : POLLIN;
}

static hvd_code ended(ssize_t n, hvd_status *status)
{
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return HVD_IN_PROGRESS;
    return status_set(status, HVD_UNSUPPORTED, "the connection ended while memory was being shared");
}

/* Sends `length` bytes in all; `fd` goes with the first. */
static hvd_code send_all(struct sharing *sharing, int socket, const uint8_t *bytes, size_t length, int fd,
                         hvd_status *status)
{
    while (sharing->sent < length) {
        ssize_t n = platform_send_with_fd(socket, bytes + sharing->sent, length - sharing->sent,
                                          sharing->sent ? -1 : fd);
        if (n <= 0)
            return ended(n, status);
        sharing->sent += (size_t)n;
    }
    sharing->sent = 0;
    sharing->stage++;
    return HVD_OK;
}

/* A descriptor may come with any of the bytes. */
static hvd_code receive_all(struct sharing *sharing, int socket, uint8_t *bytes, size_t length,
                            hvd_status *status)
{
    while (sharing->received < length) {
        int came;
        ssize_t n =
            platform_receive_with_fd(socket, bytes + sharing->received, length - sharing->received, &came);
        if (came == PLATFORM_FD_LOST)
            return status_set_errno(status, EMFILE, "can't take the memory that a rank of this host shares");
        if (came >= 0) {
            socket_close(&sharing->fd_in);
            sharing->fd_in = came;
        }
        if (n <= 0)
            return ended(n, status);
        sharing->received += (size_t)n;
    }
    sharing->received = 0;
    sharing->stage++;
    return HVD_OK;
}

static hvd_code receive_offer(struct sharing *sharing, int socket, hvd_status *status)
{
    size_t bytes = segment_offer_bytes(sharing->channels);
    hvd_code code = receive_all(sharing, socket, sharing->in, bytes, status);
    if (!code)
        sharing->segment = segment_accept(sharing->in, sharing->fd_in, sharing->rings, sharing->channels);
    sharing->mine = sharing->segment != NULL;
    return code;
}

static hvd_code conclude(const struct sharing *sharing, hvd_status *status)
{
    if (sharing->mine && sharing->theirs == 1)
        return HVD_OK;
    return status_set(status, HVD_UNSUPPORTED, "%s can't map the other's memory",
                      sharing->mine ? "it" : "this rank");
}

hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status)
{
    hvd_code code = HVD_OK;
    while (!code) {
        switch (sharing->stage) {
        case OFFER_OUT:
            code = send_all(sharing, socket, sharing->out, segment_offer_bytes(sharing->channels),
                            sharing->fd_out, status);
            break;
        case OFFER_IN:
            code = receive_offer(sharing, socket, status);
            break;
        case VERDICT_OUT:
            code = send_all(sharing, socket, &sharing->mine, 1, -1, status);
            break;
        case VERDICT_IN:
            code = receive_all(sharing, socket, &sharing->theirs, 1, status);
            break;
        default:
            return conclude(sharing, status);
        }
    }
    return code;
}
