/* small_world.c - runs the executors of all ranks in one thread, turn by turn, and checks results against a
 * plain reference. */
#include "small_world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct vector vector_make(size_t elements, size_t element, int spans)
{
    struct vector vector = {calloc((size_t)spans, sizeof(struct span)), calloc((size_t)spans, sizeof(size_t)),
                            spans, 0};
    for (int i = 0; i < spans; i++) {
        size_t here = i == spans - 1 ? elements : random_below(2 * elements / (size_t)(spans - i) + 1);
        elements -= here;
        vector.spans[i] = (struct span){malloc(here * element + 1), here * element};
    }
    vector_measure(&vector);
    return vector;
}

struct vector vector_like(const struct vector *from)
{
    struct vector vector = {calloc((size_t)from->count, sizeof(struct span)),
                            calloc((size_t)from->count, sizeof(size_t)), from->count, 0};
    for (int i = 0; i < from->count; i++) {
        vector.spans[i] = (struct span){malloc(from->spans[i].length + 1), from->spans[i].length};
        memset(vector.spans[i].data, 0xaa, from->spans[i].length);
    }
    vector_measure(&vector);
    return vector;
}

static void vector_drop(struct vector *vector)
{
    for (int i = 0; i < vector->count; i++)
        free(vector->spans[i].data);
    free(vector->spans);
    free(vector->starts);
}

char *vector_at(const struct vector *vector, size_t offset)
{
    int span = vector_find(vector, offset);
    return vector->spans[span].data + (offset - vector->starts[span]);
}

struct rank_of_world {
    struct links *links;
    int rank, size;
};

static struct rank_of_world ranks[WORLD_RANKS];
struct topology world_topology;

/* Links are opened on first use, which takes some turns. */
static struct link *lookup(void *owner, int peer, int channel)
{
    struct rank_of_world *self = owner;
    return random_below(3) ? NULL : &self->links->links[self->rank][peer][channel].head;
}

/* Any layout of ranks on hosts. */
static void world_place(int size)
{
    int hosts[WORLD_RANKS] = {0}, count = 1 + (int)random_below((size_t)size);
    for (int rank = 0; rank < size; rank++)
        hosts[rank] = (int)random_below((size_t)count);
    ASSERT_OK(topology_init(&world_topology, hosts, size, &check_status));
}

struct world world_open(int size)
{
    size_t capacities[] = {16, 48, 256, PIPE_LIMIT};
    struct world world = {.size = size, .links = links_create(size, capacities[random_below(4)])};
    world_place(size);
    for (int rank = 0; rank < size; rank++) {
        ranks[rank] = (struct rank_of_world){world.links, rank, size};
        ASSERT_OK(executor_create(lookup, &ranks[rank], &world.executors[rank], &check_status));
    }
    return world;
}

bool world_run(struct world *world)
{
    int stalled = 0;
    while (stalled < STALL_LIMIT) {
        bool idle = true, moved = false;
        int first = (int)random_below((size_t)world->size);
        for (int i = 0; i < world->size; i++) {
            struct executor *executor = world->executors[(first + i) % world->size];
            moved |= executor_progress(executor);
            idle &= executor_idle(executor);
        }
        if (idle)
            return true;
        stalled = moved ? 0 : stalled + 1;
    }
    return false;
}

void world_close(struct world *world)
{
    for (int rank = 0; rank < world->size; rank++)
        executor_destroy(world->executors[rank]);
    topology_free(&world_topology);
    links_free(world->links);
}

static void work_done(struct collective *collective, const hvd_status *status)
{
    struct work *work = collective->owner;
    work->done++;
    work->code = status->code;
    memcpy(work->text, status->text, sizeof work->text);
}

const struct algorithm *algorithm_named(hvd_operation operation, const char *name)
{
    const struct algorithm *first = NULL;
    for (int i = 0; i < algorithm_count; i++) {
        const struct algorithm *row = algorithm_table[i];
        if (row->operation != operation)
            continue;
        if (strcmp(row->name, name) == 0)
            return row;
        first = first ? first : row;
    }
    return first;
}

void work_init(struct work *work, hvd_operation operation, const char *algorithm, int rank, int size)
{
    *work = (struct work){0};
    work->collective = (struct collective){.operation = operation,
                                           .reduction = HVD_SUM,
                                           .dtype = HVD_UINT8,
                                           .prescale = 1,
                                           .postscale = 1,
                                           .rank = rank,
                                           .size = size,
                                           .topology = &world_topology,
                                           .channel = 1,
                                           .piece_bytes = 4096,
                                           .algorithm = algorithm_named(operation, algorithm),
                                           .done = work_done,
                                           .owner = work};
}

void work_assert_done(const struct work *work)
{
    if (work->code != HVD_OK)
        print_error("%s\n", work->text);
    assert_int_equal(work->done, 1);
    assert_int_equal(work->code, HVD_OK);
    assert_null(work->collective.scratch);
}

void work_drop(struct work *work)
{
    if (work->output.spans != work->input.spans)
        vector_drop(&work->output);
    vector_drop(&work->input);
}

void world_finish(struct world *world, struct work *works)
{
    links_assert_empty(world->links);
    for (int rank = 0; rank < world->size; rank++)
        work_drop(&works[rank]);
    world_close(world);
}

double contribution(const struct reduce_case *c, int rank, size_t i)
{
    _Alignas(16) char minus_one[16] = {0};
    int value = (int)((i * 7 + (size_t)rank * 5 + i / 11) % 9);
    if (c->dtype == HVD_BOOL)
        return value > 3;
    if (c->reduction == HVD_PRODUCT)
        return value % 2 + 1;
    number_put(c->dtype, minus_one, -1);
    return number_get(c->dtype, minus_one) > 0 ? value : value - 4; /* an unsigned type wraps around */
}

static double in_type(const struct reduce_case *c, double value)
{
    return is_integer(c->dtype) ? trunc(value) : value;
}

double expected(const struct reduce_case *c, int size, size_t i)
{
    double result = 0;
    for (int rank = 0; rank < size; rank++) {
        double value = in_type(c, contribution(c, rank, i) * c->prescale);
        if (rank == 0)
            result = value;
        else if (c->reduction == HVD_MIN)
            result = value < result ? value : result;
        else if (c->reduction == HVD_MAX)
            result = value > result ? value : result;
        else
            result = c->reduction == HVD_PRODUCT ? result * value : result + value;
    }
    return in_type(c, result * c->postscale / (c->reduction == HVD_AVERAGE ? size : 1));
}

void reduce_init(struct work *work, const struct reduce_case *c, int rank, int size)
{
    size_t element = hvd_dtype_size(c->dtype);
    work_init(work, HVD_ALLREDUCE, c->algorithm, rank, size);
    work->input = vector_make(c->elements, element, c->spans);
    work->output = c->in_place ? work->input : vector_like(&work->input);
    for (size_t i = 0; i < c->elements; i++)
        number_put(c->dtype, vector_at(&work->input, i * element), contribution(c, rank, i));
    work->collective.dtype = c->dtype;
    work->collective.reduction = c->reduction;
    work->collective.prescale = c->prescale;
    work->collective.postscale = c->postscale;
    work->collective.input = work->input;
    work->collective.output = work->output;
}

void assert_close(const struct reduce_case *c, double is, double should)
{
    double step = number_step(c->dtype);
    double tolerance = c->reduction == HVD_AVERAGE ? fmax(0.01, step) * fabs(should) : 0;
    if (8 * WORLD_SIZES * step > 2)
        tolerance = step * (16 + fabs(should));
    if (fabs(is - should) > tolerance)
        fail_msg("%s %s %s of %zu: %g instead of %g", c->algorithm, hvd_dtype_name(c->dtype),
                 reduction_name(c->reduction), c->elements, is, should);
}

void reduce_check(const struct work *works, const struct reduce_case *c, int size)
{
    size_t element = hvd_dtype_size(c->dtype);
    for (int rank = 0; rank < size; rank++) {
        work_assert_done(&works[rank]);
        for (size_t i = 0; i < c->elements; i++) {
            const char *is = vector_at(&works[rank].output, i * element);
            _Alignas(16) char should[16];
            number_put(c->dtype, should, expected(c, size, i)); /* wraps integers */
            if (is_integer(c->dtype))
                assert_memory_equal(is, should, element);
            else
                assert_close(c, number_get(c->dtype, is), expected(c, size, i));
            assert_memory_equal(is, vector_at(&works[0].output, i * element), element);
            if (!c->in_place)
                assert_true(number_get(c->dtype, vector_at(&works[rank].input, i * element)) ==
                            contribution(c, rank, i));
        }
    }
}

void reduce_run(const struct reduce_case *c, int size)
{
    struct world world = world_open(size);
    struct work works[WORLD_RANKS];
    for (int rank = 0; rank < size; rank++) {
        reduce_init(&works[rank], c, rank, size);
        executor_start(world.executors[rank], &works[rank].collective);
    }
    assert_true(world_run(&world));
    reduce_check(works, c, size);
    world_finish(&world, works);
}

static char gather_byte(int rank, int tensor, size_t i)
{
    return (char)(rank * 37 + tensor * 11 + (int)(i % 101));
}

hvd_code gathered(struct collective *collective, const uint64_t *sizes, hvd_status *status)
{
    struct work *work = collective->owner;
    size_t total = 0;
    (void)status;
    for (int i = 0; i < collective->size * collective->tensors; i++) {
        work->sizes[i] = sizes[i];
        total += sizes[i];
    }
    assert_int_equal(collective->output.count, 0); /* as it was left at the start */
    work->output = vector_make(total, 1, 3);
    collective->output = work->output;
    return HVD_OK;
}

void gather_init(struct work *work, const char *algorithm, int tensors, int rank, int size)
{
    size_t total = 0, offset = 0;
    work_init(work, HVD_ALLGATHER, algorithm, rank, size);
    for (int tensor = 0; tensor < tensors; tensor++) {
        size_t choices[] = {0, 1, 17, 600};
        work->own_sizes[tensor] = choices[random_below(4)];
        total += work->own_sizes[tensor];
    }
    work->input = vector_make(total, 1, 3);
    for (int tensor = 0; tensor < tensors; tensor++)
        for (size_t i = 0; i < work->own_sizes[tensor]; i++)
            *vector_at(&work->input, offset++) = gather_byte(rank, tensor, i);
    work->collective.tensors = tensors;
    static const uint64_t row_bytes[] = {1, 1, 1, 1};
    work->collective.own_rows = work->own_sizes;
    work->collective.row_bytes = row_bytes;
    work->collective.gathered = gathered;
    work->collective.input = work->input;
}

void gather_check(const struct work *works, int tensors, int size)
{
    for (int self = 0; self < size; self++) {
        size_t offset = 0;
        work_assert_done(&works[self]);
        for (int tensor = 0; tensor < tensors; tensor++)
            for (int rank = 0; rank < size; rank++) {
                assert_int_equal(works[self].sizes[rank * tensors + tensor], works[rank].own_sizes[tensor]);
                for (size_t i = 0; i < works[rank].own_sizes[tensor]; i++)
                    assert_int_equal(*vector_at(&works[self].output, offset++), gather_byte(rank, tensor, i));
            }
        assert_int_equal(offset, works[self].output.length);
    }
}

void broadcast_init(struct work *work, const char *algorithm, int root, size_t bytes, bool in_place, int rank,
                    int size)
{
    work_init(work, HVD_BROADCAST, algorithm, rank, size);
    work->input = vector_make(bytes, 1, 4);
    work->output = in_place ? work->input : vector_like(&work->input);
    for (size_t i = 0; i < bytes; i++)
        *vector_at(&work->input, i) = gather_byte(rank, 0, i);
    work->collective.root = root;
    work->collective.input = work->input;
    work->collective.output = work->output;
}

void broadcast_check(const struct work *works, int root, int size)
{
    for (int rank = 0; rank < size; rank++) {
        work_assert_done(&works[rank]);
        for (size_t i = 0; i < works[rank].output.length; i++)
            assert_int_equal(*vector_at(&works[rank].output, i), gather_byte(root, 0, i));
    }
}
