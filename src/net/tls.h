/* tls.h - TLS 1.3 (RFC 8446) over a connected socket, from OpenSSL 1.1.1 or later, which is loaded when it is
 * first needed. Both ends hold a pre-shared key, which authenticates them, and exchange ephemeral keys, so a
 * pre-shared key that leaks later opens no recorded connection. A certificate is never accepted instead.
 * Nothing blocks. A connection belongs to one thread at a time; tls_load may be called by any thread. */
#ifndef HVD_NET_TLS_H
#define HVD_NET_TLS_H

#include "horovod.h"
#include "net/crypto.h"

#include <stdbool.h>
#include <sys/uio.h>

struct tls;

/* HVD_UNSUPPORTED says which library is missing. */
hvd_code tls_load(hvd_status *status);

/* Of the connection `fd`, which stays the caller's; one end is the client. NULL when memory is out. Only
 * after tls_load. */
struct tls *tls_create(int fd, bool client, const uint8_t key[CRYPTO_MAC_BYTES]);
void tls_free(struct tls *tls); /* NULL is fine; nothing is sent */

/* Authenticates the other end and exchanges the keys. HVD_IN_PROGRESS: to be called again after tls_events;
 * HVD_PEER_LOST: the connection ended, or the other end has another key: errno EPROTO. Reads and writes come
 * after. */
hvd_code tls_handshake(struct tls *tls);
short tls_events(const struct tls *tls);

/* As recvmsg and sendmsg on the socket: bytes, 0 at the end of the stream, or -1 with errno. Bytes that were
 * changed on their way are EPROTO. A read stops early at EAGAIN only, so that nothing stays behind which no
 * poller reports; after EAGAIN a write must start with the same bytes. */
ssize_t tls_read(struct tls *tls, const struct iovec *parts, int count);
ssize_t tls_write(struct tls *tls, const struct iovec *parts, int count);

#endif
