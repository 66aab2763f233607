/* pool.h - allocators for memory that many simultaneous requests need for a short time, and that malloc would
 * not return to the system.
 *
 * pages_alloc: arrays. From PAGES_LEAST bytes on they are pages of their own, which are returned to the
 * system at once; smaller ones are malloc's. Any thread.
 *
 * struct pool: small blocks. Blocks of one size share chunks of pages. An empty chunk is returned to the
 * system except for its first part, since mapping pages takes time. No lock: one thread at a time per pool.
 */
#ifndef HVD_BASE_POOL_H
#define HVD_BASE_POOL_H

#include <stddef.h>

#define PAGES_LEAST ((size_t)8 << 10)

void *pages_alloc(size_t bytes);             /* not zeroed; NULL when memory is out */
void pages_free(void *memory, size_t bytes); /* as many as were allocated; NULL is fine */
/* As realloc: NULL when memory is out, and the old memory is unchanged. */
void *pages_resize(void *memory, size_t bytes, size_t wanted);

#define POOL_LARGEST ((size_t)1024) /* of the blocks; larger ones are malloc's */
#define POOL_SIZES   28

struct pool {
    size_t chunk_bytes, kept_bytes;      /* of a chunk, a power of two; of it while it is empty */
    struct pool_chunk *open[POOL_SIZES]; /* chunks with room */
    struct pool_chunk *spare;            /* empty ones */
    int spares;
};

void pool_init(struct pool *pool, size_t chunk_bytes, size_t kept_bytes);
void *pool_alloc(struct pool *pool, size_t bytes);            /* not zeroed; NULL when memory is out */
void pool_free(struct pool *pool, void *block, size_t bytes); /* as many as were allocated; NULL is fine */
void pool_fini(struct pool *pool);                            /* after all blocks were freed */

#endif
