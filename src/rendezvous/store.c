/* store.c - the maps of the key-value store, their limits, and the change from one epoch to the next.
 * Under the server's lock. */
#include "rendezvous/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    size_t key_length;
    uint32_t length; /* of the value */
    uint32_t joins;  /* in the map of joins: how often the rank has joined */
    uint64_t number; /* of the put */
    uint8_t bytes[]; /* key, value */
};

static size_t size_of(const struct entry *entry)
{
    return sizeof *entry + entry->key_length + entry->length;
}

static void clear(struct store *store, struct map *map)
{
    size_t cursor = 0;
    struct entry *entry;
    while ((entry = map_next(map, &cursor))) {
        store->bytes -= size_of(entry);
        store->entries--;
        free(entry);
    }
    map_free(map);
}

static void clear_ranks(struct store *store, struct epoch *epoch)
{
    clear(store, &epoch->values);
    clear(store, &epoch->joins);
    epoch->first = epoch->next;
}

void store_free(struct store *store)
{
    size_t cursor = 0;
    struct epoch *epoch;
    while ((epoch = map_next(&store->jobs, &cursor))) {
        clear(store, &epoch->table);
        clear_ranks(store, epoch);
        map_free(&epoch->waiting);
        free(epoch);
    }
    map_free(&store->jobs);
}

/* Puts a new entry in place of the one that is there; returns NULL if the store is full. */
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
    bool full = bytes > STORE_BYTES_LIMIT || (!old && store->entries >= STORE_ENTRY_LIMIT);
    /* The map then has room for the new entry (it never shrinks until it is full), so the old one is not
     * lost.
     */
    if (!full && old)
        map_remove(map, key, key_length);
    if (full || !map_put(map, entry->bytes, key_length, entry)) {
        free(entry);
        return NULL;
    }
    store->entries += !old;
    free(old);
    store->bytes = bytes;
    return entry;
}

static struct epoch *add_job(struct store *store, const char *job)
{
    struct epoch *epoch = store->jobs.count < STORE_JOB_LIMIT ? calloc(1, sizeof *epoch) : NULL;
    if (!epoch)
        return NULL;
    snprintf(epoch->job, sizeof epoch->job, "%s", job);
    if (map_put(&store->jobs, epoch->job, strlen(job), epoch))
        return epoch;
    free(epoch);
    return NULL;
}

struct epoch *store_epoch(struct store *store, const char *job)
{
    struct epoch *epoch = map_get(&store->jobs, job, strlen(job));
    return epoch ? epoch : add_job(store, job);
}

bool store_begin(struct store *store, struct epoch *epoch, uint32_t number)
{
    if (number <= epoch->number)
        return false;
    clear(store, &epoch->table);
    clear_ranks(store, epoch);
    epoch->number = number;
    epoch->members = 0;
    return true;
}

bool store_put(struct store *store, struct map *map, const char *key, const void *value, uint32_t length)
{
    struct entry *entry = replace(store, map, key, strlen(key), length);
    if (!entry)
        return false;
    entry->number = ++store->puts;
    if (length)
        memcpy(entry->bytes + entry->key_length, value, length);
    return true;
}

void store_remove(struct store *store, struct map *map, const char *key)
{
    struct entry *entry = map_remove(map, key, strlen(key));
    if (!entry)
        return;
    store->bytes -= size_of(entry);
    store->entries--;
    free(entry);
}

static bool read_entry(const struct entry *entry, struct store_value *value)
{
    if (entry)
        *value = (struct store_value){.bytes = entry->bytes + entry->key_length,
                                      .length = entry->length,
                                      .key = entry->bytes,
                                      .key_length = (uint32_t)entry->key_length,
                                      .number = entry->number};
    return entry;
}

bool store_next(const struct epoch *epoch, const char *prefix, uint64_t after, struct store_value *value)
{
    size_t cursor = 0, length = strlen(prefix);
    const struct entry *entry, *next = NULL;
    while ((entry = map_next(&epoch->table, &cursor))) {
        bool matches = entry->key_length >= length && memcmp(entry->bytes, prefix, length) == 0;
        if (matches && entry->number > after && (!next || entry->number < next->number))
            next = entry;
    }
    return read_entry(next, value);
}

bool store_get(const struct epoch *epoch, const char *key, struct store_value *value)
{
    return read_entry(map_get(&epoch->values, key, strlen(key)), value) ||
           read_entry(map_get(&epoch->table, key, strlen(key)), value);
}

bool store_join(struct store *store, struct epoch *epoch, uint32_t rank, uint32_t size, uint32_t *generation)
{
    struct entry *entry = map_get(&epoch->joins, &rank, sizeof rank);
    if (!entry)
        entry = replace(store, &epoch->joins, &rank, sizeof rank, 0);
    if (!entry)
        return false;
    *generation = epoch->first + entry->joins++;
    if (*generation == epoch->next)
        epoch->next++;
    epoch->size = size;
    epoch->members++;
    return true;
}

/* Values stay until all ranks have joined: a late one finds those of the others, e.g. why they could not
 * start. */
void store_leave(struct store *store, struct epoch *epoch)
{
    if (--epoch->members == 0 && epoch->joins.count >= epoch->size)
        clear_ranks(store, epoch);
}
