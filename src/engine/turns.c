/* turns.c - a queue of process sets, in a growing array. Under the progress lock. */
#include "engine/turns.h"

#include <stdlib.h>
#include <string.h>

bool turns_add(struct turns *turns, int set)
{
    if (turns->first + turns->count == turns->capacity && turns->first) {
        memmove(turns->sets, turns->sets + turns->first, (size_t)turns->count * sizeof *turns->sets);
        turns->first = 0;
    }
    if (turns->count == turns->capacity) {
        int capacity = turns->capacity ? 2 * turns->capacity : 16;
        int *sets = realloc(turns->sets, (size_t)capacity * sizeof *sets);
        if (!sets)
            return false;
        turns->sets = sets;
        turns->capacity = capacity;
    }
    turns->sets[turns->first + turns->count++] = set;
    return true;
}

bool turns_has(const struct turns *turns, int set)
{
    return turns->count && turns->sets[turns->first] == set;
}

void turns_use(struct turns *turns)
{
    turns->count--;
    turns->first = turns->count ? turns->first + 1 : 0;
}

void turns_drop(struct turns *turns, int set)
{
    int kept = 0;
    for (int i = 0; i < turns->count; i++) {
        int other = turns->sets[turns->first + i];
        if (other != set)
            turns->sets[turns->first + kept++] = other;
    }
    turns->count = kept;
}

void turns_free(struct turns *turns)
{
    free(turns->sets);
    *turns = (struct turns){0};
}
