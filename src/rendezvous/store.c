/* store.c - see store.h. */
#include "rendezvous/store.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    size_t key_length;
    uint32_t length; /* of the value */
    uint32_t joins;  /* in the map of joins: how many there were */
    uint8_t bytes[]; /* key, value */
};

static void free_all(struct map *map)
{
    size_t cursor = 0;
    void *entry;
    while ((entry = map_next(map, &cursor)))
        free(entry);
    map_free(map);
}

void store_free(struct store *store)
{
    free_all(&store->values);
    free_all(&store->joins);
    store->bytes = 0;
}

static size_t size_of(const struct entry *entry)
{
    return sizeof *entry + entry->key_length + entry->length;
}

/* A new entry in place of the one that is there; NULL when the store is full. */
static struct entry *replace(struct store *store, struct map *map, const void *key, size_t key_length,
                             uint32_t length)
{
    struct entry *old = map_get(map, key, key_length);
    size_t before = old ? size_of(old) : 0;
    struct entry *entry = malloc(sizeof *entry + key_length + length);
    if (!entry)
        return NULL;
    *entry = (struct entry){.key_length = key_length, .length = length};
    memcpy(entry->bytes, key, key_length);
    size_t bytes = store->bytes - before + size_of(entry);
    bool full = bytes > STORE_BYTES_LIMIT || (!old && map->count >= STORE_ENTRY_LIMIT);
    /* The map has room for the new entry then (it never shrinks to the brim), so the old one is not lost. */
    if (!full && old)
        map_remove(map, key, key_length);
    if (full || !map_put(map, entry->bytes, key_length, entry)) {
        free(entry);
        return NULL;
    }
    free(old);
    store->bytes = bytes;
    return entry;
}

bool store_put(struct store *store, const char *key, const void *value, uint32_t length)
{
    struct entry *entry = replace(store, &store->values, key, strlen(key), length);
    if (entry && length)
        memcpy(entry->bytes + entry->key_length, value, length);
    return entry;
}

bool store_get(const struct store *store, const char *key, struct store_value *value)
{
    const struct entry *entry = map_get(&store->values, key, strlen(key));
    if (entry)
        *value = (struct store_value){entry->bytes + entry->key_length, entry->length};
    return entry;
}

bool store_join(struct store *store, const char *job, uint32_t rank, uint32_t *before)
{
    /* Rank, then the job's name, which is shorter than RENDEZVOUS_KEY_LIMIT. */
    uint8_t key[sizeof rank + 256];
    size_t length = strnlen(job, sizeof key - sizeof rank);
    memcpy(key, &rank, sizeof rank);
    memcpy(key + sizeof rank, job, length);
    struct entry *entry = map_get(&store->joins, key, length + sizeof rank);
    if (!entry)
        entry = replace(store, &store->joins, key, length + sizeof rank, 0);
    if (!entry)
        return false;
    *before = entry->joins++;
    return true;
}
