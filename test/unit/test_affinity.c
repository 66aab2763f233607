/* test_affinity.c - which core the list gives to which rank, and that a thread gets it. */
#include "engine/drive.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

TEST(the_list_goes_by_local_rank)
{
    static const struct {
        const char *list;
        int local_rank, local_size, core;
    } cases[] = {{"3", 0, 1, 3},     {"0,2,4,6", 2, 4, 4}, {"0,2,4,6", 1, 2, 2},
                 {"0,2", 0, 3, -1},  {"", 0, 1, -1},       {"a", 0, 1, -1},
                 {"1,,2", 0, 2, -1}, {"-1", 0, 1, -1},     {"1;2", 0, 1, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(affinity_core(cases[i].list, cases[i].local_rank, cases[i].local_size),
                         cases[i].core);
}

/* Returns the number of cores that the thread may use after `argument`, a list for one rank, was applied. */
static void *count_cores(void *argument)
{
    cpu_set_t cores;
    affinity_apply(argument, 0, 0, 1);
    return sched_getaffinity(0, sizeof cores, &cores) ? NULL : (void *)(intptr_t)CPU_COUNT(&cores);
}

static intptr_t cores_of_a_thread_with(char *list)
{
    pthread_t thread;
    void *count;
    assert_int_equal(pthread_create(&thread, NULL, count_cores, list), 0);
    assert_int_equal(pthread_join(thread, &count), 0);
    return (intptr_t)count;
}

TEST(a_thread_is_bound)
{
    cpu_set_t cores;
    char list[16];
    int core = 0;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    while (!CPU_ISSET(core, &cores))
        core++;
    snprintf(list, sizeof list, "%d", core);
    assert_int_equal(cores_of_a_thread_with(list), 1);
    assert_int_equal(cores_of_a_thread_with(""), CPU_COUNT(&cores));
    assert_int_equal(cores_of_a_thread_with("nonsense"), CPU_COUNT(&cores));
    assert_int_equal(cores_of_a_thread_with("100000"), CPU_COUNT(&cores));
}
