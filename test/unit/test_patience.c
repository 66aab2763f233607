/* test_patience.c - a time limit that does not count a long standstill. */
#include "test.h"

#include "base/patience.h"

TEST(test_a_standstill_counts_as_one_step)
{
    struct patience patience = patience_of(2 * PATIENCE_STEP);
    patience.checked -= 60 * CLOCK_SECOND;
    assert_false(patience_ends(&patience));
    assert_true(patience.left == PATIENCE_STEP);
    patience.checked -= 60 * CLOCK_SECOND;
    assert_true(patience_ends(&patience));
}

TEST(test_shorter_steps_add_up)
{
    struct patience patience = patience_of(60 * CLOCK_SECOND);
    for (int i = 0; i < 10; i++) {
        patience.checked -= PATIENCE_STEP / 2;
        assert_false(patience_ends(&patience));
    }
    assert_in_range(60 * CLOCK_SECOND - patience.left, 5 * PATIENCE_STEP, 10 * PATIENCE_STEP);
}

TEST(test_no_time_at_all)
{
    struct patience patience = patience_of(0);
    assert_true(patience_ends(&patience));
}
