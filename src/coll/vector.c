/* vector.c - see vector.h. */
#include "coll/vector.h"

void vector_measure(struct vector *vector)
{
    vector->length = 0;
    for (int i = 0; i < vector->count; i++) {
        vector->starts[i] = vector->length;
        vector->length += vector->spans[i].length;
    }
}

bool vector_same(const struct vector *a, const struct vector *b)
{
    if (a->count != b->count || a->spans == b->spans)
        return a->count == b->count;
    for (int i = 0; i < a->count; i++)
        if (a->spans[i].data != b->spans[i].data || a->spans[i].length != b->spans[i].length)
            return false;
    return true;
}

/* The last span that starts at or before the offset; an empty span is always followed by one with the same
 * start, or lies at the end, so it is never the answer. */
int vector_find(const struct vector *vector, size_t offset)
{
    int low = 0, high = vector->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (vector->starts[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int vector_parts(const struct vector *vector, size_t offset, size_t length, struct iovec *parts, int limit)
{
    if (!length)
        return 0;
    int count = 0;
    int span = vector_find(vector, offset);
    size_t skip = offset - vector->starts[span];
    for (; length && count < limit; span++, skip = 0) {
        size_t here = vector->spans[span].length - skip;
        if (!here)
            continue;
        here = here < length ? here : length;
        parts[count++] = (struct iovec){vector->spans[span].data + skip, here};
        length -= here;
    }
    return count;
}
