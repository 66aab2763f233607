/* store.h - keys and values, and how often each rank has joined a job. Bounded; one thread. */
#ifndef HVD_RENDEZVOUS_STORE_H
#define HVD_RENDEZVOUS_STORE_H

#include "base/map.h"

#define STORE_ENTRY_LIMIT ((size_t)1 << 20)
#define STORE_BYTES_LIMIT ((size_t)256 << 20)

struct store { /* zeroed memory is a valid empty store */
    struct map values, joins;
    size_t bytes;
};

struct store_value {
    const uint8_t *bytes;
    uint32_t length;
};

void store_free(struct store *store);
/* Adds or replaces; false when the store is full or memory is out. */
bool store_put(struct store *store, const char *key, const void *value, uint32_t length);
/* False when the key is not there. */
bool store_get(const struct store *store, const char *key, struct store_value *value);
/* How often this pair was seen before; false when the store is full or memory is out. */
bool store_join(struct store *store, const char *job, uint32_t rank, uint32_t *before);

#endif
