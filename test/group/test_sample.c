/* test_sample.c - a random sample of the whole product: jobs of random size, transport and settings, in which
 * every rank submits the same random operations in an order of its own, many at once.
 *
 * HOROVOD_TEST_SEED repeats a run; HOROVOD_TEST_SAMPLES says how many jobs (`make soak`: many). */
#include "coll/collective.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 30, LARGEST = 8 };

static int64_t pick_rows(uint64_t *state)
{
    static const int64_t limits[] = {1, 2, 9, 70, 3000, 40000};
    return (int64_t)(random_next(state) % (uint64_t)(limits[random_next(state) % 6] + 1));
}

static struct trial draw(uint64_t *state, int index, int size)
{
    static const hvd_operation operations[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST,
                                               HVD_REDUCESCATTER};
    static const hvd_reduction drawn[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    struct trial sample = {.operation = operations[random_next(state) % 5],
                           .rows = pick_rows(state),
                           .width = 1 + (int64_t)(random_next(state) % 3),
                           .root = (int)(random_next(state) % (uint64_t)size),
                           .in_place = random_next(state) % 2};
    sample.given = operation_makes_results(sample.operation) && random_next(state) % 2;
    do {
        sample.type = dtypes[random_next(state) % DTYPES];
        sample.reduction = drawn[random_next(state) % (sample.operation == HVD_REDUCESCATTER ? 2 : 5)];
    } while (!reduction_takes(sample.reduction, sample.type));
    snprintf(sample.name, sizeof sample.name, "%d: %s of %s", index, hvd_dtype_name(sample.type),
             sample.operation == HVD_ALLREDUCE ? "allreduce" : "others");
    return sample;
}

static const char *draw_algorithm(uint64_t *state)
{
    int row;
    do
        row = (int)(random_next(state) % (uint64_t)(algorithm_count + 1));
    while (row < algorithm_count && !algorithm_does(row, HVD_ALLREDUCE, HVD_SUM));
    return row < algorithm_count ? algorithm_table[row]->name : "auto";
}

static void run_samples(struct member *member)
{
    uint64_t state = *(const uint64_t *)member->argument, own = state + (uint64_t)member->rank * 977;
    struct trial samples[OPERATIONS];
    struct running running[OPERATIONS];
    int order[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        samples[i] = draw(&state, i, member->size);
        order[i] = i;
    }
    for (int i = OPERATIONS - 1; i > 0; i--) {
        int j = (int)(random_next(&own) % (uint64_t)(i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int i = 0; i < OPERATIONS; i++)
        trial_start(member, &samples[order[i]], &running[order[i]]);
    for (int i = 0; i < OPERATIONS; i++)
        trial_finish(member, &samples[i], &running[i]);
}

static void run_job(uint64_t seed)
{
    static const char *const transports[] = {"shm", "tcp", "auto"};
    static const char *const names[] = {"a", "b", "c"};
    static const char *const rings[] = {"4096", "65536", "1048576"};
    static const char *const thresholds[] = {"0", "5000", "134217728"};
    static const char *const eager[] = {"0", "100", "4096"};
    static const char *const caches[] = {"0", "5", "1024"};
    static const char *const pieces[] = {"4096", "524288"};
    static const char *const cycles[] = {"0", "0.3"};
    static const char *const paths[] = {"auto", "ring", "nontemporal", "direct"};
    uint64_t state = seed;
    int size = 1 + (int)(random_next(&state) % LARGEST);
    const char *const settings[] = {"shm_ring_bytes",
                                    rings[random_next(&state) % 3],
                                    "allreduce_algorithm",
                                    draw_algorithm(&state),
                                    "ring_piece_bytes",
                                    pieces[random_next(&state) % 2],
                                    "fusion_threshold",
                                    thresholds[random_next(&state) % 3],
                                    "cache_capacity",
                                    caches[random_next(&state) % 3],
                                    "eager_threshold",
                                    eager[random_next(&state) % 3],
                                    "cycle_time_ms",
                                    cycles[random_next(&state) % 2],
                                    "shm_path",
                                    paths[random_next(&state) % 4],
                                    NULL};
    uint64_t transport = random_next(&state) % 3;
    const char *hosts[LARGEST] = {0};
    for (int rank = 0; transport == 2 && rank < size; rank++)
        hosts[rank] = names[random_next(&state) % 3];
    struct group_options options = {
        .transport = transports[transport], .settings = settings, .hosts = transport == 2 ? hosts : NULL};
    group_run(&options, size, run_samples, &state);
}

TEST(test_sample)
{
    const char *jobs = getenv("HOROVOD_TEST_SAMPLES");
    for (long i = 0; i < (jobs ? strtol(jobs, NULL, 10) : 40); i++)
        run_job(test_seed() + (uint64_t)i);
}
