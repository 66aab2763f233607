/* test_memory.c - the memory of a rank beyond its tensors does not grow with names that are used once, and
 * many simultaneous requests do not enlarge it for long. */
#include "group.h"

#include <stdio.h>
#include <stdlib.h>

#define RANKS 3
#define KIB   ((size_t)1024)

/* Rank 0 looks while the others wait for it. */
static size_t held(struct member *member)
{
    check_allreduce_works(member, "before");
    size_t bytes = member->rank == 0 ? own_bytes() : 0;
    check_allreduce_works(member, "after");
    return bytes;
}

/* All at once, of as many shapes as names. */
static void reduce_names(struct member *member, int first, int count)
{
    hvd_handle **handles = calloc((size_t)count, sizeof *handles);
    float *values = calloc((size_t)count, sizeof *values); /* what shares memory would run one by one */
    for (int i = 0; i < count; i++) {
        char name[64];
        int64_t shape[] = {1, 1, 1};
        hvd_tensor tensor = tensor_of(&values[i], HVD_FLOAT32, shape, 1 + i % 3);
        hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
        request.priority = first + i;
        snprintf(name, sizeof name, "module.layer%d.weight", first + i);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
    }
    for (int i = 0; i < count; i++)
        finish(handles[i]);
    free(handles);
    free(values);
}

static void names_that_come_once(struct member *member)
{
    const int step = 50, warm = 2000, all = own_bytes() ? 22000 : 3000; /* a sanitizer needs no more */
    for (int first = 0; first < warm; first += step)
        reduce_names(member, first, step);
    size_t before = held(member);
    for (int first = warm; first < all; first += step)
        reduce_names(member, first, step);
    size_t after = held(member);
    CHECK(after <= before + 256 * KIB, "20,000 names left %zu KiB behind", (after - before) / KIB);
}

static void reduce_all(struct member *member, int count, int times)
{
    for (int i = 0; i < times; i++) {
        for (int first = 0; first < count; first += 250)
            reduce_names(member, first, 250);
    }
}

/* Names that stay in the cache, each with a form of its own. All three ranks are in this process. */
static void names_that_stay(struct member *member)
{
    const int few = 1000, many = own_bytes() ? 8000 : 2000;
    reduce_all(member, few, 3);
    size_t before = held(member);
    reduce_all(member, many, 3);
    size_t after = held(member);
    size_t each = (after - before) / RANKS / (size_t)(many - few);
    CHECK(after <= before || each <= 400, "a name takes %zu bytes", each);
}

/* 10,000 requests at once need more than 10 MiB on each of the three ranks; afterwards mostly 2 MiB in all
 * remain, scattered over pages. */
static void a_burst(struct member *member)
{
    for (int i = 0; i < 3; i++)
        reduce_names(member, 0, 100);
    size_t before = held(member);
    reduce_names(member, 1000, own_bytes() ? 10000 : 1000);
    size_t after = held(member);
    CHECK(after <= before + 6144 * KIB, "10,000 requests left %zu KiB behind", (after - before) / KIB);
}

GROUP_TEST(test_names_that_come_once, names_that_come_once, RANKS, RANKS, .transport = "shm",
           SETTINGS("cache_capacity", "100"))
GROUP_TEST(test_names_without_a_cache, names_that_come_once, RANKS, RANKS, .transport = "tcp",
           SETTINGS("cache_capacity", "0"))
GROUP_TEST(test_names_that_stay, names_that_stay, RANKS, RANKS, .transport = "shm",
           SETTINGS("cache_capacity", "10000"))
GROUP_TEST(test_a_burst, a_burst, RANKS, RANKS, .transport = "shm", SETTINGS("cache_capacity", "100"))
