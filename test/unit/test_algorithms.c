/* test_algorithms.c - every algorithm over a product of sizes, counts, layouts, types and reductions, against
 * a plain reference. */
#include "small_exchanges.h"

#include "device/reduce.h"
#include "device/scaling.h"

#define SPANS 100 /* more than one call of a link takes */

/* The names of all rows of allreduce. */
static const char *reducers[16];
static int reducer_count;

static int find_reducers(void **state)
{
    (void)state;
    for (int i = 0; i < algorithm_count && reducer_count < 16; i++)
        if (algorithm_does(i, HVD_ALLREDUCE, HVD_SUM))
            reducers[reducer_count++] = algorithm_table[i]->name;
    return reducer_count ? 0 : -1;
}

const struct test_hooks test_hooks = {.before_all = find_reducers};

TEST(test_allreduce_sizes)
{
    size_t counts[] = {0, 1, 2, 7, 64, 1001};
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int algorithm = 0; algorithm < reducer_count; algorithm++)
            for (size_t count = 0; count < 6; count++)
                for (int variant = 0; variant < 4; variant++) {
                    struct reduce_case c = {reducers[algorithm], HVD_FLOAT32, HVD_SUM, counts[count],
                                            variant & 1 ? 5 : 1, variant & 2, 1,       1};
                    reduce_run(&c, size);
                }
}

TEST(test_allreduce_types)
{
    for (int algorithm = 0; algorithm < reducer_count; algorithm++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (size_t d = 0; d < DTYPES; d++)
                for (size_t r = 0; r < REDUCTIONS; r++) {
                    struct reduce_case c = {
                        reducers[algorithm], dtypes[d], reductions[r], 203, 3, in_place, 1, 1};
                    if (c.reduction == HVD_ADASUM || !reduction_takes(c.reduction, c.dtype))
                        continue; /* test_adasum.c */
                    reduce_run(&c, 3);
                    reduce_run(&c, 4);
                }
}

TEST(test_allreduce_factors)
{
    static const hvd_dtype some[] = {HVD_INT8, HVD_INT64, HVD_FLOAT16, HVD_FLOAT32};
    static const double factors[][2] = {{2, 1}, {1, 0.5}, {0.5, 2}};
    for (int algorithm = 0; algorithm < reducer_count; algorithm++)
        for (int size = 1; size <= 6; size++)
            for (int d = 0; d < 4; d++)
                for (int f = 0; f < 3; f++)
                    for (int variant = 0; variant < 4; variant++) {
                        struct reduce_case c = {.algorithm = reducers[algorithm],
                                                .dtype = some[d],
                                                .reduction = variant & 1 ? HVD_AVERAGE : HVD_SUM,
                                                .elements = 65,
                                                .spans = 4,
                                                .in_place = variant & 2,
                                                .prescale = factors[f][0],
                                                .postscale = factors[f][1]};
                        reduce_run(&c, size);
                    }
}

/* More parts than one call takes, and more bytes than are computed on at once. */
TEST(test_allreduce_long)
{
    for (int algorithm = 0; algorithm < reducer_count; algorithm++)
        for (int size = 1; size <= 4; size++) {
            struct reduce_case c = {
                reducers[algorithm], HVD_FLOAT64, HVD_AVERAGE, 60001, SPANS, size % 2, 2, 1};
            reduce_run(&c, size);
            c.dtype = HVD_BFLOAT16;
            c.prescale = 1;
            reduce_run(&c, size);
        }
}

/* Any bits at all, with many -0 and NaN among them. */
static void fill_with_bits(const struct vector *vector, size_t part)
{
    static const uint16_t special[] = {0x8000, 0, 0x7fc1, 0xffc2};
    for (size_t i = 0; i < vector->length; i += part) {
        uint16_t bits = random_below(4) ? (uint16_t)random_next() : special[random_below(4)];
        memcpy(vector_at(vector, i), (char *)&bits + sizeof bits - part, part);
    }
}

/* What one rank after the other makes of element i, worked on alone. */
static void fold(const struct work *works, int size, size_t offset, void *result)
{
    const struct collective *collective = &works[0].collective;
    size_t element = hvd_dtype_size(collective->dtype);
    combine_fn combine = reduce_combine(collective->dtype, collective->reduction);
    struct scaling scaling = scaling_of(collective->dtype, collective->reduction, collective->prescale,
                                        collective->postscale, size);
    for (int rank = 0; rank < size; rank++) {
        _Alignas(16) char own[16];
        memcpy(own, vector_at(&works[rank].input, offset), element);
        if (collective->prescale != 1)
            reduce_scale(collective->dtype, own, own, 1, collective->prescale, 1);
        if (rank == 0)
            memcpy(result, own, element);
        else if (scaling.weight != 1)
            reduce_weigh(collective->dtype)(result, result, own, 1, rank > 1 ? 1 : scaling.weight,
                                            scaling.weight);
        else
            combine(result, result, own, 1);
    }
    if (scaling_ends(&scaling))
        scaling_end(&scaling, result, 1);
}

static void check_order(const struct work *works, int size)
{
    const struct collective *collective = &works[0].collective;
    size_t element = hvd_dtype_size(collective->dtype);
    for (size_t at = 0; at < works[0].output.length && size <= collective->algorithm->ordered_ranks;
         at += element) {
        _Alignas(16) char should[16];
        fold(works, size, at, should);
        if (memcmp(vector_at(&works[0].output, at), should, element))
            fail_msg("%s, %s of %s on %d ranks: element %zu is not added up in the order of ranks",
                     collective->algorithm->name, reduction_name(collective->reduction),
                     hvd_dtype_name(collective->dtype), size, at / element);
    }
}

static void check_equal_bits(const struct reduce_case *c, int size)
{
    struct world world = world_open(size);
    struct work works[WORLD_RANKS];
    size_t part = hvd_dtype_size(c->dtype) > 1 ? 2 : 1;
    for (int rank = 0; rank < size; rank++) {
        reduce_init(&works[rank], c, rank, size);
        fill_with_bits(&works[rank].input, part);
        executor_start(world.executors[rank], &works[rank].collective);
    }
    assert_true(world_run(&world));
    for (int rank = 1; rank < size; rank++)
        for (size_t i = 0; i < works[rank].output.length; i += part)
            assert_memory_equal(vector_at(&works[rank].output, i), vector_at(&works[0].output, i), part);
    check_order(works, size);
    for (int rank = 0; rank < size; rank++)
        work_drop(&works[rank]);
    world_close(&world);
}

TEST(test_allreduce_equal_bits)
{
    for (int algorithm = 0; algorithm < reducer_count; algorithm++)
        for (size_t d = 0; d < DTYPES; d++)
            for (size_t r = 0; r < REDUCTIONS; r++)
                for (int size = 1; size <= WORLD_SIZES && reductions[r] != HVD_ADASUM; size++) {
                    struct reduce_case c = {
                        reducers[algorithm], dtypes[d], reductions[r], 333, 2, false, 1, 1};
                    if (is_integer(c.dtype) || !reduction_takes(c.reduction, c.dtype))
                        continue;
                    check_equal_bits(&c, size);
                    c.prescale = 0.3;
                    c.postscale = 1.7;
                    check_equal_bits(&c, size);
                }
}

TEST(test_reducescatter)
{
    static const double factors[][2] = {{1, 1}, {2, 1}, {1, 0.5}};
    size_t counts[] = {0, 1, 9, 1001};
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (size_t d = 0; d < DTYPES; d++)
            for (int count = 0; count < 4; count++)
                for (int variant = 0; variant < 6; variant++) {
                    struct reduce_case c = {.algorithm = (count + variant) % 2 ? "ring" : "hierarchical",
                                            .dtype = dtypes[d],
                                            .reduction = variant & 1 ? HVD_AVERAGE : HVD_SUM,
                                            .elements = counts[count],
                                            .spans = 1 + count,
                                            .prescale = factors[variant / 2][0],
                                            .postscale = factors[variant / 2][1]};
                    if (types_check_reduction(HVD_REDUCESCATTER, c.dtype, c.reduction, factors[variant / 2],
                                              NULL) == HVD_OK)
                        scatter_run(&c, size);
                }
}

TEST(test_allgather)
{
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int turn = 0; turn < 18; turn++) {
            int tensors = 1 + turn % 3;
            struct world world = world_open(size);
            struct work works[WORLD_RANKS];
            for (int rank = 0; rank < size; rank++) {
                gather_init(&works[rank], turn % 2 ? "ring" : "hierarchical", tensors, rank, size);
                executor_start(world.executors[rank], &works[rank].collective);
            }
            assert_true(world_run(&world));
            gather_check(works, tensors, size);
            world_finish(&world, works);
        }
}

static void alltoall_run(int size, const uint64_t *choices, int count)
{
    struct world world = world_open(size);
    static struct work works[WORLD_RANKS];
    for (int rank = 0; rank < size; rank++) {
        uint64_t own_rows[WORLD_RANKS];
        for (int to = 0; to < size; to++)
            own_rows[to] = choices[random_below((size_t)count)];
        exchange_init(&works[rank], own_rows, rank, size);
        executor_start(world.executors[rank], &works[rank].collective);
    }
    assert_true(world_run(&world));
    exchange_check(works, size);
    world_finish(&world, works);
}

/* More ranks than a window has at the end. */
TEST(test_alltoall)
{
    static const uint64_t choices[] = {0, 1, 17, 600};
    for (int size = 1; size <= 17; size++)
        for (int turn = 0; turn < 8; turn++)
            alltoall_run(size, turn < 4 ? &choices[turn] : choices, turn < 4 ? 1 : 4);
    for (int size = 33; size <= WORLD_RANKS; size++)
        alltoall_run(size, choices, 4);
}

TEST(test_broadcast)
{
    size_t sizes[] = {0, 1, 2000};
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int root = 0; root < size; root++)
            for (int variant = 0; variant < 12; variant++) {
                struct world world = world_open(size);
                struct work works[WORLD_RANKS];
                for (int rank = 0; rank < size; rank++) {
                    broadcast_init(&works[rank], variant < 6 ? "tree" : "chain", root, sizes[variant / 2 % 3],
                                   variant & 1, rank, size);
                    executor_start(world.executors[rank], &works[rank].collective);
                }
                assert_true(world_run(&world));
                broadcast_check(works, root, size);
                world_finish(&world, works);
            }
}

TEST(test_barrier)
{
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int late = 0; late < size; late++) {
            struct world world = world_open(size);
            struct work works[WORLD_RANKS];
            for (int rank = 0; rank < size; rank++) {
                work_init(&works[rank], HVD_BARRIER, "auto", rank, size);
                if (rank != late)
                    executor_start(world.executors[rank], &works[rank].collective);
            }
            assert_int_equal(world_run(&world), size == 1); /* all the others wait */
            for (int rank = 0; rank < size; rank++)
                assert_int_equal(works[rank].done, 0);
            executor_start(world.executors[late], &works[late].collective);
            assert_true(world_run(&world));
            for (int rank = 0; rank < size; rank++)
                work_assert_done(&works[rank]);
            links_assert_empty(world.links);
            world_close(&world);
        }
}
