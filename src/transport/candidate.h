/* candidate.h - one connection between two ranks on its way to become links: it connects, proves who it is,
 * and, on a Unix socket, shares memory. Never blocks. */
#ifndef HVD_TRANSPORT_CANDIDATE_H
#define HVD_TRANSPORT_CANDIDATE_H

#include "rendezvous/handshake.h"
#include "transport/record.h"
#include "transport/sharing.h"

enum candidate_stage {
    CANDIDATE_PAUSED,     /* to be tried again at `since` */
    CANDIDATE_CONNECTING, /* only those that this rank began */
    CANDIDATE_SHAKING,
    CANDIDATE_SHARING
};

struct candidate {
    enum candidate_stage stage;
    int fd;
    bool local;     /* a Unix socket */
    bool initiator; /* this rank began */
    int64_t since;
    struct mesh *mesh;
    struct peer *peer; /* NULL: a stranger who has not proven anything yet */
    int channel;
    struct handshake handshake;
    struct sharing sharing;
};

/* Takes over `fd`; NULL when memory is out. */
struct candidate *candidate_of_stranger(struct mesh *mesh, const struct mesh_config *config, int fd,
                                        bool local);
struct candidate *candidate_for_peer(struct peer *peer, bool local, int channel);
void candidate_free(struct candidate *candidate);

/* Begins, or begins again. HVD_IN_PROGRESS, or the fault. */
hvd_code candidate_connect(struct candidate *candidate, const struct mesh_config *config,
                           const struct record *record, hvd_status *status);

/* HVD_IN_PROGRESS; HVD_OK: it is ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this way does not work, another may. */
hvd_code candidate_advance(struct candidate *candidate, const struct mesh_config *config, hvd_status *status);
short candidate_events(const struct candidate *candidate);

#endif
