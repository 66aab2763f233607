/* test_pool.c - memory of bursts: blocks that don't overlap, and pages that go back. */
#include "base/map.h"
#include "base/pool.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 20000
#define CHUNK  ((size_t)64 << 10)

static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];

static void take(struct pool *pool, int i, size_t bytes)
{
    sizes[i] = bytes;
    blocks[i] = pool_alloc(pool, bytes);
    assert_non_null(blocks[i]);
    assert_int_equal((uintptr_t)blocks[i] % 8, 0);
    memset(blocks[i], i & 0xff, bytes);
}

static void give(struct pool *pool, int i)
{
    for (size_t at = 0; at < sizes[i]; at++)
        assert_int_equal(blocks[i][at], i & 0xff);
    pool_free(pool, blocks[i], sizes[i]);
    blocks[i] = NULL;
}

/* Every size, allocated and freed in any order: the bytes of a block stay as they were written. */
TEST(blocks_are_apart)
{
    struct pool pool;
    pool_init(&pool, CHUNK, CHUNK / 4);
    srand(1);
    for (int turn = 0; turn < 5 * BLOCKS; turn++) {
        int i = rand() % BLOCKS;
        if (blocks[i])
            give(&pool, i);
        else
            take(&pool, i, (size_t)(rand() % 1100));
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i])
            give(&pool, i);
    }
    pool_fini(&pool);
}

/* The pages are freed with their last blocks, except those that the pool keeps. */
TEST(pages_go_back)
{
    struct pool pool;
    pool_init(&pool, CHUNK, CHUNK / 4);
    own_bytes();
    size_t before = own_bytes();
    for (int i = 0; i < BLOCKS; i++)
        take(&pool, i, 400);
    size_t most = own_bytes();
    for (int i = 0; i < BLOCKS; i++)
        give(&pool, i);
    size_t after = own_bytes();
    assert_true(!before || most - before > BLOCKS * 400);
    assert_in_range(after, 0, before + 4 * CHUNK);
    pool_fini(&pool);
}

/* Small and large, growing and shrinking: the contents go with it. */
TEST(pages_are_resized)
{
    static const size_t steps[] = {1, 100, PAGES_LEAST - 1, PAGES_LEAST, 3 * PAGES_LEAST, 10, PAGES_LEAST, 8};
    size_t had = 0;
    char *memory = NULL;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        memory = pages_resize(memory, had, steps[i]);
        assert_non_null(memory);
        for (size_t at = 0; at < had && at < steps[i]; at++)
            assert_int_equal(memory[at], 'x');
        memset(memory, 'x', steps[i]);
        had = steps[i];
    }
    pages_free(memory, had);
    pages_free(NULL, 0);
    pages_free(NULL, PAGES_LEAST);
}

struct item {
    int number;
    char key[24];
};

/* Keys of all lengths, added, replaced and removed, as a list of them says. */
TEST(a_map_finds_what_it_holds)
{
    static struct item items[5000];
    static bool inside[5000];
    struct map map = {0};
    srand(2);
    for (int i = 0; i < 5000; i++) {
        items[i].number = i;
        snprintf(items[i].key, sizeof items[i].key, "%d%s", i, i % 3 ? "" : ".weight");
    }
    for (int turn = 0; turn < 100000; turn++) {
        int i = rand() % 5000;
        const char *key = items[i].key;
        assert_ptr_equal(map_get(&map, key, strlen(key)), inside[i] ? &items[i] : NULL);
        if (inside[i] && turn % 2)
            assert_ptr_equal(map_remove(&map, key, strlen(key)), &items[i]);
        else
            assert_true(map_put(&map, key, strlen(key), &items[i]));
        inside[i] = !inside[i] || turn % 2 == 0;
    }
    size_t cursor = 0, count = 0;
    for (const struct item *item; (item = map_next(&map, &cursor)); count++)
        assert_true(inside[item->number]);
    assert_int_equal(count, map.count);
    for (int i = 0; i < 5000; i++)
        map_remove(&map, items[i].key, strlen(items[i].key));
    assert_int_equal(map.count, 0);
    assert_in_range(map.capacity, 1, 256);
    map_free(&map);
}
