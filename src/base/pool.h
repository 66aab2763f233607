/* pool.h - small blocks in pages of their own, apart from malloc's, which would hold for ever what thousands
 * of requests took at once. Blocks of one size share chunks; the pages of an empty chunk go back to the
 * system, but for the first, since pages that come and go take time. No lock. */
#ifndef HVD_BASE_POOL_H
#define HVD_BASE_POOL_H

#include <stddef.h>

#define POOL_LARGEST ((size_t)1024) /* of the blocks; larger ones are malloc's */
#define POOL_SIZES   28

struct pool {
    size_t chunk_bytes, kept_bytes;      /* of a chunk, a power of two; of it while it is empty */
    struct pool_chunk *open[POOL_SIZES]; /* chunks with room */
    struct pool_chunk *spare;            /* empty ones */
    int spares;
};

void pool_init(struct pool *pool, size_t chunk_bytes, size_t kept_bytes);
void *pool_take(struct pool *pool, size_t bytes);             /* not zeroed; NULL when memory is out */
void pool_give(struct pool *pool, void *block, size_t bytes); /* as many as were taken; NULL is fine */
void pool_fini(struct pool *pool);                            /* after all blocks were given back */

#endif
