/* pattern.c - see pattern.h. */
#include "coll/pattern.h"

#include <stdbool.h>
#include <stdint.h>

#define LINE           64
#define LINES_PER_PART 4 /* below this, uneven parts cost more than shared cache lines */

struct range pattern_rows(size_t rows, int parts, int index)
{
    size_t ranks = (size_t)parts, at = (size_t)index;
    size_t each = rows / ranks, larger = rows % ranks;
    return (struct range){at * each + (at < larger ? at : larger), each + (at < larger)};
}

struct range pattern_block(size_t bytes, size_t element, int parts, int index)
{
    size_t unit = bytes / LINE >= (size_t)parts * LINES_PER_PART ? LINE : element;
    size_t units = bytes / unit + (bytes % unit != 0);
    struct range part = pattern_rows(units, parts, index);
    size_t start = part.offset * unit;
    size_t end = start + part.length * unit;
    start = start < bytes ? start : bytes;
    end = end < bytes ? end : bytes;
    return (struct range){start, end - start};
}

int pattern_shift(int rank, int distance, int size)
{
    int64_t place = ((int64_t)rank + distance) % size;
    return (int)(place < 0 ? place + size : place);
}

int pattern_ring(const struct topology *topology, int rank, int distance)
{
    return topology->rank_at[pattern_shift(topology->place_of[rank], distance, topology->size)];
}

int pattern_rounds(int size)
{
    int rounds = 0;
    while (((int64_t)1 << rounds) < size)
        rounds++;
    return rounds;
}

int pattern_power(int size)
{
    int power = 1;
    while (power <= size / 2)
        power *= 2;
    return power;
}

/* Seen from the root the tree is the same for every root: place 0 has the children 1, 2, 4, ...; the parent
 * of a place is that place without its lowest bit. */
int pattern_tree_parent(int rank, int root, int size)
{
    int place = pattern_shift(rank, -root, size);
    return place == 0 ? -1 : pattern_shift(place & (place - 1), root, size);
}

int pattern_tree_children(int rank, int root, int size, int children[PATTERN_CHILD_LIMIT])
{
    int place = pattern_shift(rank, -root, size);
    int count = 0;
    for (int bit = pattern_power(size); bit > 0; bit /= 2) {
        bool below_lowest_bit = (place & (2 * bit - 1)) == 0;
        if (below_lowest_bit && bit < size - place)
            children[count++] = pattern_shift(place + bit, root, size);
    }
    return count;
}
