/* sharing.c - sends this rank's offer and verdict, and receives the other's, as far as the socket allows. One
 * thread at a time. */
#include "transport/sharing.h"

#include "base/platform_sockets.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The descriptor may arrive with any of the bytes. */
static ssize_t read_with_fd(struct stream *stream, void *bytes, size_t length)
{
    struct sharing *sharing = (struct sharing *)stream;
    int fd;
    ssize_t n = platform_receive_with_fd(stream->fd, bytes, length, &fd);
    if (fd >= 0) {
        socket_close(&sharing->fd_in);
        sharing->fd_in = fd;
    }
    errno = fd == PLATFORM_FD_LOST ? EMFILE : errno;
    return fd == PLATFORM_FD_LOST ? -1 : n;
}

/* The descriptor travels with the first byte. */
static ssize_t write_with_fd(struct stream *stream, const void *bytes, size_t length)
{
    struct sharing *sharing = (struct sharing *)stream;
    ssize_t n = platform_send_with_fd(stream->fd, bytes, length, sharing->fd_out);
    if (n > 0)
        sharing->fd_out = -1;
    return n;
}

struct sharing *sharing_create(const struct segment *own, int index, int channels)
{
    static const struct stream_io io = {read_with_fd, write_with_fd};
    size_t bytes = segment_offer_bytes(channels);
    struct sharing *sharing = calloc(1, sizeof *sharing);
    if (!sharing)
        return NULL;
    struct wire_writer *out = &sharing->stream.out;
    sharing->stream.io = &io;
    sharing->channels = channels;
    sharing->fd_out = own ? own->fd : -1;
    sharing->fd_in = -1;
    sharing->rings = calloc((size_t)channels, sizeof *sharing->rings);
    if (!sharing->rings || !wire_reserve(out, bytes)) {
        sharing_free(sharing);
        return NULL;
    }
    memset(out->bytes, 0, bytes); /* an offer of nothing */
    if (own)
        segment_offer(own, index, out->bytes);
    out->length = bytes;
    return sharing;
}

void sharing_free(struct sharing *sharing)
{
    socket_close(&sharing->fd_in);
    stream_free(&sharing->stream);
    free(sharing->rings);
    segment_release(sharing->segment);
    free(sharing);
}

hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status)
{
    struct stream *stream = &sharing->stream;
    size_t offer = segment_offer_bytes(sharing->channels);
    stream->fd = socket;
    enum stream_outcome outcome = stream_write(stream);
    if (!outcome)
        outcome = stream_fill(stream, offer);
    if (!outcome && !sharing->answered) {
        sharing->segment =
            segment_accept(stream->in.bytes, sharing->fd_in, sharing->rings, sharing->channels);
        sharing->answered = true;
        wire_put_u8(&stream->out, sharing->segment != NULL);
        outcome = stream_write(stream);
    }
    if (!outcome)
        outcome = stream_fill(stream, offer + 1);
    if (outcome == STREAM_AGAIN)
        return HVD_IN_PROGRESS;
    if (outcome == STREAM_NO_MEMORY)
        return status_no_memory(status);
    if (outcome == STREAM_FAILED && errno == EMFILE)
        return status_set_errno(status, EMFILE, "can't take the memory that a rank of this host shares");
    if (outcome)
        return status_set(status, HVD_UNSUPPORTED, "the connection ended while memory was being shared");
    if (sharing->segment && stream->in.bytes[offer] == 1)
        return HVD_OK;
    return status_set(status, HVD_UNSUPPORTED, "%s can't map the other's memory",
                      sharing->segment ? "it" : "this rank");
}
