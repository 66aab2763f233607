/* sharing.h - two ranks of one host give each other their memory, over the Unix socket between them:
 *
 *   offer     each -> other   its rings for the other (segment_offer), with the descriptor
 *   verdict   each -> other   1: mapped it, 0: can't
 *
 * Only when both say 1 do they share memory; else both know that they do not. Never blocks. */
#ifndef HVD_TRANSPORT_SHARING_H
#define HVD_TRANSPORT_SHARING_H

#include "transport/segment.h"

struct sharing { /* zeroed memory is a valid empty one */
    int channels;
    int fd_out, fd_in; /* of the own segment; of the other's, once it has come */
    uint8_t *out, *in; /* offers */
    size_t sent, received;
    int stage;
    uint8_t mine, theirs; /* verdicts */
    struct segment *segment;
    struct ring *rings;
};

/* `own` may be NULL: then the outcome is no. */
hvd_code sharing_begin(struct sharing *sharing, const struct segment *own, int index, int channels,
                       hvd_status *status);
void sharing_free(struct sharing *sharing);
/* HVD_OK: segment and rings are the other's. HVD_UNSUPPORTED: one of the two can't. */
hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status);
short sharing_events(const struct sharing *sharing);

#endif
