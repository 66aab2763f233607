/* test_copying.c - both ways of copying give the same bytes, and the better one is found. */
#include "test.h"
#include "transport/copying.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)80 << 10)

/* A copying that stays on this way for as long as a test takes. */
static struct copying settled(enum copying_way way)
{
    struct copying copying = {.way = way, .until_trial = SIZE_MAX, .cost = {1, 1}};
    copying.cost[way] = 1e-9;
    return copying;
}

static void check_copy(struct copying *copying, size_t at, size_t from, size_t length)
{
    static uint8_t source[ROOM], result[ROOM];
    for (size_t i = 0; i < ROOM; i++)
        source[i] = (uint8_t)(i * 7 + i / 251);
    memset(result, 0xee, sizeof result);
    copying_copy(copying, result + at, source + from, length);
    assert_memory_equal(result + at, source + from, length);
    for (size_t i = 0; i < at; i++)
        assert_int_equal(result[i], 0xee);
    for (size_t i = at + length; i < ROOM; i++)
        assert_int_equal(result[i], 0xee);
}

TEST(every_length_and_place)
{
    static const size_t lengths[] = {0, 1, 63, 1023, 1024, 1025, 1087, 4095, 4096, 4097, 4160, 65536, 65601};
    static const size_t places[] = {0, 1, 16, 63, 64};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t place = 0; place < sizeof places / sizeof *places; place++) {
            struct copying cached = settled(COPYING_CACHED), streamed = settled(COPYING_STREAMED);
            struct copying new = {0};
            size_t at = places[place];
            check_copy(NULL, at, at / 2, lengths[i]);
            check_copy(&cached, at, at / 2, lengths[i]);
            check_copy(&streamed, at, at / 2, lengths[i]);
            check_copy(&new, at, at / 2, lengths[i]);
        }
    }
}

TEST(the_cheaper_way_by_far_is_taken)
{
    struct copying copying = {0};
    copying_learn(&copying, COPYING_CACHED, 1);
    assert_int_equal(copying.way, COPYING_CACHED);
    copying_learn(&copying, COPYING_STREAMED, 0.7);
    assert_int_equal(copying.way, COPYING_CACHED);
    for (int i = 0; i < 20; i++)
        copying_learn(&copying, COPYING_STREAMED, 0.2);
    assert_int_equal(copying.way, COPYING_STREAMED);
}

/* The ranks came together on cores that share a cache. */
TEST(it_comes_back)
{
    struct copying copying = {.cost = {1, 0.1}, .way = COPYING_STREAMED};
    for (int i = 0; i < 20; i++)
        copying_learn(&copying, COPYING_CACHED, 0.05);
    assert_int_equal(copying.way, COPYING_CACHED);
}

TEST(one_interruption_changes_nothing)
{
    struct copying copying = {0};
    copying_learn(&copying, COPYING_STREAMED, 0.9);
    copying_learn(&copying, COPYING_CACHED, 1);
    copying_learn(&copying, COPYING_CACHED, 1e6);
    assert_int_equal(copying.way, COPYING_CACHED);
}

TEST(a_transfer_of_the_callers_own)
{
    struct copying copying = settled(COPYING_CACHED);
    struct copying_transfer transfer = copying_begin(NULL, ROOM);
    assert_int_equal(transfer.way, COPYING_CACHED);
    copying_end(NULL, &transfer, ROOM);
    transfer = copying_begin(&copying, 100);
    assert_false(transfer.timed);
    copying.until_trial = 0;
    transfer = copying_begin(&copying, ROOM);
    assert_int_equal(transfer.way, COPYING_STREAMED);
    assert_true(transfer.timed);
    copying.cost[COPYING_CACHED] = 1e9; /* so any time is better by far */
    copying_end(&copying, &transfer, ROOM);
    assert_int_equal(copying.way, COPYING_STREAMED);
}

/* What is better in truth depends on the machine; that it is asked again and again does not. */
TEST(trials_go_on)
{
    static uint8_t from[64 << 10], to[64 << 10];
    struct copying copying = {0};
    for (int i = 0; i < 2000; i++) {
        copying_copy(&copying, to, from, sizeof from);
        assert_in_range(copying.interval, 1, (size_t)64 << 20);
        assert_in_range(copying.until_trial, 1, copying.interval);
    }
}
