/* test_eager.c - small allreduces between hosts, whose data travel in the coordinator's messages: no link for
 * data is opened, all ranks get the same bits, and a rank may leave its data out. */
#define member coordinator_member /* group.h has another struct of this name */
#include "engine/comm.h"
#include "engine/context.h"
#undef member
#include "group.h"
#include "transport/peer.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 5, ELEMENTS = 1024 /* of float32: as much as goes so */ };

/* In the order of places: 0 2 1 4 3. */
static const char *const hosts[RANKS] = {"a", "b", "a", "c", "b"};

static void sum(struct member *member, const char *name, float *data, int64_t elements)
{
    finish(submit_sum(member, name, data, elements, 0));
}

static int open_links(const struct member *member)
{
    const struct mesh *mesh = member->context->world->mesh;
    return mesh->linked_count;
}

/* A sum that depends on the order: by places, a subtree after the other, in whatever order they arrive. */
static void same_bits(struct member *member)
{
    static const float parts[RANKS] = {1e8F, 3, -1e8F, 0.25F, 1e-3F};
    float expected = (parts[0] + parts[2]) + (parts[1] + parts[4]) + parts[3];
    int before = open_links(member);
    for (int i = 0; i < 50; i++) {
        float data[ELEMENTS];
        for (int e = 0; e < ELEMENTS; e++)
            data[e] = parts[member->rank];
        sum(member, "bits", data, i % 2 ? 1 : ELEMENTS);
        CHECK(memcmp(&data[0], &expected, sizeof expected) == 0, "%.9g, not %.9g", data[0], expected);
        CHECK(data[ELEMENTS - 1] == (i % 2 ? parts[member->rank] : expected), "%.9g", data[ELEMENTS - 1]);
    }
    CHECK(open_links(member) == before, "%d links, %d before", open_links(member), before);
}

GROUP_TEST(test_same_bits_everywhere, same_bits, RANKS, RANKS, .transport = "auto", .hosts = hosts)

/* More than fits is in flight, and the ranks start it in orders of their own. */
static void burst(struct member *member)
{
    enum { TENSORS = 24 };
    static float data[RANKS][TENSORS][ELEMENTS];
    hvd_handle *handles[TENSORS];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < TENSORS; i++) {
            char name[32];
            int tensor = (i * (round % 2 ? 5 : 7) + member->rank * (round % 3)) % TENSORS;
            float *own = data[member->rank][tensor];
            for (int e = 0; e < ELEMENTS; e++)
                own[e] = (float)(member->rank + tensor + e);
            snprintf(name, sizeof name, "burst%d", tensor);
            handles[tensor] = submit_sum(member, name, own, 1 + tensor * 43, 0);
        }
        for (int i = 0; i < TENSORS; i++) {
            finish(handles[i]);
            for (int e = 0; e < 1 + i * 43; e++)
                CHECK(data[member->rank][i][e] == (float)(10 + RANKS * (i + e)), "tensor %d: %g", i,
                      data[member->rank][i][e]);
        }
    }
}

GROUP_TEST(test_bursts, burst, RANKS, RANKS, .transport = "auto", .hosts = hosts)

/* Where one rank's settings want it otherwise nobody's data go so, and all is well. */
static void one_without(hvd_config *config, int rank)
{
    hvd_status status;
    if (rank == 4)
        hvd_config_set(config, "eager_threshold", "0", &status);
}

static void without(struct member *member)
{
    for (int i = 0; i < 10; i++)
        check_allreduce_works(member, "without");
}

GROUP_TEST(test_one_rank_without, without, RANKS, RANKS, .transport = "auto", .hosts = hosts,
           .configure = one_without)
GROUP_TEST(test_bursts_where_one_is_without, burst, RANKS, RANKS, .transport = "auto", .hosts = hosts,
           .configure = one_without)

static void check_rounded(struct member *member, hvd_dtype dtype, void *data, const void *expected,
                          size_t bytes)
{
    int64_t elements = (int64_t)(bytes / hvd_dtype_size(dtype));
    hvd_tensor tensor = tensor_of(data, dtype, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, hvd_dtype_name(dtype), &tensor);
    request.reduction = HVD_AVERAGE;
    request.prescale = &(double){2};
    request.postscale = &(double){5};
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(memcmp(data, expected, bytes) == 0, "%s", hvd_dtype_name(dtype));
}

/* Averages and factors, and an output of its own. */
static void scaled(struct member *member)
{
    float values[] = {(float)member->rank, 1}, output[2];
    int64_t numbers[] = {member->rank, 3}, shape[] = {2};
    check_rounded(member, HVD_FLOAT32, values, (float[]){20, 10}, sizeof values);
    check_rounded(member, HVD_INT64, numbers, (int64_t[]){20, 30}, sizeof numbers);
    hvd_tensor in = tensor_of(values, HVD_FLOAT32, shape, 1), out = tensor_of(output, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "output", &in);
    request.outputs = &out;
    request.reduction = HVD_MAX;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(values[0] == 20 && output[0] == 20 && output[1] == 10, "%g %g", output[0], output[1]);
}

GROUP_TEST(test_scaled, scaled, RANKS, RANKS, .transport = "auto", .hosts = hosts)
