/* small_exchanges.c - the data of reducescatter and alltoall: uneven blocks, some of them empty. */
#include "small_exchanges.h"

static void scatter_init(struct work *work, const struct reduce_case *c, int rank, int size)
{
    reduce_init(work, c, rank, size);
    work->collective.operation = HVD_REDUCESCATTER;
    work->collective.algorithm = algorithm_named(HVD_REDUCESCATTER, c->algorithm);
    size_t element = hvd_dtype_size(c->dtype);
    for (int i = 0; i < size; i++) /* uneven, some empty */
        work->blocks[i + 1] = i == size - 1 ? c->elements * element
                                            : work->blocks[i] + (size_t)i % 3 * (c->elements / 9) * element;
    work->collective.blocks = work->blocks;
}

/* Only a rank's own block is its result. */
static void scatter_check(const struct work *works, const struct reduce_case *c, int size)
{
    size_t element = hvd_dtype_size(c->dtype);
    for (int rank = 0; rank < size; rank++) {
        const struct work *work = &works[rank];
        work_assert_done(work);
        for (size_t at = work->blocks[rank]; at < work->blocks[rank + 1]; at += element) {
            _Alignas(16) char should[16];
            const char *is = vector_at(&work->output, at);
            number_put(c->dtype, should, expected(c, size, at / element)); /* wraps integers */
            if (is_integer(c->dtype))
                assert_memory_equal(is, should, element);
            else
                assert_close(c, number_get(c->dtype, is), expected(c, size, at / element));
        }
        for (size_t i = 0; i < c->elements; i++)
            assert_true(number_get(c->dtype, vector_at(&work->input, i * element)) ==
                        contribution(c, rank, i));
    }
}

void scatter_run(const struct reduce_case *c, int size)
{
    struct world world = world_open(size);
    struct work works[WORLD_RANKS];
    for (int rank = 0; rank < size; rank++) {
        scatter_init(&works[rank], c, rank, size);
        executor_start(world.executors[rank], &works[rank].collective);
    }
    assert_true(world_run(&world));
    scatter_check(works, c, size);
    world_finish(&world, works);
}

static char exchange_byte(int from, int to, size_t i)
{
    return (char)(from * 31 + to * 7 + (int)(i % 97));
}

/* As `gathered`, in one piece. */
static hvd_code exchanged(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    struct work *work = collective->owner;
    size_t total = 0;
    (void)status;
    for (int rank = 0; rank < collective->size; rank++) {
        work->sizes[rank] = rows[rank];
        total += rows[rank] * collective->row_bytes[0];
    }
    assert_int_equal(collective->output.count, 0);
    work->output = vector_make(total, 1, 1);
    collective->output = work->output;
    return HVD_OK;
}

void exchange_init(struct work *work, const uint64_t *own_rows, int rank, int size)
{
    static const uint64_t row_bytes[] = {3};
    size_t total = 5, offset = 0;
    work_init(work, HVD_ALLTOALL, "pairwise", rank, size);
    for (int to = 0; to < size; to++) {
        work->own_sizes[to] = own_rows[to];
        total += 3 * own_rows[to];
    }
    work->input = vector_make(total, 1, 3);
    for (int to = 0; to < size; to++)
        for (size_t i = 0; i < 3 * own_rows[to]; i++)
            *vector_at(&work->input, offset++) = exchange_byte(rank, to, i);
    work->collective.tensors = 1;
    work->collective.own_rows = work->own_sizes;
    work->collective.row_bytes = row_bytes;
    work->collective.gathered = exchanged;
    work->collective.input = work->input;
}

void exchange_check(const struct work *works, int size)
{
    for (int self = 0; self < size; self++) {
        size_t offset = 0;
        work_assert_done(&works[self]);
        for (int from = 0; from < size; from++) {
            assert_int_equal(works[self].sizes[from], works[from].own_sizes[self]);
            for (size_t i = 0; i < 3 * works[self].sizes[from]; i++)
                assert_int_equal(*vector_at(&works[self].output, offset++), exchange_byte(from, self, i));
        }
        assert_int_equal(offset, works[self].output.length);
    }
}
