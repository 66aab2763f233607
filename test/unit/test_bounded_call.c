/* test_bounded_call.c - a function in a thread for which nobody waits too long. */
#include "engine/bounded_call.h"
#include "test.h"

#include "base/clock.h"

#include <unistd.h>

static atomic_int runs;
static atomic_bool hangs, never, stops = true;

static void run(void)
{
    atomic_fetch_add(&runs, 1);
    while (atomic_load(&hangs))
        usleep(1000);
}

TEST(test_bounded_calls_that_end)
{
    static struct bounded_call bounded_call = {.run = run};
    for (int i = 1; i <= 50; i++) {
        assert_true(bounded_call_run(&bounded_call, 60 * CLOCK_SECOND, &never));
        assert_int_equal(atomic_load(&runs), i);
    }
}

TEST(test_one_that_hangs_is_not_started_again)
{
    static struct bounded_call bounded_call = {.run = run};
    atomic_store(&runs, 0);
    atomic_store(&hangs, true);
    assert_false(bounded_call_run(&bounded_call, CLOCK_SECOND / 20, &never));
    assert_false(bounded_call_run(&bounded_call, 60 * CLOCK_SECOND, &never));
    assert_false(bounded_call_wait(&bounded_call, 60 * CLOCK_SECOND, &stops));
    assert_in_range(atomic_load(&runs), 0, 1); /* its thread may not have run yet */
    atomic_store(&hangs, false);
    assert_true(bounded_call_wait(&bounded_call, 60 * CLOCK_SECOND, &never));
    assert_true(bounded_call_run(&bounded_call, 60 * CLOCK_SECOND, &never));
    assert_int_equal(atomic_load(&runs), 2);
}
