/* test_deterministic.c - the deterministic mode: whatever is fused with what, in whatever order it is
 * submitted, every element of an allreduce has the bits of ((rank 0 + rank 1) + rank 2) + ..., worked on
 * alone; and reducescatter and Adasum have the bits that they have without fusion. */
#include "values.h"

#include "device/reduce.h"
#include "device/scaling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATIONS = 24, JOINED_FROM = 18, TENSORS = 3, LONG = 30000 };

/* One request, the same on all ranks, out of a seed; from JOINED_FROM on the last rank has joined. */
struct sample {
    hvd_dtype type;
    hvd_request request;
    int64_t shapes[TENSORS][1];
    hvd_tensor inputs[TENSORS], outputs[TENSORS];
    bool joined;
    double prescale, postscale;
    char name[16];
    uint64_t seed;
    hvd_handle *handle;
};

/* A job of one seed, which runs several times; its results are the reference if there is no simpler one. */
struct story {
    uint64_t seed;
    bool again;
    char *kept[MOST_RANKS][OPERATIONS][TENSORS];
};

static hvd_reduction draw_reduction(uint64_t *state, const struct sample *sample)
{
    bool scatters = sample->request.operation == HVD_REDUCESCATTER;
    hvd_reduction reduction;
    do
        reduction = reductions[random_next(state) % (scatters ? 2 : REDUCTIONS)]; /* average, sum first */
    while (!reduction_takes(reduction, sample->type) || (sample->joined && reduction == HVD_PRODUCT &&
                                                         dtype_table[sample->type].family == FAMILY_complex));
    return reduction;
}

static void draw(struct sample *sample, uint64_t *state, int index)
{
    static const int64_t limits[] = {1, 5, 70, 3000};
    static const hvd_dtype often[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32}; /* so that some are fused */
    *sample = (struct sample){.type = dtypes[random_next(state) % DTYPES],
                              .joined = index >= JOINED_FROM,
                              .prescale = 1,
                              .postscale = 1};
    hvd_request *request = &sample->request;
    bool scatters = random_next(state) % 6 == 0 && !sample->joined;
    if (random_next(state) % 3 == 0)
        sample->type = often[random_next(state) % 3];
    snprintf(sample->name, sizeof sample->name, "%d", index);
    *request = request_of(scatters ? HVD_REDUCESCATTER : HVD_ALLREDUCE, sample->name, sample->inputs);
    request->prescale = &sample->prescale;
    request->postscale = &sample->postscale;
    request->reduction = draw_reduction(state, sample);
    request->outputs = scatters || random_next(state) % 2 ? NULL : sample->outputs;
    if (sample->type != HVD_BOOL && random_next(state) % 3 == 0) {
        sample->prescale = 0.3;
        sample->postscale = 1.7;
    }
    request->grouped = random_next(state) % 3 == 0;
    request->count = request->grouped ? TENSORS : 1;
    for (int t = 0; t < request->count; t++)
        sample->shapes[t][0] = (int64_t)(random_next(state) % (uint64_t)(limits[random_next(state) % 4] + 1));
    if (index == 0)
        sample->shapes[0][0] = LONG;
    if (index > 0 && index < 5) { /* some that can be fused, and would then be rounded otherwise */
        sample->type = HVD_FLOAT64;
        request->operation = HVD_ALLREDUCE;
        request->reduction = HVD_ADASUM;
        sample->prescale = sample->postscale = 1;
        sample->shapes[0][0] = 100 * index;
    }
    sample->seed = random_next(state);
}

/* A NaN would hide all that Adasum does; of a joined rank's identities it makes another NaN. */
static bool takes_numbers(const struct sample *sample)
{
    return sample->joined || sample->type == HVD_BOOL || sample->request.reduction == HVD_ADASUM;
}

/* Any bits, many -0 and NaN among them; or numbers and -0. */
static void fill(const struct sample *sample, int rank, int tensor, char *data)
{
    uint64_t state = sample->seed + (uint64_t)(rank * TENSORS + tensor) * 7919;
    size_t elements = (size_t)sample->shapes[tensor][0];
    size_t bytes = elements * hvd_dtype_size(sample->type);
    for (size_t i = 0; i < elements && takes_numbers(sample); i++)
        put_at(sample->type, data, i,
               random_next(&state) % 4 ? (double)(random_next(&state) % 100003) / 977 : -0.0);
    for (size_t i = 0; i < bytes && !takes_numbers(sample); i += 2) {
        static const uint16_t special[] = {0x8000, 0, 0x7fc1, 0xffc2};
        uint64_t bits = random_next(&state);
        uint16_t value = bits % 5 ? (uint16_t)(bits >> 8) : special[bits >> 8 & 3];
        memcpy(data + i, &value, bytes - i < 2 ? 1 : 2);
    }
}

static void start(struct member *member, struct sample *sample)
{
    for (int t = 0; t < sample->request.count; t++) {
        size_t bytes = (size_t)sample->shapes[t][0] * hvd_dtype_size(sample->type) + 1;
        sample->inputs[t] = tensor_of(malloc(bytes), sample->type, sample->shapes[t], 1);
        sample->outputs[t] = tensor_of(malloc(bytes), sample->type, sample->shapes[t], 1);
        fill(sample, member->rank, t, sample->inputs[t].data);
    }
    CHECK_OK(hvd_submit(member->context, &sample->request, &sample->handle, &check_status));
}

/* What the ranks' elements make, one after the other. */
static void check_fold(const struct member *member, const struct sample *sample, int tensor, const char *is)
{
    const hvd_request *request = &sample->request;
    size_t element = hvd_dtype_size(sample->type), elements = (size_t)sample->shapes[tensor][0];
    combine_fn combine = reduce_combine(sample->type, request->reduction);
    struct scaling scaling =
        scaling_of(sample->type, request->reduction, sample->prescale, sample->postscale, member->size);
    char *should = malloc(elements * element + 1), *own = malloc(elements * element + 1);
    for (int rank = 0; rank < member->size; rank++) {
        bool stands_in = sample->joined && rank == member->size - 1;
        fill(sample, rank, tensor, own);
        for (size_t at = 0; at < elements * element; at += element) {
            if (stands_in)
                identity_element(sample->type, request->reduction, own + at);
            else if (sample->prescale != 1)
                reduce_scale(sample->type, own + at, own + at, 1, sample->prescale, 1);
            if (rank && scaling.weight != 1)
                reduce_weigh(sample->type)(should + at, should + at, own + at, 1,
                                           rank > 1 ? 1 : scaling.weight, scaling.weight);
            else if (rank)
                combine(should + at, should + at, own + at, 1);
            else
                memcpy(should + at, own + at, element);
        }
    }
    for (size_t at = 0; at < elements * element; at += element) {
        if (scaling_ends(&scaling))
            scaling_end(&scaling, should + at, 1);
        CHECK(memcmp(is + at, should + at, element) == 0,
              "%s: %s of %s, element %zu of %zu, is not as folded", sample->name,
              reduction_name(request->reduction), hvd_dtype_name(sample->type), at / element, elements);
    }
    free(should);
    free(own);
}

static void check_kept(const struct sample *sample, const struct story *story, char **kept, const char *is,
                       size_t bytes)
{
    CHECK(!story->again || memcmp(*kept, is, bytes) == 0, "%s: %s of %s differs from that without fusion",
          sample->name, reduction_name(sample->request.reduction), hvd_dtype_name(sample->type));
    if (!story->again) {
        *kept = malloc(bytes + 1);
        memcpy(*kept, is, bytes);
    }
}

static void finish_sample(struct member *member, struct sample *sample, struct story *story, int index)
{
    const hvd_request *request = &sample->request;
    CHECK_OK(hvd_wait(sample->handle, 60, &check_status));
    for (int t = 0; t < request->count; t++) {
        hvd_tensor result = request->outputs ? sample->outputs[t] : sample->inputs[t];
        if (request->operation == HVD_REDUCESCATTER)
            CHECK_OK(hvd_output(sample->handle, t, &result, &check_status));
        size_t bytes = (size_t)result.shape[0] * hvd_dtype_size(result.dtype);
        if (request->operation == HVD_ALLREDUCE && request->reduction != HVD_ADASUM)
            check_fold(member, sample, t, result.data);
        else
            check_kept(sample, story, &story->kept[member->rank][index][t], result.data, bytes);
        free(sample->inputs[t].data);
        free(sample->outputs[t].data);
    }
    hvd_release(sample->handle);
}

/* The requests [from, to) in an order of this rank's own, all at once. */
static void run_part(struct member *member, struct sample *samples, int from, int to, uint64_t *order_state)
{
    struct sample *order[OPERATIONS];
    int count = to - from;
    for (int i = 0; i < count; i++) {
        int j = (int)(random_next(order_state) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = &samples[from + i];
    }
    for (int i = 0; i < count; i++)
        start(member, order[i]);
    for (int i = from; i < to; i++)
        finish_sample(member, &samples[i], member->argument, i);
}

static void run_story(struct member *member)
{
    struct story *story = member->argument;
    uint64_t state = story->seed, order = story->seed + (uint64_t)member->rank * 977 + (uint64_t)story->again;
    struct sample samples[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++)
        draw(&samples[i], &state, i);
    run_part(member, samples, 0, JOINED_FROM, &order);
    if (member->rank < member->size - 1)
        run_part(member, samples, JOINED_FROM, OPERATIONS, &order);
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

static void drop(struct story *story, int size)
{
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < OPERATIONS; i++)
            for (int t = 0; t < TENSORS; t++)
                free(story->kept[rank][i][t]);
}

static void run_over(const char *transport)
{
    static const char *const settings[][11] = {
        {"deterministic", "1", "fusion_threshold", "0"},
        {"deterministic", "1", "cycle_time_ms", "0.5"},
        {"deterministic", "1", "fusion_threshold", "5000", "shm_ring_bytes", "4096", "cache_capacity", "3"},
        {"deterministic", "1", "cycle_time_ms", "3", "allreduce_algorithm", "chain"},
        {"deterministic", "1", "cycle_time_ms", "1", "latency_threshold", "0", "disable_group_fusion", "1"},
    };
    for (int size = 1; size <= MOST_RANKS; size++) {
        struct story story = {.seed = test_seed() + (uint64_t)size};
        for (int run = 0; run < 5; run++, story.again = true) {
            struct group_options options = {.transport = transport, .settings = settings[run]};
            group_run(&options, size, run_story, &story);
        }
        drop(&story, size);
    }
}

TEST(the_same_bits_over_shm)
{
    run_over("shm");
}

TEST(the_same_bits_over_tcp)
{
    run_over("tcp");
}
