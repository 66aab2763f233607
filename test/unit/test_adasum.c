/* test_adasum.c - Adasum on 1 to 8 ranks against its formula in float64, tensor by tensor and in the order of
 * the tree; what the formula promises; and the kernels. */
#include "device/adasum.h"
#include "small_world.h"

#include "adasum.h"
#include "device/reduce.h"

#include <stdlib.h>

#define TENSORS  5
#define ELEMENTS 40000

static const hvd_dtype floats[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};
/* Of one rounding, relative to the largest number of a tensor. */
static const double steps[] = {1.0 / 1024, 1.0 / 128, 1.0 / (1 << 22), 1e-15};

struct adasum_case {
    int type, size;
    size_t lengths[TENSORS]; /* elements of each tensor */
    bool in_place;
    double prescale, postscale;
};

static size_t elements_of(const struct adasum_case *c)
{
    size_t elements = 0;
    for (int tensor = 0; tensor < TENSORS; tensor++)
        elements += c->lengths[tensor];
    return elements;
}

static struct vector tensors_make(const struct adasum_case *c)
{
    size_t element = hvd_dtype_size(floats[c->type]);
    struct vector vector = {calloc(TENSORS, sizeof(struct span)), calloc(TENSORS, sizeof(size_t)), TENSORS,
                            0};
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        size_t bytes = c->lengths[tensor] * element;
        vector.spans[tensor] = (struct span){malloc(bytes + 1), bytes};
    }
    vector_measure(&vector);
    return vector;
}

/* ---- the reference ---------------------------------------------------------------------------------- */

static double operands[WORLD_RANKS][ELEMENTS]; /* what the ranks give; the first becomes the result */

static void merge(const struct adasum_case *c, int lower, int upper)
{
    size_t start = 0;
    for (int tensor = 0; tensor < TENSORS; tensor++) {
        adasum_merge(operands[lower] + start, operands[upper] + start, c->lengths[tensor]);
        start += c->lengths[tensor];
    }
}

static struct adasum_order order; /* in the world that was run */

static void merge_all(const struct adasum_case *c)
{
    for (int i = 0; i < order.count; i++)
        merge(c, order.merges[i].lower, order.merges[i].upper);
}

/* ---- running ---------------------------------------------------------------------------------------- */

typedef double (*value_fn)(int rank, size_t i);

static struct work works[WORLD_RANKS];

static void fill(const struct adasum_case *c, int rank, value_fn value)
{
    size_t element = hvd_dtype_size(floats[c->type]);
    for (size_t i = 0; i < elements_of(c); i++) {
        char *at = vector_at(&works[rank].input, i * element);
        number_put(floats[c->type], at, value(rank, i));
        operands[rank][i] = number_get(floats[c->type], at) * c->prescale;
    }
}

static bool by_two; /* two ranks a host, instead of any layout */

static void place_by_two(int size)
{
    int hosts[WORLD_RANKS];
    for (int rank = 0; rank < size; rank++)
        hosts[rank] = rank / 2;
    topology_free(&world_topology);
    ASSERT_OK(topology_init(&world_topology, hosts, size, &check_status));
}

static void run(const struct adasum_case *c, value_fn value)
{
    struct world world = world_open(c->size);
    if (by_two)
        place_by_two(c->size);
    for (int rank = 0; rank < c->size; rank++) {
        struct work *work = &works[rank];
        work_init(work, HVD_ALLREDUCE, "auto", rank, c->size);
        work->input = tensors_make(c);
        work->output = c->in_place ? work->input : vector_like(&work->input);
        fill(c, rank, value);
        int row = algorithm_choose(HVD_ALLREDUCE, HVD_ADASUM, 0, &world_topology, 0,
                                   &(struct settings){.allreduce_algorithm = "auto"});
        work->collective.algorithm = algorithm_table[row];
        work->collective.reduction = HVD_ADASUM;
        work->collective.dtype = floats[c->type];
        work->collective.prescale = c->prescale;
        work->collective.postscale = c->postscale;
        work->collective.input = work->input;
        work->collective.output = work->output;
        executor_start(world.executors[rank], &work->collective);
    }
    assert_true(world_run(&world));
    links_assert_empty(world.links);
    for (int rank = 0; rank < c->size; rank++)
        work_assert_done(&works[rank]);
    order = adasum_order_of(&world_topology);
    world_close(&world);
}

static void drop(const struct adasum_case *c)
{
    for (int rank = 0; rank < c->size; rank++)
        work_drop(&works[rank]);
}

static double result_at(const struct adasum_case *c, int rank, size_t i)
{
    hvd_dtype dtype = floats[c->type];
    return number_get(dtype, vector_at(&works[rank].output, i * hvd_dtype_size(dtype)));
}

static void check_equal_on_all(const struct adasum_case *c)
{
    for (int rank = 1; rank < c->size; rank++)
        for (int tensor = 0; tensor < TENSORS; tensor++)
            assert_memory_equal(works[rank].output.spans[tensor].data, works[0].output.spans[tensor].data,
                                works[0].output.spans[tensor].length);
}

static void check_inputs_untouched(const struct adasum_case *c, value_fn value)
{
    hvd_dtype dtype = floats[c->type];
    for (int rank = 0; rank < c->size && !c->in_place; rank++)
        for (size_t i = 0; i < elements_of(c); i++) {
            _Alignas(16) char should[16];
            number_put(dtype, should, value(rank, i));
            assert_memory_equal(vector_at(&works[rank].input, i * hvd_dtype_size(dtype)), should,
                                hvd_dtype_size(dtype));
        }
}

/* Random numbers between -1 and 1. The first ones, which may be a whole tensor, have one sign: the formula is
 * discontinuous where an operand is zero except for rounding. */
static double any_value(int rank, size_t i)
{
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 29) * 0x94d049bb133111ebu;
    double value = ((double)(bits >> 58) - 31) / 32;
    return i < TENSORS ? fabs(value) + 1.0 / 64 : value;
}

static void check(const struct adasum_case *c)
{
    run(c, any_value);
    merge_all(c);
    double tolerance = steps[c->type] * 6 * c->prescale * c->postscale * c->size;
    for (size_t i = 0; i < elements_of(c); i++)
        if (!(fabs(result_at(c, 0, i) - operands[0][i] * c->postscale) <= tolerance))
            fail_msg("%s on %d ranks, element %zu: %g instead of %g", hvd_dtype_name(floats[c->type]),
                     c->size, i, result_at(c, 0, i), operands[0][i] * c->postscale);
    check_equal_on_all(c);
    check_inputs_untouched(c, any_value);
    drop(c);
}

/* ---- tests ------------------------------------------------------------------------------------------ */

TEST(test_formula)
{
    static const size_t layouts[][TENSORS] = {{0}, {0, 1}, {3, 0, 1}, {1, 1, 1, 1, 1}, {64, 7, 0, 900, 33}};
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int type = 0; type < 4; type++)
            for (size_t layout = 0; layout < sizeof layouts / sizeof *layouts; layout++)
                for (int variant = 0; variant < 4; variant++) {
                    struct adasum_case c = {
                        type, size, {0}, variant & 1, variant & 2 ? 2 : 1, variant == 1 ? 0.5 : 1};
                    memcpy(c.lengths, layouts[layout], sizeof c.lengths);
                    check(&c);
                }
}

/* Several chunks of each step. */
TEST(test_long)
{
    for (int size = 2; size <= 5; size++) {
        struct adasum_case c = {3, size, {10, 39000, 0, 1, 17}, size % 2, 1, 1};
        check(&c);
    }
}

/* Each rank has numbers where the others have zeros. */
static double orthogonal_value(int rank, size_t i)
{
    return i % WORLD_SIZES == (size_t)rank ? (double)(i % 7) - 3 : 0;
}

TEST(test_orthogonal_is_sum)
{
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int type = 0; type < 4; type++) {
            struct adasum_case c = {type, size, {1, 8, 100, 0, 31}, false, 1, 1};
            run(&c, orthogonal_value);
            for (size_t i = 0; i < elements_of(&c); i++) {
                double sum = 0;
                for (int rank = 0; rank < size; rank++)
                    sum += orthogonal_value(rank, i);
                assert_true(result_at(&c, 0, i) == sum);
            }
            drop(&c);
        }
}

static double equal_value(int rank, size_t i)
{
    (void)rank;
    return (double)(i % 9) - 4;
}

TEST(test_equal_is_average)
{
    for (int size = 1; size <= WORLD_SIZES; size++)
        for (int type = 0; type < 4; type++) {
            struct adasum_case c = {type, size, {5, 0, 77, 400, 1}, true, 1, 1};
            run(&c, equal_value);
            for (size_t i = 0; i < elements_of(&c); i++)
                assert_true(result_at(&c, size - 1, i) == equal_value(0, i));
            drop(&c);
        }
}

/* A tensor with a NaN becomes NaN; the one beside it does not notice. */
static double nan_value(int rank, size_t i)
{
    return rank == 0 && i == 2 ? NAN : equal_value(rank, i);
}

TEST(test_nan_stays_in_its_tensor)
{
    for (int size = 2; size <= WORLD_SIZES; size++) {
        struct adasum_case c = {2, size, {50, 50, 0, 0, 3}, false, 1, 1};
        run(&c, nan_value);
        for (size_t i = 0; i < elements_of(&c); i++) {
            double result = result_at(&c, size - 1, i);
            assert_true(i < 50 ? result != result : result == equal_value(0, i));
        }
        check_equal_on_all(&c);
        drop(&c);
    }
}

/* The result does not depend on how the bytes arrive: the links of each run move other amounts at other
 * times. */
TEST(test_same_bits_in_every_run)
{
    static float first[ELEMENTS];
    by_two = true;
    for (int size = 2; size <= 6; size++) {
        struct adasum_case c = {2, size, {999, 1, 0, 30000, 50}, false, 1, 1};
        for (int turn = 0; turn < 3; turn++) {
            run(&c, any_value);
            for (size_t i = 0; i < elements_of(&c); i++) {
                float is = (float)result_at(&c, 0, i);
                assert_true(turn == 0 || memcmp(&first[i], &is, sizeof is) == 0);
                first[i] = is;
            }
            drop(&c);
        }
    }
    by_two = false;
}

/* Every length around the widths of registers, from any place an element may have. */
static void check_kernels(int type, size_t count, size_t at)
{
    static _Alignas(16) char a[8 * 140], b[8 * 140], result[8 * 140];
    hvd_dtype dtype = floats[type];
    size_t element = hvd_dtype_size(dtype);
    struct products is = {1, 2, 3}, should = {1, 2, 3};
    for (size_t i = 0; i < count; i++) {
        double x = any_value(1, i), y = any_value(2, i);
        number_put(dtype, a + (at + i) * element, x);
        number_put(dtype, b + i * element, y);
        should.lower += x * x;
        should.upper += y * y;
        should.mixed += x * y;
    }
    adasum_multiply(dtype, a + at * element, b, count, &is);
    assert_true(fabs(is.lower - should.lower) < 1e-12 && fabs(is.upper - should.upper) < 1e-12 &&
                fabs(is.mixed - should.mixed) < 1e-12);
    memset(result, 0x5a, sizeof result);
    adasum_add(dtype, result, a + at * element, b, count, 0.5, -2);
    for (size_t i = 0; i < count; i++)
        assert_true(fabs(number_get(dtype, result + i * element) - any_value(1, i) / 2 +
                         2 * any_value(2, i)) <= 2 * steps[type]);
    assert_int_equal(result[count * element], 0x5a);
}

TEST(test_kernels)
{
    for (int type = 0; type < 4; type++)
        for (size_t count = 0; count <= 130; count++)
            for (size_t at = 0; at < 3; at++)
                check_kernels(type, count, at);
}
