/* store.h - the keys and values of the rendezvous, by job and epoch, bounded in number and bytes. A newer
 * epoch of a job replaces the older one and drops all its keys. Under the server's lock. */
#ifndef HVD_RENDEZVOUS_STORE_H
#define HVD_RENDEZVOUS_STORE_H

#include "base/map.h"
#include "rendezvous/client.h"

#define STORE_JOB_LIMIT   ((size_t)1 << 16)
#define STORE_ENTRY_LIMIT ((size_t)1 << 20)
#define STORE_BYTES_LIMIT ((size_t)256 << 20)

/* Waits for lasting keys of one epoch of a job that begin with a prefix. Belongs to its creator. */
struct watcher {
    uint32_t number; /* of the epoch */
    const char *prefix;
    int event; /* set when there may be such a key, or a newer epoch has begun */
    struct watcher *next;
};

/* The newest epoch of a job. Once all its ranks have joined and left, values and joins are dropped; when a
 * newer one starts, the table is dropped as well. */
struct epoch {
    uint32_t number;
    uint32_t size, members; /* ranks; connections of ranks that have joined */
    uint32_t first;         /* generation of the rank that joins first */
    uint32_t next;          /* one above the highest generation of all epochs */
    struct map table;       /* the starter's keys, and the lasting ones of ranks: what can be watched */
    struct map values;      /* the ranks' keys */
    struct map joins;       /* by rank: how often it has joined */
    struct map waiting;     /* by key: the first connection of those that wait for it */
    struct watcher *watchers;
    char job[RENDEZVOUS_KEY_LIMIT];
};

struct store { /* zeroed memory is a valid empty store */
    struct map jobs;
    size_t bytes, entries;
    uint64_t puts; /* number of the last put */
    size_t visits; /* of connections, to advance or to answer them: a measure of the server's work */
};

struct store_value {
    const uint8_t *bytes;
    uint32_t length;
    const uint8_t *key; /* not terminated */
    uint32_t key_length;
    uint64_t number; /* of its put */
};

void store_free(struct store *store);
/* The newest epoch of the job. NULL when the store is full or memory is out. Stays until store_free. */
struct epoch *store_epoch(struct store *store, const char *job);
/* Replaces an older epoch, of which nothing stays; returns false if this one is not newer. */
bool store_begin(struct store *store, struct epoch *epoch, uint32_t number);
/* Adds to one of an epoch's maps, or replaces; false when the store is full or memory is out. */
bool store_put(struct store *store, struct map *map, const char *key, const void *value, uint32_t length);
/* Removes from one of an epoch's maps; the key need not be there. */
void store_remove(struct store *store, struct map *map, const char *key);
/* False when the key is not there. */
bool store_get(const struct epoch *epoch, const char *key, struct store_value *value);
/* The lasting key that was put next after the put of this number, among those with the prefix; false when
 * there is none yet. The time grows with the table. */
bool store_next(const struct epoch *epoch, const char *prefix, uint64_t after, struct store_value *value);
/* As rendezvous_enter says; false when the store is full or memory is out. */
bool store_join(struct store *store, struct epoch *epoch, uint32_t rank, uint32_t size, uint32_t *generation);
void store_leave(struct store *store, struct epoch *epoch);

#endif
