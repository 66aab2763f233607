/* map.c - a hash map with open addressing and linear probing. Removal shifts the following run back, so there
 * are no tombstones. */
#include "base/map.h"

#include "base/pool.h"

#include <string.h>

#define LEAST 16  /* slots, */
#define KEPT  256 /* slots that stay allocated once there were that many */

/* 2^64 by the golden ratio, as in Knuth's multiplicative hashing: the product's high bits depend on all bits
 * of the word. */
#define FACTOR 0x9e3779b97f4a7c15u

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * FACTOR;
    return hash ^ hash >> 32;
}

/* Of eight bytes at a time, the last of which may have been in the word before, too. Names come from the
 * user's own program: no attacker chooses them so that they collide. */
static uint32_t hash_of(const void *key, size_t length)
{
    const uint8_t *bytes = key, *end = bytes + length;
    uint64_t hash = length, word = 0;
    for (; end - bytes > (ptrdiff_t)sizeof word; bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    if (length >= sizeof word)
        memcpy(&word, end - sizeof word, sizeof word);
    else
        for (size_t i = 0; i < length; i++)
            word |= (uint64_t)bytes[i] << (8 * i);
    /* Once more: names that differ in their last digits only would share the low bits, which choose the slot.
     */
    return (uint32_t)(mix(hash, word) * FACTOR >> 32);
}

void map_free(struct map *map)
{
    pages_free(map->slots, map->capacity * sizeof *map->slots);
    *map = (struct map){0};
}

/* The slot that holds the key, or the free one where it would go. */
static size_t find(const struct map *map, const void *key, size_t length, uint32_t hash)
{
    size_t mask = map->capacity - 1;
    size_t at = hash & mask;
    for (;; at = (at + 1) & mask) {
        const struct map_slot *slot = &map->slots[at];
        if (!slot->value || (slot->hash == hash && slot->length == length &&
                             memcmp((const char *)slot->value + map->key_offset, key, length) == 0))
            return at;
    }
}

void *map_get(const struct map *map, const void *key, size_t length)
{
    if (!map->capacity)
        return NULL;
    return map->slots[find(map, key, length, hash_of(key, length))].value;
}

static bool resize(struct map *map, size_t capacity)
{
    struct map other = *map;
    other.capacity = capacity;
    other.slots = pages_alloc(other.capacity * sizeof *other.slots);
    if (!other.slots)
        return false;
    memset(other.slots, 0, other.capacity * sizeof *other.slots);
    for (size_t i = 0; i < map->capacity; i++) {
        const struct map_slot *slot = &map->slots[i];
        const char *value = slot->value;
        if (value)
            other.slots[find(&other, value + map->key_offset, slot->length, slot->hash)] = *slot;
    }
    pages_free(map->slots, map->capacity * sizeof *map->slots);
    *map = other;
    return true;
}

void **map_place(struct map *map, const void *key, size_t length, void *value)
{
    /* Grows at 7/8 and shrinks below 1/8, so far apart that no few calls resize it to and fro. */
    if (map->count * 8 >= map->capacity * 7 && !resize(map, map->capacity ? map->capacity * 2 : LEAST))
        return NULL;
    map->key_offset = (size_t)((const char *)key - (const char *)value);
    uint32_t hash = hash_of(key, length);
    struct map_slot *slot = &map->slots[find(map, key, length, hash)];
    if (!slot->value) {
        map->count++;
        *slot = (struct map_slot){value, hash, (uint32_t)length};
    }
    return &slot->value;
}

bool map_put(struct map *map, const void *key, size_t length, void *value)
{
    void **place = map_place(map, key, length, value);
    if (place)
        *place = value;
    return place;
}

void *map_remove(struct map *map, const void *key, size_t length)
{
    if (!map->capacity)
        return NULL;
    size_t mask = map->capacity - 1;
    size_t hole = find(map, key, length, hash_of(key, length));
    void *value = map->slots[hole].value;
    if (!value)
        return NULL;
    map->count--;
    for (size_t at = (hole + 1) & mask; map->slots[at].value; at = (at + 1) & mask) {
        size_t home = map->slots[at].hash & mask;
        /* Move it back unless its home is cyclically between the hole (excluded) and where it is. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = (struct map_slot){0};
    if (map->count * 8 < map->capacity && map->capacity > KEPT)
        resize(map, map->capacity / 2); /* if memory is out it stays as it is */
    return value;
}

void *map_next(const struct map *map, size_t *cursor)
{
    while (*cursor < map->capacity) {
        const struct map_slot *slot = &map->slots[(*cursor)++];
        if (slot->value)
            return slot->value;
    }
    return NULL;
}
