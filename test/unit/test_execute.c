/* test_execute.c - the executor with several collectives at once, and when something breaks. */
#include "small_world.h"

#include "coll/task.h"

#define JOBS 7

static const struct reduce_case flight_cases[2] = {
    {"ring", HVD_FLOAT32, HVD_SUM, 300, 3, true, 1, 1},
    {"doubling", HVD_INT32, HVD_AVERAGE, 50, 2, false, 2, 1},
};

static void flight_init(struct work *work, int number, int rank, int size)
{
    switch (number) {
    case 0:
    case 3:
        gather_init(work, "hierarchical", 2, rank, size);
        break;
    case 1:
    case 4:
        reduce_init(work, &flight_cases[number / 4], rank, size);
        break;
    case 2:
        broadcast_init(work, "chain", size / 2, 500, false, rank, size);
        break;
    case 5:
        work_init(work, HVD_BARRIER, "auto", rank, size);
        break;
    default:
        broadcast_init(work, "tree", 0, 0, true, rank, size);
    }
}

static void flight_check(const struct work *works, int number, int size)
{
    if (number == 0 || number == 3)
        gather_check(works, 2, size);
    else if (number == 1 || number == 4)
        reduce_check(works, &flight_cases[number / 4], size);
    else if (number == 2)
        broadcast_check(works, size / 2, size);
    else
        work_assert_done(&works[0]);
}

/* All kinds under way at once on two channels, whose collectives the ranks start at different times. */
TEST(test_jobs_in_flight)
{
    static struct work works[WORLD_CHANNEL][JOBS][WORLD_RANKS];
    for (int turn = 0; turn < 40; turn++) {
        int size = 1 + turn % WORLD_SIZES, started[WORLD_CHANNEL][WORLD_RANKS] = {{0}};
        struct world world = world_open(size);
        for (int channel = 1; channel < WORLD_CHANNEL; channel++)
            for (int number = 0; number < JOBS; number++)
                for (int rank = 0; rank < size; rank++) {
                    flight_init(&works[channel][number][rank], number, rank, size);
                    works[channel][number][rank].collective.channel = channel;
                }
        for (int left = 2 * JOBS * size; left > 0;) {
            int channel = 1 + (int)random_below(2), rank = (int)random_below((size_t)size);
            if (started[channel][rank] < JOBS) {
                executor_start(world.executors[rank],
                               &works[channel][started[channel][rank]++][rank].collective);
                left--;
            }
            executor_progress(world.executors[random_below((size_t)size)]);
        }
        assert_true(world_run(&world));
        links_assert_empty(world.links);
        for (int channel = 1; channel < WORLD_CHANNEL; channel++)
            for (int number = 0; number < JOBS; number++) {
                flight_check(works[channel][number], number, size);
                for (int rank = 0; rank < size; rank++)
                    work_drop(&works[channel][number][rank]);
            }
        world_close(&world);
    }
}

/* Removes all collectives in flight from one rank after another; afterwards their memory must not be
 * accessed. */
TEST(test_abort)
{
    static struct work works[JOBS][WORLD_RANKS];
    hvd_status cause;
    status_set(&cause, HVD_PEER_LOST, "rank 1 has died");
    for (int turns = 0; turns < 60; turns++) {
        struct world world = world_open(4);
        for (int number = 0; number < JOBS; number++)
            for (int rank = 0; rank < 4; rank++) {
                flight_init(&works[number][rank], number, rank, 4);
                executor_start(world.executors[rank], &works[number][rank].collective);
            }
        for (int turn = 0; turn < 4 * turns; turn++)
            executor_progress(world.executors[random_below(4)]);
        int ended = 0;
        for (int rank = 0; rank < 4; rank++) {
            executor_abort(world.executors[rank], &cause);
            assert_true(executor_idle(world.executors[rank]));
            long calls = links_calls(world.links);
            assert_false(executor_progress(world.executors[rank]));
            assert_int_equal(links_calls(world.links), calls);
        }
        for (int number = 0; number < JOBS; number++)
            for (int rank = 0; rank < 4; rank++) {
                assert_int_equal(works[number][rank].done, 1);
                ended += works[number][rank].code == HVD_PEER_LOST;
                if (works[number][rank].code != HVD_OK)
                    assert_string_equal(works[number][rank].text, "rank 1 has died");
                work_drop(&works[number][rank]);
            }
        assert_true(ended > 0 || turns > 20);
        world_close(&world);
    }
}

/* A broken link is no longer used: its collectives wait for the abort, those of other channels continue. */
TEST(test_broken_link)
{
    struct world world = world_open(2);
    struct work broken[2], other[2];
    hvd_status cause;
    status_set(&cause, HVD_PEER_LOST, "rank 1 has died");
    world.links->links[0][1][1].broken = true;
    for (int rank = 0; rank < 2; rank++) {
        reduce_init(&broken[rank], &flight_cases[0], rank, 2);
        reduce_init(&other[rank], &flight_cases[1], rank, 2);
        other[rank].collective.channel = 2;
        executor_start(world.executors[rank], &broken[rank].collective);
        executor_start(world.executors[rank], &other[rank].collective);
    }
    assert_false(world_run(&world));
    long calls = world.links->links[0][1][1].calls;
    assert_false(executor_progress(world.executors[0]));
    assert_int_equal(world.links->links[0][1][1].calls, calls);
    assert_false(world.links->links[0][1][1].head.want_read);
    assert_true(world.links->links[1][0][1].head.want_read);
    assert_int_equal(broken[0].done + broken[1].done, 0);
    reduce_check(other, &flight_cases[1], 2);
    for (int rank = 0; rank < 2; rank++) {
        executor_abort(world.executors[rank], &cause);
        assert_int_equal(broken[rank].done, 1);
        assert_int_equal(broken[rank].code, HVD_PEER_LOST);
        work_drop(&broken[rank]);
        work_drop(&other[rank]);
    }
    world_close(&world);
}

static struct link *lookup_nothing(void *owner, int peer, int channel)
{
    (void)owner, (void)peer, (void)channel;
    return NULL;
}

/* Its steps wait, and so does the collective behind it. */
TEST(test_no_link)
{
    struct executor *executor;
    struct work works[2];
    hvd_status cause;
    status_set(&cause, HVD_PEER_LOST, "the peer is lost");
    ASSERT_OK(topology_init(&world_topology, (const int[]){0, 0, 0}, 3, &check_status));
    ASSERT_OK(executor_create(lookup_nothing, NULL, &executor, &check_status));
    for (int i = 0; i < 2; i++) {
        reduce_init(&works[i], &flight_cases[0], 1, 3);
        executor_start(executor, &works[i].collective);
    }
    while (executor_progress(executor))
        ;
    assert_false(executor_idle(executor) || executor_is_ready(executor));
    executor_abort(executor, &cause);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(works[i].done, 1);
        assert_int_equal(works[i].code, HVD_PEER_LOST);
        work_drop(&works[i]);
    }
    executor_destroy(executor);
    topology_free(&world_topology);
}

/* An element of a gate that has moved in part stays closed. Bytes are those that move: half as many for a
 * wire type of half the size. */
TEST(test_open_elements)
{
    static const struct wire_type half = {.exponent = 1};
    struct step steps[] = {{.kind = STEP_SEND, .gate = STEP_NO_GATE, .length = 4},
                           {.kind = STEP_REDUCE, .gate = 0, .length = 4},
                           {.kind = STEP_SEND, .gate = 0, .length = 4},
                           {.kind = STEP_SEND, .gate = 0, .length = 4, .wire = &half},
                           {.kind = STEP_SEND, .gate = 3, .length = 4}};
    struct task tasks[5];
    struct run run = {.tasks = tasks, .element = 4, .exponent = 2};
    for (int i = 0; i < 5; i++)
        task_begin(&tasks[i], &run, &steps[i]);
    tasks[0].done = 15;
    assert_int_equal(task_open(&tasks[0]), 1);
    assert_int_equal(task_open(&tasks[1]), 12);
    assert_int_equal(task_open(&tasks[2]), 12);
    assert_int_equal(task_open(&tasks[3]), 6);
    assert_int_equal(task_open(&tasks[4]), 0);
    tasks[1].done = 12;
    assert_int_equal(task_open(&tasks[1]), 0);
    tasks[3].done = 5;
    assert_int_equal(task_open(&tasks[3]), 1);
    assert_int_equal(task_open(&tasks[4]), 8);
    tasks[3].done = 8;
    assert_true(task_is_done(&tasks[3]));
    assert_int_equal(task_open(&tasks[4]), 16);
}

/* The gate has [100, 200); of every other range, the bytes before its first unfinished one are open. */
TEST(test_gates_of_other_ranges)
{
    static const struct {
        size_t offset, length, finished, open;
    } cases[] = {
        {100, 100, 0, 0},  {100, 100, 40, 40}, {120, 40, 0, 0},    {120, 40, 20, 0},    {120, 40, 50, 30},
        {120, 40, 60, 40}, {120, 40, 99, 40},  {20, 60, 0, 60},    {80, 60, 0, 20},     {80, 60, 10, 30},
        {80, 60, 100, 60}, {180, 60, 0, 0},    {180, 60, 99, 19},  {180, 60, 100, 60},  {200, 8, 99, 0},
        {200, 8, 100, 8},  {80, 200, 0, 20},   {80, 200, 99, 119}, {80, 200, 100, 200}, {150, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct step gate = {.kind = STEP_RECEIVE, .gate = STEP_NO_GATE, .offset = 100, .length = 100};
        struct step step = {.kind = STEP_SEND, .offset = cases[i].offset, .length = cases[i].length};
        struct task tasks[2];
        struct run run = {.tasks = tasks, .element = 1};
        task_begin(&tasks[0], &run, &gate);
        task_begin(&tasks[1], &run, &step);
        tasks[0].done = cases[i].finished;
        assert_int_equal(task_open(&tasks[1]), cases[i].open);
    }
}
