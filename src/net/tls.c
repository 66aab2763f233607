/* tls.c - TLS by an OpenSSL that is loaded at run time. Declares what it uses of OpenSSL's stable interface
 * itself, so that the build needs no headers of it. */
#include "net/tls.h"

#include "base/status.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct ssl_method_st SSL_METHOD;
typedef struct bio_st BIO;
typedef struct bio_method_st BIO_METHOD;

typedef unsigned (*psk_client_fn)(SSL *, const char *, char *, unsigned, unsigned char *, unsigned);
typedef unsigned (*psk_server_fn)(SSL *, const char *, unsigned char *, unsigned);

/* name, what it returns, parameters */
#define FUNCTIONS(_)                                                                                         \
    _(TLS_method, const SSL_METHOD *, (void))                                                                \
    _(SSL_CTX_new, SSL_CTX *, (const SSL_METHOD *))                                                          \
    _(SSL_CTX_ctrl, long, (SSL_CTX *, int, long, void *))                                                    \
    _(SSL_CTX_set_ciphersuites, int, (SSL_CTX *, const char *))                                              \
    _(SSL_CTX_set_num_tickets, int, (SSL_CTX *, size_t))                                                     \
    _(SSL_CTX_set_default_read_buffer_len, void, (SSL_CTX *, size_t))                                        \
    _(SSL_CTX_set_psk_client_callback, void, (SSL_CTX *, psk_client_fn))                                     \
    _(SSL_CTX_set_psk_server_callback, void, (SSL_CTX *, psk_server_fn))                                     \
    _(SSL_new, SSL *, (SSL_CTX *))                                                                           \
    _(SSL_free, void, (SSL *))                                                                               \
    _(SSL_set_bio, void, (SSL *, BIO *, BIO *))                                                              \
    _(SSL_do_handshake, int, (SSL *))                                                                        \
    _(SSL_key_update, int, (SSL *, int))                                                                     \
    _(SSL_CTX_set_options, unsigned long, (SSL_CTX *, unsigned long))                                        \
    _(SSL_set_ex_data, int, (SSL *, int, void *))                                                            \
    _(SSL_get_ex_data, void *, (const SSL *, int))                                                           \
    _(SSL_set_connect_state, void, (SSL *))                                                                  \
    _(SSL_set_accept_state, void, (SSL *))                                                                   \
    _(SSL_set_verify, void, (SSL *, int, int (*)(int, void *)))                                              \
    _(SSL_session_reused, int, (const SSL *))                                                                \
    _(SSL_read, int, (SSL *, void *, int))                                                                   \
    _(SSL_write, int, (SSL *, const void *, int))                                                            \
    _(SSL_get_error, int, (const SSL *, int))                                                                \
    _(ERR_clear_error, void, (void))                                                                         \
    _(BIO_meth_new, BIO_METHOD *, (int, const char *))                                                       \
    _(BIO_meth_set_read, int, (BIO_METHOD *, int (*)(BIO *, char *, int)))                                   \
    _(BIO_meth_set_write, int, (BIO_METHOD *, int (*)(BIO *, const char *, int)))                            \
    _(BIO_meth_set_ctrl, int, (BIO_METHOD *, long (*)(BIO *, int, long, void *)))                            \
    _(BIO_new, BIO *, (const BIO_METHOD *))                                                                  \
    _(BIO_set_data, void, (BIO *, void *))                                                                   \
    _(BIO_get_data, void *, (BIO *))                                                                         \
    _(BIO_set_init, void, (BIO *, int))                                                                      \
    _(BIO_set_flags, void, (BIO *, int))                                                                     \
    _(BIO_clear_flags, void, (BIO *, int))

static struct {
#define MEMBER(name, type, parameters) type(*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} openssl;

/* Constants of OpenSSL's headers. */
enum {
    CTRL_MODE = 33,
    CTRL_READ_AHEAD = 41,
    CTRL_MIN_VERSION = 123,
    VERSION_1_3 = 0x0304,
    MODE_MOVING_BUFFER = 2,
    VERIFY_PEER = 1,
    OPTION_END_IS_NO_ERROR = 1 << 7,
    ERROR_WANT_READ = 2,
    ERROR_WANT_WRITE = 3,
    ERROR_SYSCALL = 5,
    ERROR_ZERO_RETURN = 6,
    BIO_OWN_TYPE = 0x0400 | 100, /* a source and sink */
    BIO_READ = 1,
    BIO_WRITE = 2,
    BIO_RETRY = 8,
    BIO_FLUSH = 11
};

#define IDENTITY     "horovod"
#define CIPHERS      "TLS_AES_128_GCM_SHA256" /* a pre-shared key of 1.3 is tied to a hash; SHA-256 here */
#define RECORD_BYTES ((size_t)16 << 10)
#define AHEAD_BYTES  ((size_t)256 << 10) /* one system call fetches several records */
/* RFC 8446, 5.5: AES-GCM is safe for 2^24.5 full records with one key. */
#define KEY_RECORDS ((uint32_t)1 << 23)

struct tls {
    SSL *ssl;
    int fd;
    short events;
    uint32_t records; /* sent with this key */
    uint8_t key[CRYPTO_MAC_BYTES];
    size_t staged; /* bytes that the last write could not send; the next one starts with them */
    uint8_t stage[RECORD_BYTES];
};

/* ---- the pre-shared key ------------------------------------------------------------------------------- */

static unsigned give_key(SSL *ssl, unsigned char *key, unsigned room)
{
    const struct tls *tls = openssl.SSL_get_ex_data(ssl, 0);
    if (room < sizeof tls->key)
        return 0;
    memcpy(key, tls->key, sizeof tls->key);
    return sizeof tls->key;
}

static unsigned key_of_client(SSL *ssl, const char *hint, char *identity, unsigned identity_room,
                              unsigned char *key, unsigned room)
{
    (void)hint;
    if (identity_room < sizeof IDENTITY)
        return 0;
    memcpy(identity, IDENTITY, sizeof IDENTITY);
    return give_key(ssl, key, room);
}

static unsigned key_of_server(SSL *ssl, const char *identity, unsigned char *key, unsigned room)
{
    return strcmp(identity, IDENTITY) == 0 ? give_key(ssl, key, room) : 0;
}

/* ---- the socket: OpenSSL's own access to it would raise SIGPIPE ---------------------------------------- */

static int moved(BIO *bio, ssize_t n, int direction)
{
    openssl.BIO_clear_flags(bio, BIO_READ | BIO_WRITE | BIO_RETRY);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        openssl.BIO_set_flags(bio, direction | BIO_RETRY);
    return (int)n;
}

static int socket_read(BIO *bio, char *bytes, int length)
{
    const struct tls *tls = openssl.BIO_get_data(bio);
    return moved(bio, recv(tls->fd, bytes, (size_t)length, 0), BIO_READ);
}

static int socket_write(BIO *bio, const char *bytes, int length)
{
    const struct tls *tls = openssl.BIO_get_data(bio);
    return moved(bio, send(tls->fd, bytes, (size_t)length, MSG_NOSIGNAL), BIO_WRITE);
}

static long socket_control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return what == BIO_FLUSH;
}

/* ---- the library -------------------------------------------------------------------------------------- */

static pthread_once_t loaded = PTHREAD_ONCE_INIT;
static SSL_CTX *all; /* NULL: not to be had */
static BIO_METHOD *sockets;

static bool find_functions(void)
{
    static const char *const names[] = {"libssl.so.3", "libssl.so.1.1"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    bool found = library;
#define FIND(name, type, parameters)                                                                         \
    if (found) {                                                                                             \
        void *symbol = dlsym(library, #name);                                                                \
        memcpy(&openssl.name, &symbol, sizeof symbol);                                                       \
        found = symbol;                                                                                      \
    }
    FUNCTIONS(FIND)
#undef FIND
    return found;
}

static void load(void)
{
    if (!find_functions())
        return;
    SSL_CTX *made = openssl.SSL_CTX_new(openssl.TLS_method());
    if (!made || openssl.SSL_CTX_ctrl(made, CTRL_MIN_VERSION, VERSION_1_3, NULL) != 1 ||
        openssl.SSL_CTX_set_ciphersuites(made, CIPHERS) != 1)
        return;
    sockets = openssl.BIO_meth_new(BIO_OWN_TYPE, "non-blocking socket");
    if (!sockets)
        return;
    openssl.BIO_meth_set_read(sockets, socket_read);
    openssl.BIO_meth_set_write(sockets, socket_write);
    openssl.BIO_meth_set_ctrl(sockets, socket_control);
    openssl.SSL_CTX_ctrl(made, CTRL_MODE, MODE_MOVING_BUFFER, NULL);
    openssl.SSL_CTX_set_options(made, OPTION_END_IS_NO_ERROR); /* as on a plain socket */
    openssl.SSL_CTX_ctrl(made, CTRL_READ_AHEAD, 1, NULL);
    openssl.SSL_CTX_set_default_read_buffer_len(made, AHEAD_BYTES);
    openssl.SSL_CTX_set_num_tickets(made, 0);
    openssl.SSL_CTX_set_psk_client_callback(made, key_of_client);
    openssl.SSL_CTX_set_psk_server_callback(made, key_of_server);
    all = made;
}

hvd_code tls_load(hvd_status *status)
{
    pthread_once(&loaded, load);
    return all ? HVD_OK
               : status_set(status, HVD_UNSUPPORTED,
                            "HOROVOD_ENCRYPTION needs OpenSSL 1.1.1 or later (libssl.so.3) on every host; "
                            "install it, e.g. `apt install libssl3`");
}

/* ---- connections -------------------------------------------------------------------------------------- */

struct tls *tls_create(int fd, bool client, const uint8_t key[CRYPTO_MAC_BYTES])
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->fd = fd;
    memcpy(tls->key, key, sizeof tls->key);
    tls->ssl = openssl.SSL_new(all);
    BIO *bio = tls->ssl ? openssl.BIO_new(sockets) : NULL;
    if (!bio || openssl.SSL_set_ex_data(tls->ssl, 0, tls) != 1) {
        tls_free(tls);
        return NULL;
    }
    openssl.BIO_set_data(bio, tls);
    openssl.BIO_set_init(bio, 1);
    openssl.SSL_set_bio(tls->ssl, bio, bio); /* takes it over */
    if (!client) {
        openssl.SSL_set_accept_state(tls->ssl);
        return tls;
    }
    openssl.SSL_set_connect_state(tls->ssl);
    /* A server may pass over the key that is offered and show a certificate: there are none to trust. */
    openssl.SSL_set_verify(tls->ssl, VERIFY_PEER, NULL);
    return tls;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    if (tls->ssl)
        openssl.SSL_free(tls->ssl);
    crypto_wipe(tls->key, sizeof tls->key);
    free(tls);
}

/* Returns what recv or send would return for a call that has returned n <= 0. */
static ssize_t outcome_of(struct tls *tls, int n)
{
    switch (openssl.SSL_get_error(tls->ssl, n)) {
    case ERROR_WANT_READ:
        tls->events = POLLIN;
        errno = EAGAIN;
        return -1;
    case ERROR_WANT_WRITE:
        tls->events = POLLOUT;
        errno = EAGAIN;
        return -1;
    case ERROR_ZERO_RETURN:
        return 0;
    case ERROR_SYSCALL:
        return errno ? -1 : 0;
    default:
        errno = EPROTO;
        return -1;
    }
}

/* SSL_get_error reads errno, and at errors that other connections of this thread have left. */
static void clear_errors(void)
{
    openssl.ERR_clear_error();
    errno = 0;
}

hvd_code tls_handshake(struct tls *tls)
{
    clear_errors();
    int n = openssl.SSL_do_handshake(tls->ssl);
    if (n == 1 && openssl.SSL_session_reused(tls->ssl) == 1) /* so OpenSSL calls a pre-shared key, too */
        return HVD_OK;
    if (n == 1)
        errno = EPROTO;
    return n != 1 && outcome_of(tls, n) < 0 && errno == EAGAIN ? HVD_IN_PROGRESS : HVD_PEER_LOST;
}

short tls_events(const struct tls *tls)
{
    return tls->events;
}

ssize_t tls_read(struct tls *tls, const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        for (size_t done = 0; done < parts[i].iov_len;) {
            size_t left = parts[i].iov_len - done;
            clear_errors();
            int n = openssl.SSL_read(tls->ssl, (char *)parts[i].iov_base + done,
                                     (int)(left < RECORD_BYTES ? left : RECORD_BYTES));
            if (n <= 0)
                return total ? (ssize_t)total : outcome_of(tls, n);
            done += (size_t)n;
            total += (size_t)n;
        }
    return (ssize_t)total;
}

/* Copies up to a record of what comes after the first `skip` bytes; its length. */
static size_t gather(const struct iovec *parts, int count, size_t skip, uint8_t *record)
{
    size_t length = 0;
    for (int i = 0; i < count && length < RECORD_BYTES; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        size_t left = parts[i].iov_len - skip, room = RECORD_BYTES - length;
        size_t n = left < room ? left : room;
        memcpy(record + length, (const char *)parts[i].iov_base + skip, n);
        length += n;
        skip = 0;
    }
    return length;
}

/* Whole records: many small parts share one. A record that could not be sent is already encrypted, and has
 * to be repeated as it was, hence the stage. */
ssize_t tls_write(struct tls *tls, const struct iovec *parts, int count)
{
    size_t total = 0, sent = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    while (sent < total) {
        if (!tls->staged)
            tls->staged = gather(parts, count, sent, tls->stage);
        if (tls->staged > total - sent)
            break; /* the rest of it comes with a later call */
        clear_errors();
        int n = openssl.SSL_write(tls->ssl, tls->stage, (int)tls->staged);
        if (n <= 0)
            return sent ? (ssize_t)sent : outcome_of(tls, n);
        sent += tls->staged;
        tls->staged = 0;
        if (++tls->records % KEY_RECORDS == 0)
            openssl.SSL_key_update(tls->ssl, 0);
    }
    if (!sent && total)
        errno = EAGAIN;
    return sent || !total ? (ssize_t)sent : -1;
}
