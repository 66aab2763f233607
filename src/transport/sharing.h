/* sharing.h - two ranks of one host give each other their memory, over the Unix socket between them:
 *
 *   offer     each -> other   its rings for the other (segment_offer), with the descriptor
 *   verdict   each -> other   1: mapped it, 0: can't
 *
 * Only if both say 1 do they share memory; otherwise both know that they do not. Never blocks. Under the
 * progress lock, or in the thread that opens the mesh. */
#ifndef HVD_TRANSPORT_SHARING_H
#define HVD_TRANSPORT_SHARING_H

#include "net/socket.h"
#include "transport/segment.h"

struct sharing {
    struct stream stream; /* first, see read_with_fd */
    int channels;
    int fd_out;              /* of the own segment, until it was sent */
    int fd_in;               /* of the other rank's segment, once received */
    bool answered;           /* the verdict on the other rank's offer is on its way */
    struct segment *segment; /* the other rank's, or NULL */
    struct ring *rings;      /* in it, by channel */
};

/* `own` may be NULL: then the two share no memory. Returns NULL if memory is out. */
struct sharing *sharing_create(const struct segment *own, int index, int channels);
void sharing_free(struct sharing *sharing);
/* Continues the exchange. HVD_IN_PROGRESS: call again after stream_events. HVD_OK: segment and rings are the
 * other rank's. HVD_UNSUPPORTED: one of the two ranks cannot share memory. */
hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status);

#endif
