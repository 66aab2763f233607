/* sharing.h - two ranks of one host give each other their memory, over the Unix socket between them:
 *
 *   offer     each -> other   its rings for the other (segment_offer), with the descriptor
 *   verdict   each -> other   1: mapped it, 0: can't
 *
 * Only when both say 1 do they share memory; else both know that they do not. Never blocks. */
#ifndef HVD_TRANSPORT_SHARING_H
#define HVD_TRANSPORT_SHARING_H

#include "base/stream.h"
#include "transport/segment.h"

struct sharing {
    struct stream stream; /* first, see read_with_fd */
    int channels;
    int fd_out, fd_in; /* of the own segment, until it has gone; of the other's, once it has come */
    bool judged;       /* the verdict on the other's offer is on its way */
    struct segment *segment;
    struct ring *rings;
};

/* `own` may be NULL: then the outcome is no. NULL when memory is out. */
struct sharing *sharing_create(const struct segment *own, int index, int channels);
void sharing_free(struct sharing *sharing);
/* HVD_IN_PROGRESS: call again after stream_events. HVD_OK: segment and rings are the other's.
 * HVD_UNSUPPORTED: one of the two can't. */
hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status);

#endif
