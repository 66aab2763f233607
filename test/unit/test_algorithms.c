/* test_algorithms.c - every algorithm over a product of sizes, counts, layouts, types and reductions, against
 * a plain reference. */
#include "small_world.h"

#define SPANS 100 /* more than one call of a link takes */

static const char *const reducers[] = {"doubling", "ring"};

static void test_allreduce_sizes(void **state)
{
    (void)state;
    size_t counts[] = {0, 1, 2, 7, 64, 1001};
    for (int size = 1; size <= WORLD_RANKS; size++)
        for (int algorithm = 0; algorithm < 2; algorithm++)
            for (size_t count = 0; count < 6; count++)
                for (int variant = 0; variant < 4; variant++) {
                    struct reduce_case c = {reducers[algorithm], HVD_FLOAT32, HVD_SUM, counts[count],
                                            variant & 1 ? 5 : 1, variant & 2, 1,       1};
                    reduce_run(&c, size);
                }
}

static void test_allreduce_types(void **state)
{
    (void)state;
    hvd_reduction reductions[] = {
#define REDUCTION(name, text, kernel) HVD_##name,
#include "base/reductions.def"
#undef REDUCTION
    };
    hvd_dtype dtypes[] = {
#define DTYPE(name, text, storage, compute, family) HVD_##name,
#include "base/dtypes.def"
#undef DTYPE
    };
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t r = 0; r < sizeof reductions / sizeof *reductions; r++)
            for (int variant = 0; variant < 4; variant++) {
                struct reduce_case c = {
                    reducers[variant & 1], dtypes[d], reductions[r], 203, 3, variant & 2, 1, 1};
                reduce_run(&c, 3);
                reduce_run(&c, 4);
            }
}

static void test_allreduce_factors(void **state)
{
    (void)state;
    hvd_dtype dtypes[] = {HVD_INT8, HVD_INT64, HVD_FLOAT16, HVD_FLOAT32};
    double factors[][2] = {{2, 1}, {1, 0.5}, {0.5, 2}};
    for (int size = 1; size <= 6; size++)
        for (size_t d = 0; d < 4; d++)
            for (int f = 0; f < 3; f++)
                for (int variant = 0; variant < 8; variant++) {
                    hvd_reduction reduction = variant & 4 ? HVD_AVERAGE : HVD_SUM;
                    struct reduce_case c = {reducers[variant & 1], dtypes[d],     reduction,    65, 4,
                                            variant & 2,           factors[f][0], factors[f][1]};
                    reduce_run(&c, size);
                }
}

/* More parts than one call takes, and more bytes than one look at a link. */
static void test_allreduce_long(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        struct reduce_case c = {reducers[variant & 1],
                                variant & 4 ? HVD_FLOAT64 : HVD_BFLOAT16,
                                HVD_AVERAGE,
                                60001,
                                SPANS,
                                variant & 2,
                                1,
                                1};
        if (variant & 4)
            c.prescale = 2;
        reduce_run(&c, 1 + variant % 4);
    }
}

/* Any bits at all, with NaN and -0 among them: the ranks must agree to the bit. */
static void test_allreduce_equal_bits(void **state)
{
    (void)state;
    hvd_dtype dtypes[] = {HVD_FLOAT16, HVD_FLOAT32, HVD_BFLOAT16};
    hvd_reduction reductions[] = {HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    for (int turn = 0; turn < 96; turn++) {
        int size = 2 + turn % 7;
        struct reduce_case c = {
            reducers[turn & 1], dtypes[turn % 3], reductions[turn % 4], 333, 2, false, 1, 1};
        struct world world = world_open(size);
        struct work works[WORLD_RANKS];
        world_start(&world);
        for (int rank = 0; rank < size; rank++) {
            reduce_init(&works[rank], &c, rank, size);
            for (size_t i = 0; i < works[rank].input.length; i += 2) {
                uint16_t bits = (uint16_t)(random_below(8)   ? random_next()
                                           : random_below(2) ? 0x8000
                                                             : 0x7fc1);
                memcpy(vector_at(&works[rank].input, i), &bits, 2);
            }
            executor_start(world.executors[rank], &works[rank].job);
        }
        assert_true(world_run(&world));
        for (int rank = 0; rank < size; rank++)
            for (size_t i = 0; i < works[rank].output.length; i += 2)
                assert_memory_equal(vector_at(&works[rank].output, i), vector_at(&works[0].output, i), 2);
        for (int rank = 0; rank < size; rank++)
            work_drop(&works[rank]);
        world_close(&world);
    }
}

static void test_allgather(void **state)
{
    (void)state;
    for (int size = 1; size <= WORLD_RANKS; size++)
        for (int turn = 0; turn < 9; turn++) {
            int tensors = 1 + turn % 3;
            struct world world = world_open(size);
            struct work works[WORLD_RANKS];
            world_start(&world);
            for (int rank = 0; rank < size; rank++) {
                gather_init(&works[rank], tensors, rank, size);
                executor_start(world.executors[rank], &works[rank].job);
            }
            assert_true(world_run(&world));
            gather_check(works, tensors, size);
            links_assert_empty(world.links);
            for (int rank = 0; rank < size; rank++)
                work_drop(&works[rank]);
            world_close(&world);
        }
}

static void test_broadcast(void **state)
{
    (void)state;
    size_t sizes[] = {0, 1, 2000};
    for (int size = 1; size <= WORLD_RANKS; size++)
        for (int root = 0; root < size; root++)
            for (int variant = 0; variant < 6; variant++) {
                struct world world = world_open(size);
                struct work works[WORLD_RANKS];
                world_start(&world);
                for (int rank = 0; rank < size; rank++) {
                    broadcast_init(&works[rank], root, sizes[variant / 2], variant & 1, rank, size);
                    executor_start(world.executors[rank], &works[rank].job);
                }
                assert_true(world_run(&world));
                broadcast_check(works, root, size);
                links_assert_empty(world.links);
                for (int rank = 0; rank < size; rank++)
                    work_drop(&works[rank]);
                world_close(&world);
            }
}

static void test_barrier(void **state)
{
    (void)state;
    for (int size = 1; size <= WORLD_RANKS; size++)
        for (int late = 0; late < size; late++) {
            struct world world = world_open(size);
            struct work works[WORLD_RANKS];
            world_start(&world);
            for (int rank = 0; rank < size; rank++) {
                work_init(&works[rank], HVD_BARRIER, "auto", rank, size);
                if (rank != late)
                    executor_start(world.executors[rank], &works[rank].job);
            }
            assert_int_equal(world_run(&world), size == 1); /* all the others wait */
            for (int rank = 0; rank < size; rank++)
                assert_int_equal(works[rank].done, 0);
            executor_start(world.executors[late], &works[late].job);
            assert_true(world_run(&world));
            for (int rank = 0; rank < size; rank++)
                work_assert_done(&works[rank]);
            links_assert_empty(world.links);
            world_close(&world);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_sizes),
        cmocka_unit_test(test_allreduce_types),
        cmocka_unit_test(test_allreduce_factors),
        cmocka_unit_test(test_allreduce_long),
        cmocka_unit_test(test_allreduce_equal_bits),
        cmocka_unit_test(test_allgather),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
