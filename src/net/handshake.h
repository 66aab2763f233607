/* handshake.h - mutual authentication of a new connection by challenge and response: each end sends an HMAC,
 * keyed with the job's secret, over both nonces (as in ISO/IEC 9798-4), before anything else is read. Used
 * for the rendezvous, for the links between ranks, and between launchers.
 *
 *   hello   initiator -> acceptor   the claim (ranks, job, mesh, channel), a nonce
 *   reply   acceptor -> initiator   verdict, a nonce, MAC("accepts" + hello + reply)
 *   proof   initiator -> acceptor   verdict, MAC("initiates" + hello + reply)
 *
 * Where the claim says so both ends then set up TLS, with a key that both derive from the secret and the
 * nonces, so that nothing unauthenticated reaches the TLS library.
 *
 * Every message starts with magic, version and length, which no later version may change. A state machine
 * without a clock: the owner of the connection sets the deadline. It never reads past the handshake. */
#ifndef HVD_NET_HANDSHAKE_H
#define HVD_NET_HANDSHAKE_H

#include "base/clock.h"
#include "horovod.h"
#include "net/socket.h"

#include <stdbool.h>

#define HANDSHAKE_MESSAGE_LIMIT 512
#define HANDSHAKE_JOB_LIMIT     192
#define HANDSHAKE_WHO_LIMIT     160

enum handshake_role {
    HANDSHAKE_RENDEZVOUS = 1,
    HANDSHAKE_LINK = 2,  /* between two ranks; + n: by the n-th transport */
    HANDSHAKE_NODE = 128 /* a horovodrun to that of node 0 (launch/nodes.h) */
};

struct handshake_claim {
    enum handshake_role role;
    char job[HANDSHAKE_JOB_LIMIT];
    uint32_t generation;
    uint32_t from, to; /* ranks */
    uint32_t channel;
    uint32_t mesh;  /* its number among those of the two ranks */
    bool encrypted; /* must equal the claim of an acceptor of links; the rendezvous accepts both */
};

enum handshake_stage { HANDSHAKE_HELLO, HANDSHAKE_REPLY, HANDSHAKE_PROOF, HANDSHAKE_DONE };

struct handshake {
    enum handshake_stage stage; /* the next message, from either side */
    bool initiator;
    const char *secret;
    struct handshake_claim claim;
    char who[HANDSHAKE_WHO_LIMIT]; /* the other end, for texts */
    struct stream stream;          /* its buffers are these: unauthenticated bytes cost no more memory */
    uint8_t in[HANDSHAKE_MESSAGE_LIMIT], out[HANDSHAKE_MESSAGE_LIMIT];
    uint8_t transcript[2 * HANDSHAKE_MESSAGE_LIMIT]; /* what both MACs cover */
    size_t transcript_length;
    struct tls *tls; /* a caller that takes ownership sets this to NULL; see handshake_end */
};

/* `secret` is not copied. The acceptor's claim holds what it expects; `from`, `channel` and `mesh` are read
 * from the hello, and are proven once the handshake is done. */
hvd_code handshake_initiate(struct handshake *handshake, const char *secret,
                            const struct handshake_claim *claim, const char *who, hvd_status *status);
void handshake_accept(struct handshake *handshake, const char *secret, const struct handshake_claim *expected,
                      const char *who);

/* Continues as far as the non-blocking `fd` allows. HVD_OK: both ends are proven. HVD_IN_PROGRESS: call again
 * after handshake_events. HVD_REFUSED: secret, version or claim differ, so another attempt would fail as
 * well. HVD_PEER_LOST: the connection ended. The caller takes ownership of `tls` of an encrypted connection.
 */
hvd_code handshake_advance(struct handshake *handshake, int fd, hvd_status *status);

/* For an acceptor: returns true if the hello has not arrived yet. */
static inline bool handshake_is_silent(const struct handshake *handshake)
{
    return handshake->stage == HANDSHAKE_HELLO;
}

/* Returns the events to poll for. */
short handshake_events(const struct handshake *handshake);

/* Frees what the handshake still holds; a zeroed one is fine. */
void handshake_end(struct handshake *handshake);

/* Takes one whole message, header included, and prepares the answer; handshake_advance's inner half. */
hvd_code handshake_receive(struct handshake *handshake, const uint8_t *message, size_t length,
                           hvd_status *status);

#endif
