/* test_pattern.c - the arithmetic of which ranks exchange which range, and that every algorithm keeps to it:
 * a rank expects exactly what the other sends, and all algorithms except alltoall use the same few links of
 * each rank. */
#include "base/types.h"
#include "coll/collective.h"
#include "coll/pattern.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

#define SIZES 64

TEST(test_blocks)
{
    size_t lengths[] = {0, 8, 24, 1000, 4096, 65536, 1000008};
    for (int parts = 1; parts <= SIZES; parts++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t element = 1; element <= 8; element *= 2) {
                size_t next = 0, longest = 0, shortest = SIZE_MAX;
                for (int part = 0; part < parts; part++) {
                    struct range block = pattern_block(lengths[i] / element, element, parts, part);
                    assert_int_equal(block.offset, next);
                    next += block.length;
                    longest = block.length > longest ? block.length : longest;
                    shortest = block.length < shortest ? block.length : shortest;
                }
                assert_int_equal(next, lengths[i] / element);
                assert_true((longest - shortest) * element <= 2 * 64);
                struct range last = pattern_block(lengths[i] / element, element, parts, parts - 1);
                if (lengths[i] > (size_t)parts * 1024)
                    assert_int_equal(last.offset * element % 64, 0);
            }
}

TEST(test_rows)
{
    for (int parts = 1; parts <= SIZES; parts++)
        for (size_t rows = 0; rows < 200; rows += 7) {
            size_t next = 0;
            for (int part = 0; part < parts; part++) {
                struct range own = pattern_rows(rows, parts, part);
                assert_int_equal(own.offset, next);
                assert_int_equal(own.length, rows / (size_t)parts + ((size_t)part < rows % (size_t)parts));
                next += own.length;
            }
            assert_int_equal(next, rows);
        }
}

TEST(test_numbers)
{
    assert_int_equal(pattern_shift(0, -1, 5), 4);
    assert_int_equal(pattern_shift(4, 1, 5), 0);
    assert_int_equal(pattern_shift(3, -13, 5), 0);
    int rounds[] = {0, 1, 2, 2, 3, 3, 3, 3, 4}, powers[] = {1, 2, 2, 4, 4, 4, 4, 8, 8};
    for (int size = 1; size <= 9; size++) {
        assert_int_equal(pattern_rounds(size), rounds[size - 1]);
        assert_int_equal(pattern_power(size), powers[size - 1]);
    }
    assert_int_equal(pattern_rounds(16777216), 24);
    assert_int_equal(pattern_power(16777216), 16777216);
}

/* Every rank but the root has one parent, whose children name it, and all hang under the root. */
TEST(test_tree)
{
    for (int size = 1; size <= SIZES; size++)
        for (int root = 0; root < size; root++) {
            int edges = 0;
            for (int rank = 0; rank < size; rank++) {
                int children[PATTERN_CHILD_LIMIT], depth = 0;
                int count = pattern_tree_children(rank, root, size, children);
                for (int i = 0; i < count; i++)
                    assert_int_equal(pattern_tree_parent(children[i], root, size), rank);
                edges += count;
                for (int up = rank; up != root; depth++)
                    up = pattern_tree_parent(up, root, size);
                assert_true(depth <= pattern_rounds(size));
            }
            assert_int_equal(pattern_tree_parent(root, root, size), -1);
            assert_int_equal(edges, size - 1);
        }
}

/* The layouts that all sizes are tried with: one host, ranks of two hosts in turn, hosts of uneven sizes. */
enum { LAYOUTS = 3 };

static struct topology layout_of(int layout, int size)
{
    struct topology topology;
    int hosts[SIZES];
    for (int rank = 0; rank < size; rank++)
        hosts[rank] = layout == 0 ? 0 : layout == 1 ? rank % 2 : rank * rank % 5;
    ASSERT_OK(topology_init(&topology, hosts, size, &check_status));
    return topology;
}

/* ---- the plans of all algorithms ---------------------------------------------------------------------- */

/* A running hash of the lengths that one rank sends to another and the other expects, in order. */
static uint64_t sent[SIZES][SIZES], expected[SIZES][SIZES];

static bool talks[SIZES][SIZES]; /* in any algorithm but alltoall */

static hvd_code gathered(struct collective *collective, const uint64_t *sizes, hvd_status *status)
{
    (void)sizes, (void)status;
    collective->output = (struct vector){0};
    return HVD_OK;
}

/* Blocks of 0, 1, 2 or 3 elements for each rank; they end before the vector does. */
static const size_t *blocks_of(int size)
{
    static size_t blocks[SIZES + 1];
    for (int rank = 0; rank < size; rank++)
        blocks[rank + 1] = blocks[rank] + (size_t)(rank * 5 % 4) * sizeof(float);
    return blocks;
}

static struct collective collective_of(const struct algorithm *algorithm, int root, int rank,
                                       const struct topology *topology, const struct vector *vector,
                                       double prescale)
{
    int size = topology->size;
    static uint64_t own_rows[SIZES];
    static const uint64_t row_bytes[] = {1, 1};
    own_rows[0] = (uint64_t)rank * 3 + 1;
    own_rows[1] = rank % 3 ? 4 : 0;
    for (int i = 0; algorithm->operation == HVD_ALLTOALL && i < size; i++)
        own_rows[i] = 3;
    return (struct collective){.operation = algorithm->operation,
                               .algorithm = algorithm,
                               .piece_bytes = 512 << 10,
                               .reduction = algorithm->adasum ? HVD_ADASUM : HVD_SUM,
                               .dtype = operation_reduces(algorithm->operation) ? HVD_FLOAT32 : HVD_UINT8,
                               .prescale = prescale,
                               .postscale = 1,
                               .root = root,
                               .rank = rank,
                               .size = size,
                               .topology = topology,
                               .input = *vector,
                               .output = *vector,
                               .tensors = 2,
                               .own_rows = own_rows,
                               .row_bytes = row_bytes,
                               .gathered = gathered,
                               .blocks = blocks_of(size)};
}

/* Gates are earlier steps of a range that covers the step's. */
static void check_step(const struct schedule *schedule, int index)
{
    const struct step *step = &schedule->steps[index];
    if (step->gate == STEP_NO_GATE)
        return;
    assert_in_range(step->gate, 0, index - 1);
    const struct step *gate = &schedule->steps[step->gate];
    assert_in_range(step->offset, gate->offset, gate->offset + gate->length);
    assert_in_range(step->offset + step->length, gate->offset, gate->offset + gate->length);
}

static void record(const struct schedule *schedule, const struct collective *collective)
{
    int rank = collective->rank;
    for (int i = 0; i < schedule->count; i++) {
        const struct step *step = &schedule->steps[i];
        check_step(schedule, i);
        if (step_is_local(step) || !step->length)
            continue;
        assert_in_range(step->peer, 0, collective->size - 1);
        assert_int_not_equal(step->peer, rank);
        talks[rank][step->peer] |= collective->operation != HVD_ALLTOALL;
        uint64_t *hash = step->kind == STEP_SEND ? &sent[rank][step->peer] : &expected[step->peer][rank];
        *hash = *hash * 1000003 + step->length;
    }
}

/* Later phases of allgather and alltoall need the lengths of all ranks, as the earlier ones would have
 * brought them; alltoall's are equal. */
static void fill_lengths(const struct collective *collective)
{
    if (!collective->output.count)
        return;
    uint64_t *lengths = (uint64_t *)(void *)collective->output.spans[0].data;
    for (int rank = 0; collective->operation == HVD_ALLGATHER && rank < collective->size; rank++) {
        lengths[2 * rank] = (uint64_t)rank * 3 + 1;
        lengths[2 * rank + 1] = rank % 3 ? 4 : 0;
    }
    for (size_t i = 0;
         collective->operation == HVD_ALLTOALL && i < collective->output.length / sizeof *lengths; i++)
        lengths[i] = 3;
}

static void check_plans(const struct algorithm *algorithm, int root, const struct topology *topology,
                        double prescale)
{
    static char memory[4 * 333];
    struct span span = {memory, sizeof memory};
    size_t start;
    struct vector vector = {&span, &start, 1, 0};
    struct schedule schedule = {0};
    vector_measure(&vector);
    memset(sent, 0, sizeof sent);
    memset(expected, 0, sizeof expected);
    for (int rank = 0; rank < topology->size; rank++) {
        struct collective collective = collective_of(algorithm, root, rank, topology, &vector, prescale);
        bool more = true;
        for (int phase = 0; more; phase++) {
            schedule_clear(&schedule);
            assert_int_equal(algorithm_plan(&collective, phase, &schedule, &more, NULL), HVD_OK);
            assert_false(schedule.failed);
            record(&schedule, &collective);
            if (more)
                fill_lengths(&collective);
        }
        free(collective.scratch);
    }
    schedule_free(&schedule);
    assert_memory_equal(sent, expected, sizeof sent);
}

/* Links are opened on first use: few for each rank to other hosts, as all algorithms use the same; the
 * hierarchical one adds two. */
static void check_links(const struct topology *topology)
{
    int size = topology->size;
    for (int rank = 0; rank < size; rank++) {
        int links = 0;
        for (int other = 0; other < size; other++)
            links += talks[rank][other] && !topology_share_host(topology, rank, other);
        assert_in_range(links, 0, 2 * pattern_rounds(size) + 4);
    }
}

static void check_all_plans(const struct topology *topology)
{
    memset(talks, 0, sizeof talks);
    for (int i = 0; i < algorithm_count; i++) {
        bool rooted = algorithm_table[i]->operation == HVD_BROADCAST;
        for (int root = 0; root < (rooted ? topology->size : 1); root++)
            check_plans(algorithm_table[i], root, topology, 1);
        check_plans(algorithm_table[i], 0, topology, 0.5);
    }
    check_links(topology);
}

TEST(test_plans)
{
    for (int size = 1; size <= SIZES; size++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            struct topology topology = layout_of(layout, size);
            check_all_plans(&topology);
            topology_free(&topology);
        }
}

static bool by_hosts = true; /* as both settings say */

static const char *chosen_on(int layout, int size, hvd_operation operation, hvd_reduction reduction,
                             uint64_t bytes, const char *forced)
{
    struct settings settings = {.allreduce_algorithm = forced,
                                .latency_threshold = 1000,
                                .hierarchical_allreduce = by_hosts,
                                .hierarchical_allgather = by_hosts};
    struct topology topology = layout_of(layout, size);
    int row = algorithm_choose(operation, reduction, bytes, &topology, 1000, &settings);
    topology_free(&topology);
    assert_true(algorithm_does(row, operation, reduction));
    return algorithm_table[row]->name;
}

static const char *chosen_for(hvd_operation operation, hvd_reduction reduction, uint64_t bytes,
                              const char *forced)
{
    return chosen_on(0, 4, operation, reduction, bytes, forced);
}

static const char *chosen(hvd_operation operation, uint64_t bytes, const char *forced)
{
    return chosen_for(operation, HVD_SUM, bytes, forced);
}

TEST(test_choice)
{
    assert_string_equal(chosen(HVD_ALLREDUCE, 1000, "auto"), "doubling");
    assert_string_equal(chosen(HVD_ALLREDUCE, 1001, "auto"), "ring");
    assert_string_equal(chosen(HVD_ALLREDUCE, 1, "ring"), "ring");
    assert_string_equal(chosen_on(1, 4, HVD_ALLREDUCE, HVD_SUM, 1001, "auto"), "hierarchical");
    assert_string_equal(chosen_on(1, 4, HVD_ALLREDUCE, HVD_SUM, 1000, "auto"), "doubling");
    assert_string_equal(chosen_on(1, 2, HVD_ALLREDUCE, HVD_SUM, 1001, "auto"), "ring");
    assert_string_equal(chosen(HVD_ALLREDUCE, 100000, "doubling"), "doubling");
    assert_string_equal(chosen(HVD_BROADCAST, 100000, "doubling"), "tree");
    assert_string_equal(chosen_on(1, 4, HVD_BROADCAST, HVD_SUM, 2000, "auto"), "tree");
    assert_string_equal(chosen_on(1, 4, HVD_BROADCAST, HVD_SUM, 2002, "auto"), "chain");
    assert_string_equal(chosen_on(1, 2, HVD_BROADCAST, HVD_SUM, 2002, "auto"), "chain");
    assert_string_equal(chosen(HVD_ALLGATHER, 1, "auto"), "ring");
    assert_string_equal(chosen_on(1, 2, HVD_ALLGATHER, HVD_SUM, 1, "auto"), "ring");
    assert_string_equal(chosen_on(1, 4, HVD_ALLGATHER, HVD_SUM, 1, "ring"), "hierarchical");
    assert_string_equal(chosen_on(1, 4, HVD_REDUCESCATTER, HVD_SUM, 1, "auto"), "hierarchical");
#define OPERATION(name, ...)                                                                                 \
    if (operation_table[HVD_##name].absence != ABSENCE_never)                                                \
        chosen(HVD_##name, 0, "auto");
#include "base/operations.def"
#undef OPERATION
    assert_string_equal(chosen_for(HVD_ALLREDUCE, HVD_ADASUM, 10, "auto"), "adasum");
    assert_string_equal(chosen_for(HVD_ALLREDUCE, HVD_ADASUM, 10, "ring"), "adasum");
    assert_string_equal(chosen_for(HVD_ALLREDUCE, HVD_MAX, 10, "adasum"), "doubling");
    assert_false(algorithm_does(algorithm_count, HVD_ALLREDUCE, HVD_SUM));
    assert_false(algorithm_does(-1, HVD_ALLREDUCE, HVD_SUM));
}

TEST(settings_forbid_ways_by_hosts)
{
    by_hosts = false;
    assert_string_equal(chosen_on(1, 4, HVD_ALLREDUCE, HVD_SUM, 1001, "auto"), "ring");
    assert_string_equal(chosen_on(1, 4, HVD_ALLREDUCE, HVD_SUM, 1001, "hierarchical"), "hierarchical");
    assert_string_equal(chosen_on(1, 4, HVD_REDUCESCATTER, HVD_SUM, 1, "auto"), "ring");
    assert_string_equal(chosen_on(1, 4, HVD_ALLGATHER, HVD_SUM, 1, "auto"), "ring");
    assert_string_equal(chosen_on(1, 4, HVD_BROADCAST, HVD_SUM, 4000, "auto"), "tree");
    by_hosts = true;
}

TEST(the_choice_as_text)
{
    struct settings settings = {
        .allreduce_algorithm = "auto", .latency_threshold = 1000, .hierarchical_allreduce = true};
    struct topology topology = layout_of(1, 4);
    char text[1024];
    algorithm_describe(&topology, &settings, text, sizeof text);
    topology_free(&topology);
    static const char start[] =
        "allreduce: doubling, of 1024 bytes hierarchical; allreduce (Adasum): adasum; "
        "allgather: ring; broadcast: tree; barrier: dissemination; "
        "reducescatter: hierarchical; alltoall: pairwise";
    assert_memory_equal(text, start, sizeof start - 1); /* in the order of the table */
}

TEST(test_piece_exponent)
{
    static const struct {
        uint64_t bytes;
        unsigned exponent;
    } cases[] = {{0, 12}, {4096, 12}, {4097, 13}, {512 << 10, 19}, {1 << 30, 30}, {UINT64_MAX, 30}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(piece_exponent_of(cases[i].bytes), cases[i].exponent);
}

/* Two ranks have one order only. */
TEST(test_deterministic_choice)
{
    struct settings settings = {.allreduce_algorithm = "auto",
                                .latency_threshold = 1000,
                                .deterministic = true,
                                .hierarchical_allreduce = true};
    static const char *const rows[][2] = {{"doubling", "ring"}, {"chain", "chain"}};
    for (int more = 0; more < 2; more++)
        for (int size = more ? 3 : 1; size <= (more ? SIZES : 2); size++)
            for (int is_long = 0; is_long < 2; is_long++) {
                struct topology topology = layout_of(1, size);
                int row = algorithm_choose(HVD_ALLREDUCE, HVD_SUM, is_long ? 1001 : 1000, &topology, 1000,
                                           &settings);
                assert_string_equal(algorithm_table[row]->name, rows[more][is_long]);
                topology_free(&topology);
            }
    struct topology topology = layout_of(1, 4);
    int row = algorithm_choose(HVD_ALLREDUCE, HVD_ADASUM, 1, &topology, 1000, &settings);
    assert_string_equal(algorithm_table[row]->name, "adasum");
    row = algorithm_choose(HVD_REDUCESCATTER, HVD_SUM, 1, &topology, 1000, &settings);
    assert_string_equal(algorithm_table[row]->name, "hierarchical");
    topology_free(&topology);
}

static hvd_code check_settings(const char *name, bool deterministic, int size, hvd_status *status)
{
    struct settings settings = {.allreduce_algorithm = name, .deterministic = deterministic, .size = size};
    return algorithm_check_settings(&settings, status);
}

TEST(test_names)
{
    hvd_status status;
    ASSERT_OK(check_settings("auto", false, 4, &check_status));
    assert_int_equal(check_settings("rings", false, 4, &status), HVD_INVALID_ARGUMENT);
    const char *next =
        strstr(status.text, "=rings: allreduce on 4 ranks has no such algorithm; use one of: auto");
    assert_non_null(next);
    for (int i = 0; i < algorithm_count; i++) {
        if (!algorithm_does(i, HVD_ALLREDUCE, HVD_SUM))
            continue;
        ASSERT_OK(check_settings(algorithm_table[i]->name, false, 4, &check_status));
        ASSERT_OK(check_settings(algorithm_table[i]->name, true, 2, &check_status));
        next = strstr(next, algorithm_table[i]->name);
        assert_non_null(next);
    }
    assert_int_equal(check_settings("tree", false, 4, NULL), HVD_INVALID_ARGUMENT);
    assert_int_equal(check_settings("adasum", false, 4, NULL), HVD_INVALID_ARGUMENT);
    ASSERT_OK(check_settings("auto", true, 3, &check_status));
    ASSERT_OK(check_settings("chain", true, 3, &check_status));
    assert_int_equal(check_settings("ring", true, 3, &status), HVD_INVALID_ARGUMENT);
    assert_string_equal(
        status.text,
        "HOROVOD_ALLREDUCE_ALGORITHM=ring: allreduce on 3 ranks has no such algorithm that adds in the order "
        "of ranks, as HOROVOD_DETERMINISTIC asks; use one of: auto, chain");
}
