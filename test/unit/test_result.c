/* test_result.c - the memory of results is used again, but never for two results at once. */
#include "device/memory.h"
#include "engine/result.h"
#include "test.h"

#include "horovod.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static void *allocate(size_t bytes, int ndim)
{
    const int64_t shape[] = {3, 5, 7, 9, 11, 13, 15, 17, 19};
    const int64_t *kept;
    char *data = result_allocate(&memory_host, 0, shape, ndim, bytes, &kept);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % 64, 0);
    assert_memory_equal(kept, shape, (size_t)ndim * sizeof *shape);
    memset(data, ndim, bytes);
    assert_memory_equal(kept, shape, (size_t)ndim * sizeof *shape);
    return data;
}

TEST(large_memory_comes_back)
{
    void *first = allocate(8 * MIB, 2);
    hvd_free(first);
    void *again = allocate(8 * MIB, 2);
    assert_ptr_equal(again, first);
    void *other = allocate(8 * MIB, 2);
    assert_ptr_not_equal(other, again);
    hvd_free(again);
    hvd_free(other);
}

TEST(another_shape_may_have_it)
{
    hvd_free(allocate(4 * MIB, 1));
    hvd_free(allocate(4 * MIB - 1000, 9)); /* its data begin elsewhere in the block */
    hvd_free(allocate(3 * MIB, 0));
    hvd_free(allocate(4 * MIB + 64, 1));
}

TEST(sizes_from_nothing_to_huge)
{
    const int64_t *kept;
    for (size_t bytes = 0; bytes < 80 * MIB; bytes = bytes * 3 + 1)
        hvd_free(allocate(bytes, 1));
    hvd_free(NULL);
    assert_null(result_allocate(&memory_host, 0, NULL, 0, SIZE_MAX, &kept));
    assert_null(result_allocate(&memory_host, 0, NULL, 0, SIZE_MAX - 64, &kept));
}

static void *allocate_and_check(void *argument)
{
    unsigned mark = (unsigned)(uintptr_t)argument;
    for (size_t round = 0; round < 300; round++) {
        const int64_t *kept;
        size_t bytes = MIB / 8 * (1 + (round * mark) % 9);
        uint8_t *data = result_allocate(&memory_host, 0, NULL, 0, bytes, &kept);
        if (!data)
            return argument;
        memset(data, (int)mark, bytes);
        for (size_t i = 0; i < bytes; i += 4096) {
            if (data[i] != mark)
                return argument;
        }
        hvd_free(data);
    }
    return NULL;
}

TEST(no_two_threads_share_it)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_check, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}
