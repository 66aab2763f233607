/* crypto.h - the few primitives that connections need, from libsodium; no cryptography of our own. No state;
 * any thread. */
#ifndef HVD_NET_CRYPTO_H
#define HVD_NET_CRYPTO_H

#include "horovod.h"

#include <stdbool.h>

#define CRYPTO_MAC_BYTES 32

hvd_code crypto_random(void *bytes, size_t length, hvd_status *status);
/* As text; a NUL follows the digits. */
hvd_code crypto_random_hex(char *text, size_t digits, hvd_status *status);
/* HMAC-SHA256. */
void crypto_mac(const void *key, size_t key_length, const void *bytes, size_t length,
                uint8_t mac[CRYPTO_MAC_BYTES]);
/* Compares in a time that does not depend on the bytes. */
bool crypto_equal(const void *a, const void *b, size_t length);
/* Overwrites a secret, in a way that the compiler must not remove. */
void crypto_wipe(void *bytes, size_t length);

#endif
