/* test_beyond.c - tensors of more than 2^32 elements, in place on two ranks: no count, no offset and no
 * length is cut to 32 bits. It takes 13 GB of memory, so it runs with HOROVOD_TEST_BEYOND only, as in `make
 * soak`. */
#include "group.h"

#include <stdlib.h>
#include <sys/mman.h>

#define ELEMENTS ((INT64_C(1) << 32) + 100003)

/* What a rank gives: a pattern that repeats after no power of two, so that a piece elsewhere shows. */
static uint8_t given(int rank, int64_t i)
{
    return (uint8_t)((i % 1000003) % 7 == rank || (i >> 32 && i % 3 == 0));
}

static void fill(uint8_t *data, int rank)
{
    for (int64_t i = 0; i < ELEMENTS; i++)
        data[i] = given(rank, i);
}

/* The first and the last elements, those around 2^31 and 2^32, and every 997th. */
static bool is_looked_at(int64_t i)
{
    int64_t after = i & ((INT64_C(1) << 31) - 1);
    return i < 5000 || i > ELEMENTS - 200000 || after < 5000 || after > (INT64_C(1) << 31) - 5000 ||
           i % 997 == 0;
}

static void check(const uint8_t *data, int64_t from, int64_t to, bool both, const char *name)
{
    for (int64_t i = from; i < to; i++) {
        if (!is_looked_at(i))
            continue;
        int should = both ? given(0, i) || given(1, i) : given(1, i);
        CHECK(data[i - from] == should, "%s: element %lld is %d, not %d", name, (long long)i, data[i - from],
              should);
    }
}

static void run(struct member *member, const hvd_request *request)
{
    CHECK_OK(hvd_run(member->context, request, NULL, &check_status));
}

static void beyond(struct member *member)
{
    int64_t elements = ELEMENTS, own = ELEMENTS / 2 + (member->rank == 0 && ELEMENTS % 2);
    int64_t first = member->rank ? ELEMENTS - own : 0;
    uint8_t *data = mmap(NULL, (size_t)ELEMENTS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED, "no memory");
    hvd_tensor tensor = tensor_of(data, HVD_BOOL, &elements, 1),
               part = tensor_of(data + first, HVD_BOOL, &own, 1);
    fill(data, member->rank);
    hvd_request request = request_of(HVD_ALLREDUCE, "beyond", &tensor);
    run(member, &request);
    check(data, 0, ELEMENTS, true, "allreduce");
    fill(data, member->rank);
    request = request_of(HVD_BROADCAST, "beyond", &tensor);
    request.root = 1;
    run(member, &request);
    check(data, 0, ELEMENTS, false, "broadcast");
    fill(data, member->rank);
    request = request_of(HVD_REDUCESCATTER, "beyond", &tensor);
    request.outputs = &part;
    run(member, &request);
    check(data + first, first, first + own, true, "reducescatter");
    munmap(data, (size_t)ELEMENTS);
}

TEST(more_than_32_bits)
{
    const char *transport = getenv("HOROVOD_TEST_BEYOND");
    if (!transport)
        skip();
    group_run(&(struct group_options){.transport = transport, .seconds = 500}, 2, beyond, NULL);
}
