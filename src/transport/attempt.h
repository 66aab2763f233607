/* attempt.h - one connection between two ranks on its way to become links: it connects, authenticates both
 * ends, and negotiates what its transport needs. Never blocks. One thread at a time. */
#ifndef HVD_TRANSPORT_ATTEMPT_H
#define HVD_TRANSPORT_ATTEMPT_H

#include "rendezvous/handshake.h"
#include "transport/peer.h"

enum attempt_stage {
    ATTEMPT_PAUSED,     /* to be tried again at `since` */
    ATTEMPT_CONNECTING, /* only those that this rank began */
    ATTEMPT_SHAKING,
    ATTEMPT_PROVEN, /* accepted and authenticated: its mesh takes it with attempt_identify */
    ATTEMPT_NEGOTIATING,
    ATTEMPT_ENDED
};

struct attempt {
    enum attempt_stage stage;
    int row; /* of its transport */
    int fd;
    int poller;     /* that reports the descriptor; -1: none */
    short watched;  /* for this */
    bool initiator; /* this rank began */
    int64_t since;
    struct mesh *mesh; /* the hub until the one that it names has taken it */
    struct peer *peer; /* NULL: not known yet */
    int channel;       /* 0 where one connection stands for all */
    struct handshake handshake;
    void *state; /* of the negotiation */
    struct attempt *next;
};

/* Takes over `fd`, of `who`; NULL when memory is out. */
struct attempt *attempt_accept(struct mesh *hub, int row, int fd, const char *who);
struct attempt *attempt_for_peer(struct peer *peer, int row, int channel);
void attempt_free(struct attempt *attempt);

/* Begins, or begins again. HVD_IN_PROGRESS, or the fault. */
hvd_code attempt_connect(struct attempt *attempt, const char *address, hvd_status *status);

/* HVD_IN_PROGRESS; HVD_OK: it is proven, or ready to become links; HVD_PEER_LOST: another attempt may help;
 * HVD_UNSUPPORTED: this transport does not work, another may. */
hvd_code attempt_advance(struct attempt *attempt, hvd_status *status);

/* Finds the peer of a proven attempt in the mesh that it names. */
hvd_code attempt_identify(struct attempt *attempt, struct mesh *mesh, hvd_status *status);

/* The poller reports the attempt when it can be advanced; false: errno. Without a descriptor nothing. */
bool attempt_watch(struct attempt *attempt, int poller);
void attempt_unwatch(struct attempt *attempt);

#endif
