/* wire.h - an allreduce whose bytes between hosts travel as float16 while its values are float32: the steps
 * of the hierarchical plan with another wire type. And what each rank must get. */
#ifndef HVD_TEST_WIRE_H
#define HVD_TEST_WIRE_H

#include "numbers.h"

#include "coll/collective.h"
#include "coll/hierarchy.h"

static inline void wire_encode(void *wire, const void *values, size_t elements)
{
    const float *from = values;
    uint16_t *to = wire;
    for (size_t i = 0; i < elements; i++)
        to[i] = to_FLOAT16(from[i]);
}

static inline void wire_decode(void *values, const void *wire, size_t elements)
{
    const uint16_t *from = wire;
    float *to = values;
    for (size_t i = 0; i < elements; i++)
        to[i] = from_FLOAT16(from[i]);
}

static const struct wire_type wire_half = {.exponent = 1, .encode = wire_encode, .decode = wire_decode};

static inline hvd_code wire_plan(struct collective *collective, int phase, struct schedule *schedule,
                                 bool *more, hvd_status *status)
{
    extern const struct algorithm allreduce_hierarchical;
    hvd_code code = allreduce_hierarchical.plan(collective, phase, schedule, more, status);
    for (int i = 0; i < schedule->count; i++) {
        struct step *step = &schedule->steps[i];
        if (!step_is_local(step) && !topology_share_host(collective->topology, collective->rank, step->peer))
            step->wire = &wire_half;
    }
    return code;
}

static const struct algorithm wire_algorithm = {
    .name = "half between hosts", .operation = HVD_ALLREDUCE, .by_hosts = true, .plan = wire_plan};

/* In one piece, which wire_expected assumes. */
#define WIRE_PIECE_BYTES ((size_t)1 << 40)

/* What a rank gives: too fine for float16, while all sums over ranks are exact in float32. */
static inline float wire_value(int rank, size_t i)
{
    return (float)((i * 131 + (size_t)rank * 977) % 8191) / 1024;
}

static inline float wire_rounded(float value)
{
    return from_FLOAT16(to_FLOAT16(value));
}

static inline float wire_sum_of_host(const struct topology *topology, int host, size_t i)
{
    float sum = 0;
    for (int rank = 0; rank < topology->size; rank++)
        sum += topology->host_of[rank] == host ? wire_value(rank, i) : 0;
    return sum;
}

/* The host whose carrier completes the element. */
static inline int wire_owner(const struct hierarchy *hierarchy, size_t elements, size_t i)
{
    for (int carrier = 0; carrier < hierarchy->carriers; carrier++) {
        struct range shard = pattern_block(elements, sizeof(float), hierarchy->carriers, carrier);
        for (int host = 0; host < hierarchy->hosts; host++) {
            struct range block = pattern_block(shard.length, sizeof(float), hierarchy->hosts, host);
            size_t start = shard.offset + block.offset;
            if (i >= start && i < start + block.length)
                return host;
        }
    }
    return -1;
}

/* Element `i` on this rank: sums go around the hosts from the one behind the owner to the owner, rounded each
 * time that they leave a host, and so is the result for all hosts but the owner's. */
static inline float wire_expected(const struct collective *collective, size_t elements, size_t i)
{
    struct hierarchy hierarchy = hierarchy_of(collective);
    int owner = wire_owner(&hierarchy, elements, i);
    float sum = 0;
    for (int turn = 1; turn <= hierarchy.hosts; turn++)
        sum = wire_rounded(sum) + wire_sum_of_host(collective->topology, (owner + turn) % hierarchy.hosts, i);
    return hierarchy.host == owner ? sum : wire_rounded(sum);
}

#endif
