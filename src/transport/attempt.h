/* attempt.h - one connection between two ranks on its way to become links: it connects, proves who it is,
 * and, on a Unix socket, shares memory. Never blocks. */
#ifndef HVD_TRANSPORT_ATTEMPT_H
#define HVD_TRANSPORT_ATTEMPT_H

#include "rendezvous/handshake.h"
#include "transport/record.h"
#include "transport/sharing.h"

enum attempt_stage {
    ATTEMPT_PAUSED,     /* to be tried again at `since` */
    ATTEMPT_CONNECTING, /* only those that this rank began */
    ATTEMPT_SHAKING,
    ATTEMPT_SHARING
};

struct attempt {
    enum attempt_stage stage;
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
struct attempt *attempt_accept(struct mesh *mesh, const struct mesh_config *config, int fd, bool local);
struct attempt *attempt_for_peer(struct peer *peer, bool local, int channel);
void attempt_free(struct attempt *attempt);

/* Begins, or begins again. HVD_IN_PROGRESS, or the fault. */
hvd_code attempt_connect(struct attempt *attempt, const struct mesh_config *config,
                         const struct record *record, hvd_status *status);

/* HVD_IN_PROGRESS; HVD_OK: it is ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this way does not work, another may. */
hvd_code attempt_advance(struct attempt *attempt, const struct mesh_config *config, hvd_status *status);
short attempt_events(const struct attempt *attempt);

#endif
