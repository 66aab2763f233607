/* test_path.c - both ways of storing give the same bytes, and the path that costs least is found. */
#include "test.h"
#include "transport/path.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)80 << 10)

/* A stores that stays on this way for as long as a test takes. */
static struct stores settled(enum store_way way)
{
    struct stores stores = {.way = way, .trial.until = SIZE_MAX, .cost = {1, 1}};
    stores.cost[way] = 1e-9;
    return stores;
}

static void check_copy(struct stores *stores, size_t at, size_t from, size_t length)
{
    static uint8_t source[ROOM], result[ROOM];
    for (size_t i = 0; i < ROOM; i++)
        source[i] = (uint8_t)(i * 7 + i / 251);
    memset(result, 0xee, sizeof result);
    stores_copy(stores, result + at, source + from, length);
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
            struct stores cached = settled(STORE_CACHED), streamed = settled(STORE_NONTEMPORAL);
            struct stores new = {0};
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
    struct stores stores = {0};
    stores_learn(&stores, STORE_CACHED, 1);
    assert_int_equal(stores.way, STORE_CACHED);
    stores_learn(&stores, STORE_NONTEMPORAL, 0.7);
    assert_int_equal(stores.way, STORE_CACHED);
    for (int i = 0; i < 20; i++)
        stores_learn(&stores, STORE_NONTEMPORAL, 0.2);
    assert_int_equal(stores.way, STORE_NONTEMPORAL);
}

/* The ranks came together on cores that share a cache. */
TEST(it_comes_back)
{
    struct stores stores = {.cost = {1, 0.1}, .way = STORE_NONTEMPORAL};
    for (int i = 0; i < 20; i++)
        stores_learn(&stores, STORE_CACHED, 0.05);
    assert_int_equal(stores.way, STORE_CACHED);
}

TEST(one_interruption_changes_nothing)
{
    struct stores stores = {0};
    stores_learn(&stores, STORE_NONTEMPORAL, 0.9);
    stores_learn(&stores, STORE_CACHED, 1);
    stores_learn(&stores, STORE_CACHED, 1e6);
    assert_int_equal(stores.way, STORE_CACHED);
}

TEST(a_transfer_of_the_callers_own)
{
    struct stores stores = settled(STORE_CACHED);
    struct store_transfer transfer = stores_begin(NULL, ROOM);
    assert_int_equal(transfer.way, STORE_CACHED);
    stores_end(NULL, &transfer, ROOM);
    transfer = stores_begin(&stores, 100);
    assert_false(transfer.timed);
    stores.trial.until = 0;
    transfer = stores_begin(&stores, ROOM);
    assert_int_equal(transfer.way, STORE_NONTEMPORAL);
    assert_true(transfer.timed);
    stores.cost[STORE_CACHED] = 1e9; /* so any time is better by far */
    stores_end(&stores, &transfer, ROOM);
    assert_int_equal(stores.way, STORE_NONTEMPORAL);
}

/* What is better in truth depends on the machine; that it is asked again and again does not. */
TEST(trials_go_on)
{
    static uint8_t from[64 << 10], to[64 << 10];
    struct stores stores = {0};
    for (int i = 0; i < 2000; i++) {
        stores_copy(&stores, to, from, sizeof from);
        assert_in_range(stores.trial.interval, 1, (size_t)64 << 20);
        assert_in_range(stores.trial.until, 1, stores.trial.interval);
    }
}

/* ---- paths -------------------------------------------------------------------------------------------- */

TEST(a_path_is_forced)
{
    static const char *const names[] = {"auto", "ring", "nontemporal", "direct"};
    enum path_rule rule;
    assert_false(path_rule_find("carrier pigeon", &rule));
    for (int i = 0; i < PATH_RULES; i++) {
        struct path path = {0};
        assert_true(path_rule_find(names[i], &rule));
        assert_int_equal(rule, i);
        path_begin(&path, rule);
        assert_int_equal(path.rule, rule);
        assert_true(path_shares(&path, (size_t)64 << 20) == (rule == PATH_AUTO));
        assert_false(path_shares(&path, 100000));
        if (rule == PATH_AUTO)
            continue;
        struct stores *stores = &path.stores[0];
        assert_int_equal(stores->way, rule == PATH_NONTEMPORAL ? STORE_NONTEMPORAL : STORE_CACHED);
        stores_learn(stores, STORE_CACHED, 1000);
        stores_learn(stores, STORE_NONTEMPORAL, rule == PATH_RING ? 1 : 1e6);
        assert_int_equal(stores->way, rule == PATH_NONTEMPORAL ? STORE_NONTEMPORAL : STORE_CACHED);
    }
}
