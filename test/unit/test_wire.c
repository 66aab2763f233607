/* test_wire.c - steps whose elements travel in another type: their values, and half as many bytes between
 * hosts.
 */
#include "small_world.h"
#include "wire.h"

/* Bytes that have gone from one host to another. */
static size_t bytes_between_hosts(const struct world *world)
{
    size_t bytes = 0;
    for (int from = 0; from < world->size; from++)
        for (int to = 0; to < world->size; to++)
            if (from != to && !topology_share_host(&world_topology, from, to))
                bytes += world->links->links[from][to][1].out->written;
    return bytes;
}

static void init(struct work *work, const struct reduce_case *c, bool converts, int rank, int size)
{
    reduce_init(work, c, rank, size);
    for (size_t i = 0; i < c->elements; i++) {
        float value = wire_value(rank, i);
        memcpy(vector_at(&work->input, i * sizeof value), &value, sizeof value);
    }
    work->collective.piece_bytes = WIRE_PIECE_BYTES;
    if (converts)
        work->collective.algorithm = &wire_algorithm;
}

static void check(const struct work *works, const struct reduce_case *c, int size)
{
    for (int rank = 0; rank < size; rank++) {
        work_assert_done(&works[rank]);
        for (size_t i = 0; i < c->elements; i++) {
            float is, should = wire_expected(&works[rank].collective, c->elements, i);
            memcpy(&is, vector_at(&works[rank].output, i * sizeof is), sizeof is);
            if (is != should)
                fail_msg("rank %d of %d: element %zu of %zu is %g, not %g", rank, size, i, c->elements,
                         (double)is, (double)should);
        }
    }
}

/* The bytes between the hosts of a layout that follows from `seed`. */
static size_t run(const struct reduce_case *c, bool converts, int size, uint64_t seed)
{
    struct work works[WORLD_RANKS];
    random_state = seed;
    struct world world = world_open(size);
    for (int rank = 0; rank < size; rank++) {
        init(&works[rank], c, converts, rank, size);
        executor_start(world.executors[rank], &works[rank].collective);
    }
    assert_true(world_run(&world));
    size_t bytes = bytes_between_hosts(&world);
    if (converts)
        check(works, c, size);
    world_finish(&world, works);
    return bytes;
}

TEST(floats_travel_as_halves_between_hosts)
{
    static const size_t counts[] = {0, 1, 7, 1001, 40000};
    uint64_t seed = 1;
    for (int size = 1; size <= 7; size++)
        for (size_t count = 0; count < sizeof counts / sizeof *counts - (size != 3); count++)
            for (int variant = 0; variant < 4; variant++) {
                struct reduce_case c = {"hierarchical",        HVD_FLOAT32, HVD_SUM, counts[count],
                                        variant & 1 ? 100 : 1, variant & 2, 1,       1};
                size_t floats = run(&c, false, size, ++seed), halves = run(&c, true, size, seed);
                assert_int_equal(halves * 2, floats);
            }
}
