/* test_platform_process.c - processor time of a process and of its threads, and the load of the host. */
#include "base/platform_process.h"
#include "test.h"

#include <time.h>
#include <unistd.h>

/* A system without schedstat says 0. */
TEST(test_times_of_the_main_thread)
{
    struct platform_process before, after;
    struct timespec start, now;
    assert_true(platform_process(getpid(), &before));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < 30000000L);
    assert_true(platform_process(getpid(), &after));
    assert_true(!after.running || after.running - before.running >= 20000000);
    assert_true(after.runnable >= before.runnable);
    assert_true(platform_thread_running(getpid(), getpid()) >= after.running);
    assert_int_equal(platform_thread_running(getpid(), 0), 0);
}

TEST(test_load)
{
    struct platform_load load = platform_load();
    assert_true(load.cores >= 1);
    assert_true(load.runnable >= 0);
}
