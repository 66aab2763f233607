/* pool.c - blocks of a few sizes, out of chunks. Chunks are aligned to their own size, so the address of a
 * block gives its chunk. Pages of a chunk that were never used are not allocated. */
#include "base/pool.h"

#include "base/platform_memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SPARES      2
#define FINE_GRAIN  ((size_t)16) /* of sizes up to FINE_LIMIT */
#define FINE_LIMIT  ((size_t)256)
#define ROUGH_GRAIN ((size_t)64) /* and above */

/* Larger blocks are malloc's. AddressSanitizer checks the bounds of malloc's blocks only, so under it all of
 * them are malloc's. */
#ifdef __SANITIZE_ADDRESS__
#define LARGEST ((size_t)0)
#else
#define LARGEST POOL_LARGEST
#endif

_Static_assert(POOL_SIZES == FINE_LIMIT / FINE_GRAIN + (POOL_LARGEST - FINE_LIMIT) / ROUGH_GRAIN,
               "a list for every size");

struct free_block {
    struct free_block *next;
};

struct pool_chunk {
    struct pool_chunk *previous, *next; /* in the pool's list of those with room, or of spares (next) */
    struct free_block *freed;           /* blocks that were used before */
    size_t used;                        /* number of blocks in use */
    size_t fresh;                       /* offset of the first byte that was never used */
    size_t bytes;                       /* size of a block */
    max_align_t blocks[];
};

void pool_init(struct pool *pool, size_t chunk_bytes, size_t kept_bytes)
{
    *pool = (struct pool){.chunk_bytes = chunk_bytes, .kept_bytes = kept_bytes};
}

/* `bytes`: a rounded size. */
static struct pool_chunk **list_of(struct pool *pool, size_t bytes)
{
    if (bytes <= FINE_LIMIT)
        return &pool->open[bytes / FINE_GRAIN - 1];
    return &pool->open[FINE_LIMIT / FINE_GRAIN + (bytes - FINE_LIMIT) / ROUGH_GRAIN - 1];
}

static void open_chunk(struct pool *pool, struct pool_chunk *chunk)
{
    struct pool_chunk **list = list_of(pool, chunk->bytes);
    chunk->previous = NULL;
    chunk->next = *list;
    if (chunk->next)
        chunk->next->previous = chunk;
    *list = chunk;
}

static void close_chunk(struct pool *pool, struct pool_chunk *chunk)
{
    *(chunk->previous ? &chunk->previous->next : list_of(pool, chunk->bytes)) = chunk->next;
    if (chunk->next)
        chunk->next->previous = chunk->previous;
}

static bool is_full(const struct pool *pool, const struct pool_chunk *chunk)
{
    return !chunk->freed && chunk->fresh + chunk->bytes > pool->chunk_bytes;
}

static struct pool_chunk *pop_spare(struct pool *pool)
{
    struct pool_chunk *chunk = pool->spare;
    if (chunk) {
        pool->spare = chunk->next;
        pool->spares--;
    }
    return chunk;
}

static struct pool_chunk *add_chunk(struct pool *pool, size_t bytes)
{
    struct pool_chunk *chunk = pop_spare(pool);
    if (!chunk && !(chunk = platform_pages_alloc(pool->chunk_bytes, pool->chunk_bytes)))
        return NULL;
    *chunk = (struct pool_chunk){.fresh = offsetof(struct pool_chunk, blocks), .bytes = bytes};
    open_chunk(pool, chunk);
    return chunk;
}

void *pool_alloc(struct pool *pool, size_t bytes)
{
    if (bytes > LARGEST)
        return malloc(bytes);
    size_t grain = bytes > FINE_LIMIT ? ROUGH_GRAIN : FINE_GRAIN;
    bytes = bytes ? (bytes + grain - 1) / grain * grain : grain;
    struct pool_chunk *chunk = *list_of(pool, bytes);
    if (!chunk && !(chunk = add_chunk(pool, bytes)))
        return NULL;
    void *block = chunk->freed;
    if (block) {
        chunk->freed = chunk->freed->next;
    } else {
        block = (char *)chunk + chunk->fresh;
        chunk->fresh += bytes;
    }
    chunk->used++;
    if (is_full(pool, chunk))
        close_chunk(pool, chunk);
    return block;
}

static void drop_chunk(struct pool *pool, struct pool_chunk *chunk)
{
    close_chunk(pool, chunk);
    if (pool->spares == SPARES) {
        platform_pages_free(chunk, pool->chunk_bytes);
        return;
    }
    /* Only pages that were used take memory; the first ones stay. */
    if (chunk->fresh > pool->kept_bytes)
        platform_pages_drop((char *)chunk + pool->kept_bytes, chunk->fresh - pool->kept_bytes);
    chunk->next = pool->spare;
    pool->spare = chunk;
    pool->spares++;
}

void pool_free(struct pool *pool, void *block, size_t bytes)
{
    if (bytes > LARGEST || !block) {
        free(block);
        return;
    }
    struct pool_chunk *chunk =
        (struct pool_chunk *)((uintptr_t)block / pool->chunk_bytes * pool->chunk_bytes);
    /* Only chunks with room are in a list; this one is about to have room. */
    if (is_full(pool, chunk))
        open_chunk(pool, chunk);
    struct free_block *freed = block;
    freed->next = chunk->freed;
    chunk->freed = freed;
    if (--chunk->used == 0)
        drop_chunk(pool, chunk);
}

void pool_fini(struct pool *pool)
{
    for (struct pool_chunk *chunk; (chunk = pop_spare(pool));)
        platform_pages_free(chunk, pool->chunk_bytes);
}

/* ---- pages ------------------------------------------------------------------------------------------- */

/* Small blocks are malloc's; AddressSanitizer then checks the bounds of each. */
static bool is_small(size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    (void)bytes;
    return true;
#else
    return bytes < PAGES_LEAST;
#endif
}

void *pages_alloc(size_t bytes)
{
    return is_small(bytes) ? malloc(bytes) : platform_pages_alloc(bytes, 1);
}

void pages_free(void *memory, size_t bytes)
{
    if (is_small(bytes))
        free(memory);
    else if (memory)
        platform_pages_free(memory, bytes);
}

void *pages_resize(void *memory, size_t bytes, size_t wanted)
{
    if (is_small(bytes) && is_small(wanted))
        return realloc(memory, wanted);
    void *other = pages_alloc(wanted);
    if (!other)
        return NULL;
    if (memory)
        memcpy(other, memory, bytes < wanted ? bytes : wanted);
    pages_free(memory, bytes);
    return other;
}
