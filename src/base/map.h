/* map.h - a hash table from byte strings to pointers: open addressing, linear probing, no lock.
 *
 * Zeroed memory is a valid empty map. Keys are not copied: the value usually holds its own key, which must
 * stay put while it is in the map. */
#ifndef HVD_BASE_MAP_H
#define HVD_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    const void *key; /* NULL: free */
    size_t length;
    uint64_t hash;
    void *value;
};

struct map {
    struct map_slot *slots; /* a power of two, or none */
    size_t capacity, count;
};

void map_free(struct map *map);
void *map_get(const struct map *map, const void *key, size_t length); /* NULL when absent */
/* Adds or replaces; false when memory is out. value must not be NULL. */
bool map_put(struct map *map, const void *key, size_t length, void *value);
void *map_remove(struct map *map, const void *key, size_t length); /* the value that was there, or NULL */
/* Walks in no particular order: start with *cursor 0; NULL at the end. The map must not change meanwhile. */
void *map_next(const struct map *map, size_t *cursor);

#endif
