/* test_tls.c - encrypted connections over a socket pair: bytes through full and empty sockets and in parts,
 * other keys, certificates, changed bytes, the end of a connection, and what an observer of the wire sees. */
#include "net/tls.h"
#include "random.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS 10000000 /* until a test gives up */
#define WIRE  ((size_t)1 << 20)

/* client -> wire[0] -> the test as the wire -> wire[1] -> server: each hop is a socket pair. */
struct connection {
    struct tls *client, *server;
    int ends[2], wire[2];
    uint8_t *seen; /* what the client has sent */
    size_t seen_length;
    size_t change_at; /* of what it sends: this byte is changed */
};

static const uint8_t key[CRYPTO_MAC_BYTES] = {1, 2, 3}, other_key[CRYPTO_MAC_BYTES] = {1, 2, 4};

static void open_connection(struct connection *connection, const uint8_t *client, const uint8_t *server)
{
    *connection = (struct connection){.seen = malloc(WIRE), .change_at = SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        connection->ends[i] = pair[0];
        connection->wire[i] = pair[1];
    }
    ASSERT_OK(tls_load(&check_status));
    connection->client = tls_create(connection->ends[0], true, client);
    connection->server = tls_create(connection->ends[1], false, server);
    assert_true(connection->client && connection->server && connection->seen);
}

static void close_connection(struct connection *connection)
{
    tls_free(connection->client);
    tls_free(connection->server);
    for (int i = 0; i < 2; i++) {
        close(connection->ends[i]);
        close(connection->wire[i]);
    }
    free(connection->seen);
}

/* Moves the bytes on the wire, a few at a time. */
static void carry(struct connection *connection)
{
    for (int from = 0; from < 2; from++) {
        uint8_t bytes[1000];
        ssize_t n = recv(connection->wire[from], bytes, sizeof bytes, 0);
        if (n <= 0)
            continue;
        if (from == 0) {
            for (ssize_t i = 0; i < n; i++)
                if (connection->seen_length + (size_t)i == connection->change_at)
                    bytes[i] ^= 1;
            if (connection->seen_length + (size_t)n <= WIRE)
                memcpy(connection->seen + connection->seen_length, bytes, (size_t)n);
            connection->seen_length += (size_t)n;
        }
        for (ssize_t sent = 0; sent < n;) {
            ssize_t moved = send(connection->wire[1 - from], bytes + sent, (size_t)(n - sent), MSG_NOSIGNAL);
            assert_true(moved > 0 || errno == EPIPE);
            sent += moved > 0 ? moved : n;
        }
    }
}

static hvd_code shake_hands(struct connection *connection, hvd_code *server)
{
    hvd_code client = HVD_IN_PROGRESS;
    *server = HVD_IN_PROGRESS;
    for (int i = 0; i < 1000; i++) {
        client = client == HVD_IN_PROGRESS ? tls_handshake(connection->client) : client;
        *server = *server == HVD_IN_PROGRESS ? tls_handshake(connection->server) : *server;
        carry(connection);
    }
    return client;
}

static void open_and_shake(struct connection *connection)
{
    hvd_code server;
    open_connection(connection, key, key);
    assert_int_equal(shake_hands(connection, &server), HVD_OK);
    assert_int_equal(server, HVD_OK);
}

static uint8_t byte_of(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) * 3);
}

/* `length` bytes from one end to the other, written and read in parts of random sizes. */
static void pass(struct connection *connection, struct tls *from, struct tls *to, size_t length,
                 uint64_t *random)
{
    uint8_t *sent = malloc(length), *received = calloc(1, length);
    size_t out = 0, in = 0, least = 0;
    for (size_t i = 0; i < length; i++)
        sent[i] = byte_of(i);
    for (int call = 0; in < length; call++) {
        struct iovec parts[5];
        size_t end = out;
        int count = 0;
        assert_true(call < CALLS);
        while (count < 5 && (end < length)) {
            size_t part = random_below(random, 30000);
            part = end + part > length ? length - end : part;
            parts[count++] = (struct iovec){sent + end, part};
            end += part;
        }
        if (count &&
            end - out >= least) { /* a write that could not complete is repeated with the same bytes */
            ssize_t n = tls_write(from, parts, count);
            assert_true(n >= 0 || errno == EAGAIN);
            out += n > 0 ? (size_t)n : 0;
            least = n < 0 ? end - out : 0;
        }
        if (random_below(random, 3))
            carry(connection);
        size_t room = random_below(random, 40000);
        room = in + room > length ? length - in : room;
        struct iovec halves[2] = {{received + in, room / 2}, {received + in + room / 2, room - room / 2}};
        ssize_t n = room ? tls_read(to, halves, 2) : 0;
        assert_true(n >= 0 || errno == EAGAIN);
        in += n > 0 ? (size_t)n : 0;
    }
    assert_memory_equal(sent, received, length);
    free(sent);
    free(received);
}

TEST(test_bytes_arrive_both_ways)
{
    struct connection connection;
    uint64_t random = 1;
    open_and_shake(&connection);
    for (int round = 0; round < 5; round++) {
        pass(&connection, connection.client, connection.server, 1 + random_below(&random, 600000), &random);
        pass(&connection, connection.server, connection.client, 1 + random_below(&random, 600000), &random);
    }
    close_connection(&connection);
}

TEST(test_another_key)
{
    struct connection connection;
    hvd_code server;
    open_connection(&connection, key, other_key);
    assert_int_not_equal(shake_hands(&connection, &server), HVD_OK);
    assert_int_equal(server, HVD_PEER_LOST);
    close_connection(&connection);
}

/* name, what it returns, parameters: what an ordinary server needs of OpenSSL */
#define FUNCTIONS(_)                                                                                         \
    _(EVP_PKEY_CTX_new_id, void *, (int, void *))                                                            \
    _(EVP_PKEY_CTX_free, void, (void *))                                                                     \
    _(EVP_PKEY_keygen_init, int, (void *))                                                                   \
    _(EVP_PKEY_keygen, int, (void *, void **))                                                               \
    _(EVP_PKEY_free, void, (void *))                                                                         \
    _(X509_new, void *, (void))                                                                              \
    _(X509_free, void, (void *))                                                                             \
    _(X509_getm_notBefore, void *, (void *))                                                                 \
    _(X509_getm_notAfter, void *, (void *))                                                                  \
    _(X509_gmtime_adj, void *, (void *, long))                                                               \
    _(X509_set_pubkey, int, (void *, void *))                                                                \
    _(X509_sign, int, (void *, void *, void *))                                                              \
    _(TLS_method, void *, (void))                                                                            \
    _(SSL_CTX_new, void *, (void *))                                                                         \
    _(SSL_CTX_free, void, (void *))                                                                          \
    _(SSL_CTX_use_certificate, int, (void *, void *))                                                        \
    _(SSL_CTX_use_PrivateKey, int, (void *, void *))                                                         \
    _(SSL_new, void *, (void *))                                                                             \
    _(SSL_free, void, (void *))                                                                              \
    _(SSL_set_fd, int, (void *, int))                                                                        \
    _(SSL_accept, int, (void *))

static struct {
#define MEMBER(name, type, parameters) type(*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} openssl;

static void find_openssl(void)
{
    void *library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = dlopen("libssl.so.1.1", RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
#define FIND(name, type, parameters)                                                                         \
    {                                                                                                        \
        void *symbol = dlsym(library, #name);                                                                \
        assert_non_null(symbol);                                                                             \
        memcpy(&openssl.name, &symbol, sizeof symbol);                                                       \
    }
    FUNCTIONS(FIND)
#undef FIND
}

/* A context of a server with a certificate that it has signed itself. */
static void *certified(void)
{
    enum { ED25519 = 1087 };
    void *generator = openssl.EVP_PKEY_CTX_new_id(ED25519, NULL), *own = NULL;
    void *certificate = openssl.X509_new(), *context = openssl.SSL_CTX_new(openssl.TLS_method());
    assert_true(generator && certificate && context);
    assert_int_equal(openssl.EVP_PKEY_keygen_init(generator), 1);
    assert_int_equal(openssl.EVP_PKEY_keygen(generator, &own), 1);
    openssl.X509_gmtime_adj(openssl.X509_getm_notBefore(certificate), -60);
    openssl.X509_gmtime_adj(openssl.X509_getm_notAfter(certificate), 3600);
    assert_int_equal(openssl.X509_set_pubkey(certificate, own), 1);
    assert_true(openssl.X509_sign(certificate, own, NULL) > 0);
    assert_int_equal(openssl.SSL_CTX_use_certificate(context, certificate), 1);
    assert_int_equal(openssl.SSL_CTX_use_PrivateKey(context, own), 1);
    openssl.EVP_PKEY_CTX_free(generator);
    openssl.EVP_PKEY_free(own);
    openssl.X509_free(certificate);
    return context;
}

/* An attacker on the path can relay the bytes before TLS, and then answer with a server of its own. */
TEST(test_a_server_with_a_certificate)
{
    struct connection connection;
    hvd_code client = HVD_IN_PROGRESS;
    find_openssl();
    open_connection(&connection, key, key);
    void *context = certified(), *server = openssl.SSL_new(context);
    assert_int_equal(openssl.SSL_set_fd(server, connection.ends[1]), 1);
    for (int i = 0; i < 1000 && client == HVD_IN_PROGRESS; i++) {
        client = tls_handshake(connection.client);
        int error = errno;
        openssl.SSL_accept(server);
        carry(&connection);
        errno = error;
    }
    assert_int_equal(client, HVD_PEER_LOST);
    assert_int_equal(errno, EPROTO);
    openssl.SSL_free(server);
    openssl.SSL_CTX_free(context);
    close_connection(&connection);
}

TEST(test_a_changed_byte)
{
    struct connection connection;
    uint8_t bytes[1000] = {0}, received[1000];
    open_and_shake(&connection);
    connection.change_at = connection.seen_length + 500;
    assert_int_equal(tls_write(connection.client, &(struct iovec){bytes, sizeof bytes}, 1), sizeof bytes);
    for (int i = 0; i < 10; i++)
        carry(&connection);
    assert_int_equal(tls_read(connection.server, &(struct iovec){received, sizeof received}, 1), -1);
    assert_int_equal(errno, EPROTO);
    close_connection(&connection);
}

TEST(test_the_end_comes_behind_the_bytes)
{
    struct connection connection;
    uint8_t bytes[1000] = {0}, received[2000];
    open_and_shake(&connection);
    assert_int_equal(tls_write(connection.client, &(struct iovec){bytes, sizeof bytes}, 1), sizeof bytes);
    carry(&connection);
    carry(&connection);
    shutdown(connection.wire[1], SHUT_WR);
    assert_int_equal(tls_read(connection.server, &(struct iovec){received, sizeof received}, 1),
                     sizeof bytes);
    assert_int_equal(tls_read(connection.server, &(struct iovec){received, sizeof received}, 1), 0);
    close_connection(&connection);
}

/* Without a signal: nothing here ignores SIGPIPE. */
TEST(test_writing_to_a_closed_connection)
{
    struct connection connection;
    uint8_t bytes[1000] = {0};
    open_and_shake(&connection);
    close(connection.wire[0]);
    assert_int_equal(tls_write(connection.client, &(struct iovec){bytes, sizeof bytes}, 1), -1);
    assert_int_equal(errno, EPIPE);
    connection.wire[0] = dup(connection.wire[1]);
    close_connection(&connection);
}

TEST(test_the_wire_shows_nothing)
{
    static const char text[] = "allreduce.conv1.weight";
    struct connection connection;
    uint8_t received[sizeof text];
    open_and_shake(&connection);
    assert_int_equal(tls_write(connection.client, &(struct iovec){(void *)text, sizeof text}, 1),
                     sizeof text);
    carry(&connection);
    assert_int_equal(tls_read(connection.server, &(struct iovec){received, sizeof text}, 1), sizeof text);
    assert_memory_equal(received, text, sizeof text);
    assert_null(memmem(connection.seen, connection.seen_length, text, sizeof text - 1));
    assert_null(memmem(connection.seen, connection.seen_length, key, sizeof key));
    close_connection(&connection);
}
