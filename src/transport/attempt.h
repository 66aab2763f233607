/* attempt.h - one connection between two ranks on its way to become links: it connects, authenticates both
 * ends, and negotiates what its transport needs. Never blocks. */
#ifndef HVD_TRANSPORT_ATTEMPT_H
#define HVD_TRANSPORT_ATTEMPT_H

#include "rendezvous/handshake.h"
#include "transport/record.h"

enum attempt_stage {
    ATTEMPT_PAUSED,     /* to be tried again at `since` */
    ATTEMPT_CONNECTING, /* only those that this rank began */
    ATTEMPT_SHAKING,
    ATTEMPT_NEGOTIATING
};

struct attempt {
    enum attempt_stage stage;
    int row; /* of its transport */
    int fd;
    bool initiator; /* this rank began */
    int64_t since;
    struct mesh *mesh;
    struct peer *peer; /* NULL: not authenticated yet */
    int channel;       /* 0 where one connection stands for all */
    struct handshake handshake;
    void *state; /* of the negotiation */
};

/* Takes over `fd`, of `who`; NULL when memory is out. */
struct attempt *attempt_accept(struct mesh *mesh, const struct mesh_config *config, int row, int fd,
                               const char *who);
struct attempt *attempt_for_peer(struct peer *peer, int row, int channel);
void attempt_free(struct attempt *attempt);

/* Begins, or begins again. HVD_IN_PROGRESS, or the fault. */
hvd_code attempt_connect(struct attempt *attempt, const struct mesh_config *config, const char *address,
                         hvd_status *status);

/* HVD_IN_PROGRESS; HVD_OK: it is ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this transport does not work, another may. */
hvd_code attempt_advance(struct attempt *attempt, const struct mesh_config *config, hvd_status *status);
short attempt_events(const struct attempt *attempt);

#endif
