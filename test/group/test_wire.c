/* test_wire.c - an allreduce whose floats travel between hosts as halves, over what connects hosts: a back
 * end that is the host's except for its plan. */
#include "backend/backend.h"
#include "engine/api.h"
#include "group.h"
#include "wire.h"

#include <stdlib.h>

enum { ELEMENTS = 30000 };

static struct backend halving;

static hvd_code start(void *state, struct collective *collective, hvd_status *status)
{
    hvd_code code = backend_host.start(state, collective, status);
    if (collective->operation == HVD_ALLREDUCE && collective->dtype == HVD_FLOAT32) {
        collective->algorithm = &wire_algorithm; /* it is planned later */
        collective->piece_bytes = WIRE_PIECE_BYTES;
    }
    return code;
}

static void with_halves(hvd_config *config, int rank)
{
    static const struct backend *const rows[] = {&halving, NULL};
    (void)rank;
    config->backends = rows;
}

static int fill_row(void **state)
{
    (void)state;
    halving = backend_host;
    halving.start = start;
    return 0;
}

const struct test_hooks test_hooks = {.before_all = fill_row};

static const char *const hosts[] = {"a", "a", "b", "b", "c"};

/* As the engine sees the group. */
static struct topology topology_of(int size)
{
    struct topology topology;
    int numbers[5];
    for (int rank = 0; rank < size; rank++)
        numbers[rank] = hosts[rank][0] - 'a';
    CHECK_OK(topology_init(&topology, numbers, size, &check_status));
    return topology;
}

static void sums(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    float *values = malloc(ELEMENTS * sizeof *values);
    hvd_tensor tensor = tensor_of(values, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "halves", &tensor);
    struct topology topology = topology_of(member->size);
    struct collective collective = {
        .algorithm = &wire_algorithm, .rank = member->rank, .size = member->size, .topology = &topology};
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < ELEMENTS; i++)
            values[i] = wire_value(member->rank, i);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        for (size_t i = 0; i < ELEMENTS; i++) {
            float should = wire_expected(&collective, ELEMENTS, i);
            CHECK(values[i] == should, "element %zu is %g, not %g", i, (double)values[i], (double)should);
        }
    }
    topology_free(&topology);
    free(values);
}

GROUP_TEST(over_tcp, sums, 2, 5, .transport = "tcp", .hosts = hosts, .configure = with_halves)
GROUP_TEST(by_host, sums, 2, 5, .transport = "auto", .hosts = hosts, .configure = with_halves)
GROUP_TEST(over_faulty_tcp, sums, 2, 5, .transport = "faulty-tcp", .hosts = hosts, .configure = with_halves)
