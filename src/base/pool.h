/* pool.h - small blocks in pages of their own. A page goes back to the system when nothing lies in it any
 * more, so that what thousands of requests took at once is not held for ever, as malloc would.
 *
 * Zeroed memory is a valid empty pool. No lock. */
#ifndef HVD_BASE_POOL_H
#define HVD_BASE_POOL_H

#include <stddef.h>

#define POOL_LARGEST ((size_t)1024) /* larger blocks are malloc's */
#define POOL_SIZES   28

struct pool {
    struct pool_chunk *open[POOL_SIZES]; /* chunks with room */
    struct pool_chunk *spare;            /* empty ones, for the next burst of about this size */
    int spares;
};

void *pool_take(struct pool *pool, size_t bytes);             /* not zeroed; NULL when memory is out */
void pool_give(struct pool *pool, void *block, size_t bytes); /* as many as were taken; NULL is fine */
void pool_fini(struct pool *pool);                            /* after all blocks were given back */

#endif
