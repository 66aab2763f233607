/* vector.h - many pieces of memory seen as one vector of bytes. Fusion is nothing but this: the tensors of a
 * batch become spans, and algorithms speak of offsets in the whole. */
#ifndef HVD_COLL_VECTOR_H
#define HVD_COLL_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

struct span {
    char *data;
    size_t length; /* bytes */
};

struct vector {
    struct span *spans;
    size_t *starts; /* [count]: offset of each span in the whole */
    int count;
    size_t length; /* bytes in all */
};

/* Fills in starts and length from spans and count. */
void vector_measure(struct vector *vector);

/* Whether both are the same pieces of memory: the operation is in place. */
bool vector_same(const struct vector *a, const struct vector *b);

/* Index of the span that holds `offset` (< length). */
int vector_find(const struct vector *vector, size_t offset);

/* Up to `limit` parts that cover [offset, offset + length); returns how many parts were filled. They cover
 * less when `limit` is too small. */
int vector_parts(const struct vector *vector, size_t offset, size_t length, struct iovec *parts, int limit);

#endif
