/* crypto.c - random bytes and MACs, by libsodium. No state of its own; any thread. */
#include "net/crypto.h"

#include "base/status.h"

#include <sodium.h>

hvd_code crypto_random(void *bytes, size_t length, hvd_status *status)
{
    if (sodium_init() < 0)
        return status_set(status, HVD_SYSTEM, "the system gives no random numbers (getrandom, /dev/urandom)");
    randombytes_buf(bytes, length);
    return HVD_OK;
}

hvd_code crypto_random_hex(char *text, size_t digits, hvd_status *status)
{
    hvd_code code = crypto_random(text, digits, status);
    /* In place: of each random byte four bits make one digit. */
    for (size_t i = 0; !code && i < digits; i++)
        text[i] = "0123456789abcdef"[text[i] & 15];
    text[digits] = '\0';
    return code;
}

void crypto_mac(const void *key, size_t key_length, const void *bytes, size_t length,
                uint8_t mac[CRYPTO_MAC_BYTES])
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key, key_length);
    crypto_auth_hmacsha256_update(&state, bytes, length);
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_memzero(&state, sizeof state);
}

bool crypto_equal(const void *a, const void *b, size_t length)
{
    return sodium_memcmp(a, b, length) == 0;
}

void crypto_wipe(void *bytes, size_t length)
{
    sodium_memzero(bytes, length);
}
