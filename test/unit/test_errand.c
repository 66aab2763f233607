/* test_errand.c - a function in a thread for which nobody waits too long. */
#include "engine/errand.h"
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

TEST(test_errands_that_end)
{
    static struct errand errand = {.run = run};
    for (int i = 1; i <= 50; i++) {
        assert_true(errand_run(&errand, clock_after(60), &never));
        assert_int_equal(atomic_load(&runs), i);
    }
}

TEST(test_one_that_hangs_is_not_started_again)
{
    static struct errand errand = {.run = run};
    atomic_store(&runs, 0);
    atomic_store(&hangs, true);
    assert_false(errand_run(&errand, clock_after(0.05), &never));
    assert_false(errand_run(&errand, clock_after(60), &never));
    assert_false(errand_wait(&errand, clock_after(60), &stops));
    assert_in_range(atomic_load(&runs), 0, 1); /* its thread may not have run yet */
    atomic_store(&hangs, false);
    assert_true(errand_wait(&errand, clock_after(60), &never));
    assert_true(errand_run(&errand, clock_after(60), &never));
    assert_int_equal(atomic_load(&runs), 2);
}
