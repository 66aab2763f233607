/* test_overlap.c - requests in flight that use the same memory: results are as if the requests ran one by
 * one, whatever memory the other ranks use. Their order is that of submission if it is the same on all ranks,
 * otherwise one order that all ranks share. */
#include "group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 30, ELEMENTS = 100000 };

static void same_memory(struct member *member)
{
    float sum = sum_of(member);
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)(member->rank + 1);
        hvd_handle *handles[3];
        for (int i = 0; i < 3; i++) {
            const char *const names[] = {"a", "b", NULL};
            handles[i] = submit_sum(member, names[i], &value, 1, 0);
        }
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        float expected = sum * (float)(member->size * member->size);
        CHECK(value == expected, "round %d: %g, not %g", round, value, expected);
    }
}

/* Only one rank shares, in another round another one; the others' requests are ready at once. */
static void one_rank_shares(struct member *member)
{
    float sum = sum_of(member);
    for (int round = 0; round < ROUNDS; round++) {
        int sharer = round % member->size;
        float values[2] = {(float)(member->rank + 1), (float)(member->rank + 1)};
        float *second = member->rank == sharer ? &values[0] : &values[1];
        hvd_handle *a = submit_sum(member, "a", &values[0], 1, 0);
        hvd_handle *b = submit_sum(member, "b", second, 1, 0);
        hvd_handle *unnamed = submit_sum(member, NULL, &(float){0}, 1, 0); /* not held back */
        finish(b);
        finish(a);
        finish(unnamed);
        float expected = sum + sum - (float)(sharer + 1);
        CHECK(*second == expected, "round %d: %g, not %g", round, *second, expected);
        CHECK(member->rank == sharer || values[0] == sum, "round %d: %g, not %g", round, values[0], sum);
    }
}

/* A part of the memory that a long request writes, and the memory that one part reads. */
static void parts(struct member *member)
{
    static _Thread_local float data[ELEMENTS], copy[ELEMENTS];
    float sum = sum_of(member), size = (float)member->size;
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)(member->rank + 1);
    hvd_handle *all = submit_sum(member, "all", data, ELEMENTS, 0);
    hvd_handle *part = submit_sum(member, "part", data + 1000, 10, 0);
    int64_t elements = ELEMENTS;
    hvd_tensor input = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_tensor output = tensor_of(copy, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "reader", &input);
    hvd_handle *reader;
    request.outputs = &output;
    CHECK_OK(hvd_submit(member->context, &request, &reader, &check_status));
    hvd_handle *beside = submit_sum(member, "beside", data + 1010, 10, 0);
    finish(all);
    finish(part);
    finish(reader);
    finish(beside);
    for (int i = 0; i < ELEMENTS; i++) {
        bool in_part = i >= 1000 && i < 1010, after = i >= 1010 && i < 1020;
        CHECK(copy[i] == (in_part ? sum * size * size : sum * size), "reader: element %d is %g", i, copy[i]);
        CHECK(data[i] == (in_part || after ? sum * size : sum), "element %d is %g", i, data[i]);
    }
}

static void in_two_sets(struct member *member)
{
    int32_t everybody[] = {0, 1, 2, 3}, id;
    float sum = sum_of(member);
    CHECK_OK(hvd_process_set_add(member->context, everybody, member->size, &id, &check_status));
    for (int round = 0; round < ROUNDS; round++) {
        float value = (float)(member->rank + 1);
        hvd_handle *a = submit_sum(member, "a", &value, 1, round % 2 ? id : 0);
        hvd_handle *b = submit_sum(member, "a", &value, 1, round % 2 ? 0 : id);
        finish(a);
        finish(b);
        CHECK(value == sum * (float)member->size, "round %d: %g", round, value);
    }
}

/* A join waits for requests that are held back. */
static void joined_behind(struct member *member)
{
    float value = (float)(member->rank + 1);
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    for (int round = 0; round < ROUNDS; round++) {
        value = (float)(member->rank + 1);
        hvd_handle *a = submit_sum(member, "a", &value, 1, 0);
        hvd_handle *b = submit_sum(member, "b", &value, 1, 0);
        CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
        finish(a);
        finish(b);
        CHECK(value == sum_of(member) * (float)member->size, "round %d: %g", round, value);
    }
}

/* Readers do not wait for each other: rank 0 submits in another order than the rest. */
static void readers(struct member *member)
{
    float value = (float)member->rank;
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_handle *handles[20];
    for (int i = 0; i < 20; i++) {
        char name[16];
        int n = member->rank ? i : 19 - i;
        snprintf(name, sizeof name, "%d", n);
        hvd_request request = request_of(HVD_ALLGATHER, name, &tensor);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
    }
    for (int i = 0; i < 20; i++)
        finish(handles[i]);
}

/* ---- orders that differ by rank ------------------------------------------------------------------------ */

/* Rank 0 submits a maximum of all and a sum of a part, the others the sum first: the part is one of two. */
static void opposite_orders(struct member *member)
{
    static _Thread_local float data[ELEMENTS];
    float sum = sum_of(member), size = (float)member->size;
    int64_t part = 10;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t all = round % 2 ? part : ELEMENTS; /* long beside short, and two short ones */
        for (int i = 0; i < all; i++)
            data[i] = (float)(member->rank + 1);
        hvd_tensor tensors[] = {tensor_of(data, HVD_FLOAT32, &all, 1),
                                tensor_of(data, HVD_FLOAT32, &part, 1)};
        hvd_handle *handles[2];
        for (int i = 0; i < 2; i++) {
            int which = member->rank ? 1 - i : i;
            hvd_request request = request_of(HVD_ALLREDUCE, which ? "part" : "all", &tensors[which]);
            request.reduction = which ? HVD_SUM : HVD_MAX;
            CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        }
        finish(handles[0]);
        finish(handles[1]);
        float least = data[0];
        hvd_tensor tensor = tensor_of(&least, HVD_FLOAT32, NULL, 0);
        hvd_request request = request_of(HVD_ALLREDUCE, "least", &tensor);
        request.reduction = HVD_MIN;
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        CHECK(data[0] == size * size || data[0] == sum, "round %d: %g", round, data[0]);
        for (int i = 0; i < all; i++)
            CHECK(data[i] == (i < part ? least : size), "round %d: element %d is %g", round, i, data[i]);
    }
}

enum { REQUESTS = 8, BLOCKS = 6, MEMORY = REQUESTS * BLOCKS, RANKS = 4 };

/* What one rank reads and writes, in elements of its memory. */
struct place {
    int input, output;
};

struct mixture {
    int ranks;
    hvd_reduction reductions[REQUESTS];
    int counts[REQUESTS]; /* elements */
    struct place places[RANKS][REQUESTS];
};

struct memories {
    double of[RANKS][MEMORY];
};

/* Three buffers of four blocks, each of which overlaps the next one; a request works in place, or from the
 * first one into the last one or back. Of ranks that share nothing each request has memory of its own. */
static void draw_mixture(struct mixture *mixture, int ranks, int only_sharer, uint64_t seed)
{
    mixture->ranks = ranks;
    for (int i = 0; i < REQUESTS; i++) {
        int from = (int)random_below(&seed, 3);
        int to = from != 1 && random_chance(&seed, 50) ? 2 - from : from;
        mixture->reductions[i] = random_chance(&seed, 50) ? HVD_MAX : HVD_SUM;
        mixture->counts[i] = from == to ? 4 : 2;
        for (int r = 0; r < ranks; r++) {
            int base = only_sharer >= 0 && r != only_sharer ? i * BLOCKS : 0;
            mixture->places[r][i] = (struct place){base + from, base + to + (from < to ? 2 : 0)};
            if (from > to)
                mixture->places[r][i] = (struct place){base + 2 + 2, base};
        }
    }
}

static void run_one(const struct mixture *mixture, int which, struct memories *memories)
{
    for (int e = 0; e < mixture->counts[which]; e++) {
        double result = 0;
        for (int r = 0; r < mixture->ranks; r++) {
            double value = memories->of[r][mixture->places[r][which].input + e];
            if (mixture->reductions[which] == HVD_SUM)
                result += value / 2;
            else
                result = value > result ? value : result;
        }
        for (int r = 0; r < mixture->ranks; r++)
            memories->of[r][mixture->places[r][which].output + e] = result;
    }
}

/* Whether some order of those left brings about what the ranks have. */
static bool is_some_order(const struct mixture *mixture, unsigned left, const struct memories *before,
                          const struct memories *got)
{
    if (!left)
        return memcmp(before->of, got->of, (size_t)mixture->ranks * sizeof before->of[0]) == 0;
    for (int i = 0; i < REQUESTS; i++) {
        if (!(left >> i & 1))
            continue;
        struct memories after = *before;
        run_one(mixture, i, &after);
        if (is_some_order(mixture, left & ~(1U << i), &after, got))
            return true;
    }
    return false;
}

static void fill(double *memory, int rank)
{
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (double)((i * 7 + rank * 5) % 11 + 1);
}

/* All ranks' memory, after they have run the mixture in orders of their own. */
static void run_mixture(struct member *member, const struct mixture *mixture, uint64_t seed,
                        struct memories *got)
{
    double memory[MEMORY];
    hvd_handle *handles[REQUESTS];
    int order[REQUESTS];
    fill(memory, member->rank);
    for (int i = 0; i < REQUESTS; i++) {
        int other = (int)random_below(&seed, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    for (int i = 0; i < REQUESTS; i++) {
        int which = order[i];
        const struct place *place = &mixture->places[member->rank][which];
        int64_t elements = mixture->counts[which];
        hvd_tensor input = tensor_of(&memory[place->input], HVD_FLOAT64, &elements, 1);
        hvd_tensor output = tensor_of(&memory[place->output], HVD_FLOAT64, &elements, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, (char[]){(char)('a' + which), '\0'}, &input);
        request.outputs = place->input == place->output ? NULL : &output;
        request.reduction = mixture->reductions[which];
        request.postscale = &(double){request.reduction == HVD_SUM ? 0.5 : 1};
        request.priority = which % 3;
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        if (random_chance(&seed, 30))
            sched_yield();
    }
    for (int i = 0; i < REQUESTS; i++)
        finish(handles[i]);
    int64_t all[] = {RANKS, MEMORY};
    memset(got, 0, sizeof *got);
    memcpy(got->of[member->rank], memory, sizeof memory);
    hvd_tensor tensor = tensor_of(got, HVD_FLOAT64, all, 2);
    hvd_request request = request_of(HVD_ALLREDUCE, "got", &tensor);
    request.reduction = HVD_SUM;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}

static void run_mixtures(struct member *member, bool one_shares)
{
    struct mixture mixture = {0};
    struct memories got, before = {0};
    for (int round = 0; round < 12; round++) {
        uint64_t seed = test_seed() * 1000 + (uint64_t)round;
        draw_mixture(&mixture, member->size, one_shares ? round % member->size : -1, seed);
        run_mixture(member, &mixture, random_mix(seed * 10 + (uint64_t)member->rank), &got);
        for (int r = 0; r < member->size; r++)
            fill(before.of[r], r);
        CHECK(member->rank != round % member->size ||
                  is_some_order(&mixture, (1U << REQUESTS) - 1, &before, &got),
              "round %d: no order of the requests gives this", round);
    }
}

static void random_orders(struct member *member)
{
    run_mixtures(member, false);
}

static void random_orders_where_one_shares(struct member *member)
{
    run_mixtures(member, true);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* What is held back ends with what it waits for. */
static void ended_by_leaving(struct member *member)
{
    static _Thread_local float value;
    hvd_handle *handles[4];
    for (int i = 0; !member->rank && i < 4; i++)
        handles[i] = submit_sum(member, (const char *[]){"a", "b", "c", NULL}[i], &value, 1, 0);
    check_allreduce_works(member, "nobody leaves before");
    for (int i = 3; !member->rank && i >= 0; i--) {
        hvd_status status;
        hvd_code code = hvd_wait(handles[i], 30, &status);
        CHECK(code == HVD_SHUT_DOWN, "%s: %s", hvd_code_name(code), status.text);
        hvd_release(handles[i]);
    }
}

static void ended_by_own_shutdown(struct member *member)
{
    static _Thread_local float value;
    hvd_handle *handles[3];
    for (int i = 0; !member->rank && i < 3; i++)
        handles[i] = submit_sum(member, (const char *[]){"a", "b", NULL}[i], &value, 1, 0);
    check_allreduce_works(member, "nobody leaves before");
    hvd_shutdown(member->context);
    member->context = NULL;
    for (int i = 0; !member->rank && i < 3; i++) {
        CHECK(hvd_test(handles[i], NULL) == HVD_SHUT_DOWN, "%d", i);
        hvd_release(handles[i]);
    }
}

GROUP_TEST(test_same_memory, same_memory, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_one_rank_shares, one_rank_shares, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_parts, parts, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_in_two_sets, in_two_sets, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_joined_behind, joined_behind, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_readers, readers, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_opposite_orders, opposite_orders, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_random_orders, random_orders, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_random_orders_where_one_shares, random_orders_where_one_shares, 2, 4, EVERY_TRANSPORT)
#define BETWEEN_HOSTS                                                                                        \
    .transport = "auto", .hosts = (const char *const[])                                                      \
    {                                                                                                        \
        "a", "b", "b", "c"                                                                                   \
    }
GROUP_TEST(test_same_memory_between_hosts, same_memory, 4, 4, BETWEEN_HOSTS)
GROUP_TEST(test_one_rank_shares_between_hosts, one_rank_shares, 4, 4, BETWEEN_HOSTS)
GROUP_TEST(test_random_orders_between_hosts, random_orders, 2, 4, BETWEEN_HOSTS)
GROUP_TEST(test_random_orders_between_hosts_where_one_shares, random_orders_where_one_shares, 2, 4,
           BETWEEN_HOSTS)
GROUP_TEST(test_ended_by_leaving, ended_by_leaving, 2, 3, EVERY_TRANSPORT)
GROUP_TEST(test_ended_by_own_shutdown, ended_by_own_shutdown, 2, 3, EVERY_TRANSPORT)
