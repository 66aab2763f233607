/* test_handshake.c - the handshake between two ends in one thread: what is agreed, what is refused and in
 * which words, and that no changed byte gets through. */
#include "net/handshake.h"
#include "test.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const struct handshake_claim claim = {
    .role = HANDSHAKE_LINK, .job = "job", .generation = 3, .from = 5, .to = 2, .channel = 1};
static const struct handshake_claim expected = {
    .role = HANDSHAKE_LINK, .job = "job", .generation = 3, .to = 2};

struct pair {
    struct handshake initiator, acceptor;
    hvd_status initiator_status, acceptor_status;
    hvd_code initiator_code, acceptor_code;
    /* Message `spoiled_message` (0: hello, 1: reply, 2: proof) has a bit changed on its way. */
    int message, spoiled_message;
    size_t spoiled_byte;
};

static void begin(struct pair *pair, const char *secret, const char *other_secret,
                  const struct handshake_claim *claimed)
{
    *pair = (struct pair){.spoiled_message = -1};
    assert_int_equal(handshake_initiate(&pair->initiator, secret, claimed, "rank 2", &pair->initiator_status),
                     HVD_OK);
    handshake_accept(&pair->acceptor, other_secret, &expected, "a connection");
}

/* Moves the bytes that `from` has to send to `to`. Returns false if there are none. */
static bool carry(struct pair *pair, struct handshake *from, struct handshake *to, hvd_code *code,
                  hvd_status *status)
{
    uint8_t message[HANDSHAKE_MESSAGE_LIMIT];
    size_t length = from->stream.out.length;
    if (!length)
        return false;
    memcpy(message, from->out, length);
    from->stream.out.length = 0;
    if (pair->message++ == pair->spoiled_message && pair->spoiled_byte < length)
        message[pair->spoiled_byte] ^= 1;
    *code = handshake_receive(to, message, length, status);
    return *code == HVD_OK;
}

static void run(struct pair *pair)
{
    while (carry(pair, &pair->initiator, &pair->acceptor, &pair->acceptor_code, &pair->acceptor_status) &&
           carry(pair, &pair->acceptor, &pair->initiator, &pair->initiator_code, &pair->initiator_status))
        ;
    /* The text of the end that refused. */
    carry(pair, &pair->acceptor, &pair->initiator, &pair->initiator_code, &pair->initiator_status);
    carry(pair, &pair->initiator, &pair->acceptor, &pair->acceptor_code, &pair->acceptor_status);
}

static bool both_done(const struct pair *pair)
{
    return pair->initiator.stage == HANDSHAKE_DONE && pair->acceptor.stage == HANDSHAKE_DONE &&
           !pair->initiator_code && !pair->acceptor_code;
}

TEST(test_both_prove_the_secret)
{
    struct pair pair;
    begin(&pair, "secret", "secret", &claim);
    run(&pair);
    assert_true(both_done(&pair));
    assert_int_equal(pair.message, 3);
    assert_int_equal(pair.acceptor.claim.from, 5);
    assert_int_equal(pair.acceptor.claim.channel, 1);
}

TEST(test_another_secret_is_refused)
{
    struct pair pair;
    begin(&pair, "secret", "Secret", &claim);
    run(&pair);
    assert_int_equal(pair.initiator_code, HVD_REFUSED);
    assert_non_null(strstr(pair.initiator_status.text, "rank 2 can't be used: it has another secret"));
    assert_int_equal(pair.acceptor_code, HVD_REFUSED);
    assert_non_null(strstr(pair.acceptor_status.text, "a connection refused this connection"));
}

static void check_refusal(struct handshake_claim claimed, const char *word)
{
    struct pair pair;
    begin(&pair, "secret", "secret", &claimed);
    run(&pair);
    assert_int_equal(pair.initiator_code, HVD_REFUSED);
    assert_int_equal(pair.acceptor_code, HVD_REFUSED);
    assert_non_null(strstr(pair.initiator_status.text, word));
    assert_non_null(strstr(pair.acceptor_status.text, word));
}

TEST(test_another_claim_is_refused)
{
    struct handshake_claim claimed = claim;
    claimed.generation = 2;
    check_refusal(claimed, "earlier or later start");
    claimed = claim;
    strcpy(claimed.job, "bob");
    check_refusal(claimed, "another job");
    claimed = claim;
    claimed.role = HANDSHAKE_RENDEZVOUS;
    check_refusal(claimed, "another kind");
    claimed = claim;
    claimed.to = 3;
    check_refusal(claimed, "another rank");
}

TEST(test_another_version_is_refused)
{
    struct pair pair;
    begin(&pair, "secret", "secret", &claim);
    pair.spoiled_message = 0;
    pair.spoiled_byte = 4;
    run(&pair);
    assert_int_equal(pair.initiator_code, HVD_REFUSED);
    assert_non_null(strstr(pair.initiator_status.text, "another version"));
    assert_non_null(strstr(pair.acceptor_status.text, "another version"));
}

/* Whichever bit of whichever message is changed, at least one end refuses. */
TEST(test_no_changed_byte_gets_through)
{
    for (int message = 0; message < 3; message++) {
        for (size_t byte = 0; byte < 100; byte++) {
            struct pair pair;
            begin(&pair, "secret", "secret", &claim);
            size_t lengths[3] = {pair.initiator.stream.out.length, 73, 41};
            if (byte >= lengths[message])
                break;
            pair.spoiled_message = message;
            pair.spoiled_byte = byte;
            run(&pair);
            assert_false(both_done(&pair));
        }
    }
}

/* The bytes of an acceptor can't be used as a proof of the other end: the labels differ. */
TEST(test_reflection_is_refused)
{
    struct pair pair;
    uint8_t forged[41];
    begin(&pair, "secret", "secret", &claim);
    carry(&pair, &pair.initiator, &pair.acceptor, &pair.acceptor_code, &pair.acceptor_status);
    memcpy(forged, pair.acceptor.out, 8);
    forged[6] = 33;
    forged[7] = forged[8] = 0;
    memcpy(forged + 9, pair.acceptor.out + 41, 32); /* its MAC */
    assert_int_equal(handshake_receive(&pair.acceptor, forged, sizeof forged, &pair.acceptor_status),
                     HVD_REFUSED);
    assert_non_null(strstr(pair.acceptor_status.text, "secret"));
}

/* An old conversation, replayed word by word, meets a new nonce. */
TEST(test_replay_is_refused)
{
    struct pair pair;
    struct handshake acceptor;
    hvd_status status;
    begin(&pair, "secret", "secret", &claim);
    handshake_accept(&acceptor, "secret", &expected, "a replay");
    ASSERT_OK(
        handshake_receive(&acceptor, pair.initiator.out, pair.initiator.stream.out.length, &check_status));
    carry(&pair, &pair.initiator, &pair.acceptor, &pair.acceptor_code, &pair.acceptor_status);
    carry(&pair, &pair.acceptor, &pair.initiator, &pair.initiator_code, &pair.initiator_status);
    assert_int_equal(pair.initiator.stage, HANDSHAKE_DONE);
    assert_int_equal(
        handshake_receive(&acceptor, pair.initiator.out, pair.initiator.stream.out.length, &status),
        HVD_REFUSED);
}

TEST(test_foreign_bytes_are_refused)
{
    static const struct {
        const char *bytes;
        size_t length;
    } texts[] = {
        {"", 0}, {"GET / HTTP/1.1\r\n", 16}, {"HHVD\1\0\0\0", 8}, {"HHVD\1\0\1\0\2", 9}, {"HHVD\1", 5}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct handshake acceptor;
        handshake_accept(&acceptor, "secret", &expected, "an intruder");
        ASSERT_FAILS(
            handshake_receive(&acceptor, (const uint8_t *)texts[i].bytes, texts[i].length, &check_status),
            HVD_REFUSED, "an intruder can't be used");
    }
}
