/* fuzz_handshake.c - any bytes as messages of a handshake, to each end at each stage, whole and in pieces
 * from a socket. Nothing may crash, and nobody without the secret may get through. First byte: which of them.
 */
#include "net/handshake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct handshake_claim claim = {.role = HANDSHAKE_LINK, .job = "job", .from = 1, .to = 0};
static const char secret[] = "a secret that the input does not know";

enum { TO_ACCEPTOR, TO_INITIATOR, AS_PROOF, SPOILED_REPLY, FROM_SOCKET, ENCRYPTED_HELLO, AS_TLS, MODES };

static void must(hvd_code code)
{
    if (code)
        abort();
}

static void take(struct handshake *handshake, const uint8_t *bytes, size_t length)
{
    hvd_status status;
    hvd_code code = handshake_receive(handshake, bytes, length, &status);
    if (handshake->stage == HANDSHAKE_DONE || (code && code != HVD_REFUSED))
        abort();
}

/* The acceptor's true answer to a true hello. */
static void meet(struct handshake *initiator, struct handshake *acceptor)
{
    must(handshake_initiate(initiator, secret, &claim, "initiator", NULL));
    handshake_accept(acceptor, secret, &claim, "acceptor");
    must(handshake_receive(acceptor, initiator->out, initiator->stream.out.length, NULL));
}

static void spoil_reply(const uint8_t *bytes, size_t length)
{
    struct handshake initiator, acceptor;
    bool changed = false;
    meet(&initiator, &acceptor);
    for (size_t i = 0; i < length && i < acceptor.stream.out.length; i++) {
        acceptor.out[i] ^= bytes[i];
        changed |= bytes[i] != 0;
    }
    if (changed)
        take(&initiator, acceptor.out, acceptor.stream.out.length);
}

static void feed_by_socket(const uint8_t *bytes, size_t length)
{
    hvd_status status;
    struct handshake acceptor;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        abort();
    handshake_accept(&acceptor, secret, &claim, "acceptor");
    for (size_t at = 0; at < length; at += 7) {
        ssize_t ignored = send(ends[1], bytes + at, length - at < 7 ? length - at : 7, MSG_NOSIGNAL);
        (void)ignored;
        hvd_code code = handshake_advance(&acceptor, ends[0], &status);
        if (code == HVD_OK)
            abort();
        if (code != HVD_IN_PROGRESS)
            break;
    }
    close(ends[0]);
    close(ends[1]);
}

/* An acceptor of encrypted connections gets any bytes as the hello or, after true messages, where TLS starts.
 */
static void encrypt(const uint8_t *bytes, size_t length, bool as_tls)
{
    struct handshake initiator, acceptor;
    struct handshake_claim encrypted = claim;
    hvd_status status;
    int ends[2];
    encrypted.encrypted = true;
    handshake_accept(&acceptor, secret, &encrypted, "acceptor");
    if (!as_tls) {
        take(&acceptor, bytes, length);
        return;
    }
    if (handshake_initiate(&initiator, secret, &encrypted, "initiator", &status) == HVD_UNSUPPORTED)
        return; /* no OpenSSL */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        abort();
    must(handshake_receive(&acceptor, initiator.out, initiator.stream.out.length, NULL));
    must(handshake_receive(&initiator, acceptor.out, acceptor.stream.out.length, NULL));
    must(handshake_receive(&acceptor, initiator.out, initiator.stream.out.length, NULL));
    wire_reset(&acceptor.stream.out);
    acceptor.stream.sent = 0;
    ssize_t ignored = send(ends[1], bytes, length, MSG_NOSIGNAL);
    (void)ignored;
    if (handshake_advance(&acceptor, ends[0], &status) == HVD_OK)
        abort();
    handshake_end(&acceptor);
    close(ends[0]);
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct handshake initiator, acceptor;
    if (!length)
        return 0;
    int mode = bytes[0] % MODES;
    bytes++;
    length--;
    meet(&initiator, &acceptor);
    if (mode == TO_INITIATOR)
        take(&initiator, bytes, length);
    else if (mode == AS_PROOF)
        take(&acceptor, bytes, length);
    else if (mode == SPOILED_REPLY)
        spoil_reply(bytes, length);
    else if (mode == FROM_SOCKET)
        feed_by_socket(bytes, length);
    else if (mode == ENCRYPTED_HELLO || mode == AS_TLS)
        encrypt(bytes, length, mode == AS_TLS);
    if (mode == TO_ACCEPTOR) {
        handshake_accept(&acceptor, secret, &claim, "acceptor");
        take(&acceptor, bytes, length);
    }
    return 0;
}
