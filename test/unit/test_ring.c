/* test_ring.c - the ring in memory, without a network: wrapping, padding, hostile counters, and one writer
 * against one reader in two threads. */
#include "test.h"
#include "transport/ring.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 256

struct both {
    struct ring_memory *memory;
    struct ring writer, reader;
};

static int make(void **state)
{
    struct both *both = calloc(1, sizeof *both);
    both->memory = aligned_alloc(RING_LINE, ring_bytes(SIZE));
    memset(both->memory, 0, ring_bytes(SIZE));
    both->writer = both->reader = (struct ring){.memory = both->memory, .size = SIZE};
    *state = both;
    return 0;
}

static int unmake(void **state)
{
    struct both *both = *state;
    free(both->memory);
    free(both);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = make, .after_each = unmake};

TEST(test_full_and_empty)
{
    struct both *both = *state;
    uint8_t bytes[SIZE + 1] = {1, 2, 3};
    const void *view;
    assert_int_equal(ring_room(&both->writer), SIZE);
    assert_int_equal(ring_available(&both->reader), 0);
    assert_int_equal(ring_view(&both->reader, &view, 10), 0);
    assert_int_equal(ring_write(&both->writer, bytes, sizeof bytes), SIZE);
    assert_int_equal(ring_write(&both->writer, bytes, 1), 0);
    assert_int_equal(ring_view(&both->reader, &view, 3), 3);
    assert_memory_equal(view, bytes, 3);
    ring_consume(&both->reader, 3);
    assert_int_equal(ring_room(&both->writer), 3);
    assert_int_equal(ring_available(&both->reader), SIZE - 3);
}

TEST(test_messages_start_aligned)
{
    struct both *both = *state;
    for (size_t length = 1; length < 200; length++) {
        uint8_t bytes[200];
        const void *view;
        size_t got = 0;
        memset(bytes, (int)length, sizeof bytes);
        assert_int_equal(ring_write(&both->writer, bytes, length), length);
        ring_end_write(&both->writer);
        while (got < length) {
            size_t n = ring_view(&both->reader, &view, length - got);
            assert_true(n > 0);
            assert_true(got || (uintptr_t)view % RING_ALIGNMENT == 0);
            assert_memory_equal(view, bytes, n);
            ring_consume(&both->reader, n);
            got += n;
        }
        ring_end_read(&both->reader);
        assert_int_equal(ring_available(&both->reader), 0);
    }
}

/* The reader may pad before or after the writer does. */
TEST(test_padding_is_never_counted)
{
    struct both *both = *state;
    uint8_t byte = 9;
    ring_write(&both->writer, &byte, 1);
    const void *view;
    assert_int_equal(ring_view(&both->reader, &view, 1), 1);
    ring_consume(&both->reader, 1);
    ring_end_read(&both->reader);
    assert_int_equal(ring_available(&both->reader), 0);
    assert_int_equal(ring_room(&both->writer), SIZE);
    ring_end_write(&both->writer);
    assert_int_equal(ring_room(&both->writer), SIZE);
    assert_int_equal(ring_available(&both->reader), 0);
}

/* A broken peer may write anything into its counter; nothing outside the ring is touched. */
TEST(test_hostile_counters_stay_inside)
{
    struct both *both = *state;
    static const uint64_t values[] = {1, SIZE + 1, UINT64_MAX, UINT64_MAX / 2, 1u << 31};
    uint8_t bytes[4 * SIZE] = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const void *view;
        atomic_store(&both->memory->head, values[i]);
        atomic_store(&both->memory->tail, values[i]);
        assert_true(ring_available(&both->reader) <= SIZE);
        size_t n = ring_view(&both->reader, &view, sizeof bytes);
        assert_true((const uint8_t *)view + n <= both->memory->bytes + SIZE);
        assert_true(ring_write(&both->writer, bytes, sizeof bytes) <= SIZE);
    }
}

#define TOTAL ((size_t)1 << 20)

static void *write_all(void *argument)
{
    struct both *both = argument;
    for (size_t done = 0; done < TOTAL;) {
        uint8_t bytes[100];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((done + i) * 31 >> 3);
        size_t n =
            ring_write(&both->writer, bytes, TOTAL - done < sizeof bytes ? TOTAL - done : sizeof bytes);
        done += n;
        if (!n)
            sched_yield();
    }
    return NULL;
}

TEST(test_two_threads)
{
    struct both *both = *state;
    pthread_t writer;
    int64_t deadline = clock_after(60);
    assert_int_equal(pthread_create(&writer, NULL, write_all, both), 0);
    for (size_t done = 0; done < TOTAL;) {
        const void *view;
        size_t n = ring_view(&both->reader, &view, 77);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(((const uint8_t *)view)[i], (uint8_t)((done + i) * 31 >> 3));
        if (n)
            ring_consume(&both->reader, n);
        else
            sched_yield();
        done += n;
        assert_true(clock_now() < deadline);
    }
    pthread_join(writer, NULL);
}
