/* map.h - a hash table from byte strings to pointers: open addressing, linear probing, no lock; one thread at
 * a time per map.
 *
 * Zeroed memory is a valid empty map. Keys are not copied: each value holds its own key, at the same offset
 * in all values of a map, and must not move while it is in the map. An entry takes 16 bytes; with the free
 * ones 18 to 37, while the map grows. */
#ifndef HVD_BASE_MAP_H
#define HVD_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    void *value; /* NULL: free */
    uint32_t hash, length;
};

struct map {
    struct map_slot *slots; /* a power of two, or none */
    size_t capacity, count;
    size_t key_offset; /* in a value */
};

void map_free(struct map *map);
void *map_get(const struct map *map, const void *key, size_t length); /* NULL when absent */
/* Returns the place of this key's value, which is added first if there is none; NULL if memory is out. */
void **map_place(struct map *map, const void *key, size_t length, void *value);
/* Adds or replaces; false when memory is out. The key is part of the value. */
bool map_put(struct map *map, const void *key, size_t length, void *value);
void *map_remove(struct map *map, const void *key, size_t length); /* the value that was there, or NULL */
/* Walks in no particular order: start with *cursor 0; NULL at the end. The map must not change meanwhile. */
void *map_next(const struct map *map, size_t *cursor);

#endif
