/* test_turns.c - the queue of process sets that have a turn. */
#include "engine/turns.h"
#include "test.h"

TEST(in_the_order_in_which_they_were_added)
{
    struct turns turns = {0};
    int added = 0, used = 0;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < round % 7; i++)
            assert_true(turns_add(&turns, added++));
        for (int i = 0; i < round % 5 && used < added; i++) {
            assert_true(turns_has(&turns, used));
            assert_false(turns_has(&turns, used + 1));
            turns_use(&turns);
            used++;
        }
        assert_int_equal(turns.count, added - used);
    }
    for (; used < added; used++) {
        assert_true(turns_has(&turns, used));
        turns_use(&turns);
    }
    assert_false(turns_has(&turns, used));
    assert_true(turns.capacity < 200);
    turns_free(&turns);
}

TEST(a_set_that_has_ended_is_dropped)
{
    struct turns turns = {0};
    for (int i = 0; i < 30; i++)
        assert_true(turns_add(&turns, i % 3));
    turns_use(&turns);
    turns_drop(&turns, 1);
    turns_drop(&turns, 9);
    for (int i = 1; i < 30; i++) {
        if (i % 3 == 1)
            continue;
        assert_true(turns_has(&turns, i % 3));
        turns_use(&turns);
    }
    assert_int_equal(turns.count, 0);
    turns_free(&turns);
}
