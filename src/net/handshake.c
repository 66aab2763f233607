/* handshake.c - the three messages of the handshake, at either end. One connection's state, one thread. */
#include "net/handshake.h"

#include "base/status.h"
#include "net/crypto.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC           "HHVD"
#define MAGIC_BYTES     4
#define VERSION         1
#define HEADER_BYTES    8 /* magic, version (u16), bytes of the body (u16) */
#define NONCE_BYTES     32
#define LABEL_ACCEPTS   "horovod accepts  "
#define LABEL_INITIATES "horovod initiates"
#define LABEL_ENCRYPTS  "horovod encrypts "

enum verdict {
    VERDICT_OK,
    VERDICT_VERSION,
    VERDICT_ROLE,
    VERDICT_JOB,
    VERDICT_GENERATION,
    VERDICT_RANK,
    VERDICT_SECRET,
    VERDICT_ENCRYPTION,
    VERDICT_NO_TLS,
    VERDICT_COUNT
};

static const char *const verdict_texts[VERDICT_COUNT] = {
    "it accepted",
    "it speaks another version of the protocol; install the same release of horovod everywhere",
    "it is there for another kind of connection",
    "it belongs to another job (HOROVOD_JOB differs)",
    "it belongs to an earlier or later start of this job",
    "it has another rank than expected; two processes may share a rank (HOROVOD_RANK)",
    "it has another secret; every rank and the launcher need the same HOROVOD_SECRET",
    "one end encrypts and the other one does not; set HOROVOD_ENCRYPTION alike for all ranks",
    "it can't encrypt, since OpenSSL 1.1.1 or later (libssl.so.3) is not installed there",
};

/* ---- messages ---------------------------------------------------------------------------------------- */

static struct wire_writer message_begin(struct handshake *handshake)
{
    /* A writer over the fixed buffer: no message comes near its end, so it never grows. */
    struct wire_writer writer = {.bytes = handshake->out, .capacity = sizeof handshake->out};
    wire_put_raw(&writer, MAGIC, MAGIC_BYTES);
    wire_put_u16(&writer, VERSION);
    wire_put_u16(&writer, 0);
    return writer;
}

/* The length covers `following` bytes that come later: the MAC, which is computed over this very header. */
static void message_end(struct handshake *handshake, const struct wire_writer *writer, size_t following)
{
    size_t body = writer->length + following - HEADER_BYTES;
    handshake->out[6] = (uint8_t)body;
    handshake->out[7] = (uint8_t)(body >> 8);
    handshake->stream.out = *writer;
    handshake->stream.sent = 0;
}

static void remember(struct handshake *handshake, const uint8_t *bytes, size_t length)
{
    memcpy(handshake->transcript + handshake->transcript_length, bytes, length);
    handshake->transcript_length += length;
}

static void compute_mac(const struct handshake *handshake, const char *label, uint8_t mac[CRYPTO_MAC_BYTES])
{
    uint8_t bytes[sizeof LABEL_ACCEPTS + sizeof handshake->transcript];
    size_t length = strlen(label);
    memcpy(bytes, label, length);
    memcpy(bytes + length, handshake->transcript, handshake->transcript_length);
    /* The labels differ, so that neither end can send the other one's MAC back as its own. */
    crypto_mac(handshake->secret, strlen(handshake->secret), bytes, length + handshake->transcript_length,
               mac);
}

static void append_mac(struct handshake *handshake, const char *label)
{
    struct wire_writer *out = &handshake->stream.out;
    compute_mac(handshake, label, out->bytes + out->length);
    out->length += CRYPTO_MAC_BYTES;
}

static bool mac_is_right(const struct handshake *handshake, const char *label, const uint8_t *mac)
{
    uint8_t expected[CRYPTO_MAC_BYTES];
    compute_mac(handshake, label, expected);
    return crypto_equal(expected, mac, sizeof expected);
}

/* Sends a verdict without a proof, after which the connection ends. Zeros take the place of nonce and MAC. */
static void put_refusal(struct handshake *handshake, enum verdict verdict, size_t zeros)
{
    static const uint8_t nothing[NONCE_BYTES + CRYPTO_MAC_BYTES];
    struct wire_writer writer = message_begin(handshake);
    wire_put_u8(&writer, (uint8_t)verdict);
    wire_put_raw(&writer, nothing, zeros);
    message_end(handshake, &writer, 0);
}

static hvd_code refused(const struct handshake *handshake, const char *why, hvd_status *status)
{
    return status_set(status, HVD_REFUSED, "%s can't be used: %s", handshake->who, why);
}

static hvd_code refused_by_peer(const struct handshake *handshake, unsigned verdict, hvd_status *status)
{
    const char *why = verdict < VERDICT_COUNT ? verdict_texts[verdict] : "it gave an unknown reason";
    return status_set(status, HVD_REFUSED, "%s refused this connection: %s", handshake->who, why);
}

static hvd_code check_header(const struct handshake *handshake, struct wire_reader *reader,
                             bool *same_version, hvd_status *status)
{
    const uint8_t *magic = wire_get_raw(reader, MAGIC_BYTES);
    *same_version = wire_get_u16(reader) == VERSION;
    size_t body = wire_get_u16(reader);
    if (reader->failed || memcmp(magic, MAGIC, MAGIC_BYTES) != 0 || body != reader->length - HEADER_BYTES)
        return refused(handshake, "what it sends is not horovod's protocol", status);
    return HVD_OK;
}

/* ---- the three steps --------------------------------------------------------------------------------- */

hvd_code handshake_initiate(struct handshake *handshake, const char *secret,
                            const struct handshake_claim *claim, const char *who, hvd_status *status)
{
    uint8_t nonce[NONCE_BYTES];
    if (claim->encrypted)
        TRY(tls_load(status));
    TRY(crypto_random(nonce, sizeof nonce, status));
    handshake_accept(handshake, secret, claim, who);
    handshake->stage = HANDSHAKE_REPLY;
    handshake->initiator = true;
    struct wire_writer writer = message_begin(handshake);
    wire_put_u8(&writer, (uint8_t)claim->role);
    wire_put_string(&writer, claim->job);
    wire_put_u32(&writer, claim->generation);
    wire_put_u32(&writer, claim->from);
    wire_put_u32(&writer, claim->to);
    wire_put_u32(&writer, claim->channel);
    wire_put_u32(&writer, claim->mesh);
    wire_put_u8(&writer, claim->encrypted);
    wire_put_raw(&writer, nonce, sizeof nonce);
    message_end(handshake, &writer, 0);
    remember(handshake, handshake->out, handshake->stream.out.length);
    return HVD_OK;
}

void handshake_accept(struct handshake *handshake, const char *secret, const struct handshake_claim *expected,
                      const char *who)
{
    *handshake = (struct handshake){.stage = HANDSHAKE_HELLO, .secret = secret, .claim = *expected};
    snprintf(handshake->who, sizeof handshake->who, "%s", who);
    handshake->stream = (struct stream){.io = &stream_socket,
                                        .in = {.bytes = handshake->in, .capacity = sizeof handshake->in}};
}

static enum verdict validate(const struct handshake_claim *expected, const struct handshake_claim *claim)
{
    if (claim->role != expected->role)
        return VERDICT_ROLE;
    if (strcmp(claim->job, expected->job) != 0)
        return VERDICT_JOB;
    if (claim->generation != expected->generation)
        return VERDICT_GENERATION;
    if (claim->to != expected->to)
        return VERDICT_RANK;
    if (claim->role != HANDSHAKE_RENDEZVOUS && claim->encrypted != expected->encrypted)
        return VERDICT_ENCRYPTION;
    return claim->encrypted && tls_load(NULL) ? VERDICT_NO_TLS : VERDICT_OK;
}

static hvd_code read_hello(struct handshake *handshake, struct wire_reader *reader, bool same_version,
                           enum verdict *verdict, hvd_status *status)
{
    struct handshake_claim claim = {0};
    *verdict = VERDICT_VERSION;
    if (!same_version)
        return HVD_OK;
    claim.role = (enum handshake_role)wire_get_u8(reader);
    wire_get_string(reader, claim.job, sizeof claim.job);
    claim.generation = wire_get_u32(reader);
    claim.from = wire_get_u32(reader);
    claim.to = wire_get_u32(reader);
    claim.channel = wire_get_u32(reader);
    claim.mesh = wire_get_u32(reader);
    claim.encrypted = wire_get_u8(reader) != 0;
    wire_get_raw(reader, NONCE_BYTES);
    if (!wire_done(reader))
        return refused(handshake, "its first message is malformed", status);
    *verdict = validate(&handshake->claim, &claim);
    handshake->claim = claim;
    return HVD_OK;
}

static hvd_code receive_hello(struct handshake *handshake, struct wire_reader *reader, bool same_version,
                              hvd_status *status)
{
    uint8_t nonce[NONCE_BYTES];
    enum verdict verdict;
    TRY(read_hello(handshake, reader, same_version, &verdict, status));
    TRY(crypto_random(nonce, sizeof nonce, status));
    if (verdict) {
        put_refusal(handshake, verdict, NONCE_BYTES + CRYPTO_MAC_BYTES);
        return refused(handshake, verdict_texts[verdict], status);
    }
    remember(handshake, reader->bytes, reader->length);
    struct wire_writer writer = message_begin(handshake);
    wire_put_u8(&writer, VERDICT_OK);
    wire_put_raw(&writer, nonce, sizeof nonce);
    message_end(handshake, &writer, CRYPTO_MAC_BYTES);
    remember(handshake, handshake->out, handshake->stream.out.length);
    append_mac(handshake, LABEL_ACCEPTS);
    handshake->stage = HANDSHAKE_PROOF;
    return HVD_OK;
}

static hvd_code receive_reply(struct handshake *handshake, struct wire_reader *reader, bool same_version,
                              hvd_status *status)
{
    unsigned verdict = same_version ? wire_get_u8(reader) : VERDICT_VERSION;
    if (verdict)
        return refused_by_peer(handshake, verdict, status);
    wire_get_raw(reader, NONCE_BYTES);
    const uint8_t *mac = wire_get_raw(reader, CRYPTO_MAC_BYTES);
    if (!wire_done(reader))
        return refused(handshake, "its reply is malformed", status);
    /* Remembers all except the MAC, as the acceptor did before it computed the MAC. */
    remember(handshake, reader->bytes, reader->length - CRYPTO_MAC_BYTES);
    bool right = mac_is_right(handshake, LABEL_ACCEPTS, mac);
    if (!right) {
        put_refusal(handshake, VERDICT_SECRET, CRYPTO_MAC_BYTES);
        return refused(handshake, verdict_texts[VERDICT_SECRET], status);
    }
    struct wire_writer writer = message_begin(handshake);
    wire_put_u8(&writer, VERDICT_OK);
    message_end(handshake, &writer, CRYPTO_MAC_BYTES);
    append_mac(handshake, LABEL_INITIATES);
    handshake->stage = HANDSHAKE_DONE; /* once it is sent */
    return HVD_OK;
}

static hvd_code receive_proof(struct handshake *handshake, struct wire_reader *reader, bool same_version,
                              hvd_status *status)
{
    unsigned verdict = wire_get_u8(reader);
    const uint8_t *mac = wire_get_raw(reader, CRYPTO_MAC_BYTES);
    /* The version was judged with the hello; a refusal has the same length as a proof. */
    if (!wire_done(reader) || !same_version)
        return refused(handshake, "its proof is malformed", status);
    if (verdict)
        return refused_by_peer(handshake, verdict, status);
    if (!mac_is_right(handshake, LABEL_INITIATES, mac))
        return refused(handshake, verdict_texts[VERDICT_SECRET], status);
    handshake->stage = HANDSHAKE_DONE;
    return HVD_OK;
}

hvd_code handshake_receive(struct handshake *handshake, const uint8_t *message, size_t length,
                           hvd_status *status)
{
    bool same_version;
    struct wire_reader reader = wire_reader_of(message, length);
    TRY(check_header(handshake, &reader, &same_version, status));
    switch (handshake->stage) {
    case HANDSHAKE_HELLO:
        return receive_hello(handshake, &reader, same_version, status);
    case HANDSHAKE_REPLY:
        return receive_reply(handshake, &reader, same_version, status);
    case HANDSHAKE_PROOF:
        return receive_proof(handshake, &reader, same_version, status);
    case HANDSHAKE_DONE:
        break;
    }
    return refused(handshake, "it sends more than the handshake has", status);
}

/* ---- input and output --------------------------------------------------------------------------------- */

static hvd_code code_of(const struct handshake *handshake, enum stream_outcome outcome, hvd_status *status)
{
    if (outcome <= STREAM_AGAIN)
        return outcome == STREAM_DONE ? HVD_OK : HVD_IN_PROGRESS;
    return status_set(status, HVD_PEER_LOST, "%s closed the connection during the handshake", handshake->who);
}

/* Reads the header, then exactly the body that it announces. */
static hvd_code read_message(struct handshake *handshake, hvd_status *status)
{
    struct stream *stream = &handshake->stream;
    enum stream_outcome outcome = stream_fill(stream, HEADER_BYTES);
    size_t body = outcome ? 1 : handshake->in[6] | (size_t)handshake->in[7] << 8;
    /* Checked before the length is used: unauthenticated bytes must not make this end wait. */
    bool foreign = stream->in.length >= MAGIC_BYTES && memcmp(handshake->in, MAGIC, MAGIC_BYTES) != 0;
    if (foreign || !body || HEADER_BYTES + body > sizeof handshake->in)
        return refused(handshake, "what it sends is not horovod's protocol", status);
    if (!outcome)
        outcome = stream_fill(stream, HEADER_BYTES + body);
    return code_of(handshake, outcome, status);
}

/* Both ends know the secret by now. */
static hvd_code exchange_keys(struct handshake *handshake, int fd, hvd_status *status)
{
    uint8_t key[CRYPTO_MAC_BYTES];
    if (!handshake->tls) {
        compute_mac(handshake, LABEL_ENCRYPTS, key);
        handshake->tls = tls_create(fd, handshake->initiator, key);
        crypto_wipe(key, sizeof key);
        if (!handshake->tls)
            return status_no_memory(status);
    }
    hvd_code code = tls_handshake(handshake->tls);
    if (code == HVD_PEER_LOST)
        status_set(status, code, "%s: the encrypted connection broke off%s", handshake->who,
                   errno == EPROTO ? ": what arrived is not what the other end sent" : "");
    return code;
}

hvd_code handshake_advance(struct handshake *handshake, int fd, hvd_status *status)
{
    struct stream *stream = &handshake->stream;
    stream->fd = fd;
    for (;;) {
        hvd_code code = code_of(handshake, stream_write(stream), status);
        if (!code && handshake->stage == HANDSHAKE_DONE && handshake->claim.encrypted)
            code = exchange_keys(handshake, fd, status);
        if (code || handshake->stage == HANDSHAKE_DONE)
            return code;
        code = read_message(handshake, status);
        if (code)
            return code;
        code = handshake_receive(handshake, stream->in.bytes, stream->in.length, status);
        wire_reset(&stream->in);
        if (code) {
            stream_write(stream); /* the reason, if it goes at once */
            return code;
        }
    }
}

short handshake_events(const struct handshake *handshake)
{
    return handshake->tls ? tls_events(handshake->tls) : stream_events(&handshake->stream);
}

void handshake_end(struct handshake *handshake)
{
    tls_free(handshake->tls);
    handshake->tls = NULL;
}
