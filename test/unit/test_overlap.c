/* test_overlap.c - memory of operations in flight: rising, falling and random addresses, one and several
 * tensors, read and written, against a comparison of all pairs. */
#include "engine/overlap.h"
#include "random.h"
#include "test.h"

#include <stdlib.h>

enum { OPERATIONS = 40, TENSORS = 3, STEPS = 4000, MEMORY = 4096 };

struct operation_in_flight {
    hvd_request request;
    hvd_tensor tensors[2 * TENSORS];
    int64_t shapes[TENSORS];
    struct memory_range ranges[2 * TENSORS];
    struct footprint footprint;
    bool in_flight;
};

static char memory[MEMORY + 64];

static void choose_tensors(struct operation_in_flight *operation, uint64_t *random, int order, size_t *next)
{
    bool outputs = random_below(random, 3) == 0, gathers = !outputs && random_below(random, 4) == 0;
    operation->request = (hvd_request){.operation = gathers ? HVD_ALLGATHER : HVD_ALLREDUCE,
                                       .count = 1 + (int)random_below(random, TENSORS),
                                       .process_set = (int)random_below(random, 2),
                                       .inputs = operation->tensors,
                                       .outputs = outputs ? operation->tensors + TENSORS : NULL};
    for (int i = 0; i < operation->request.count * (outputs ? 2 : 1); i++) {
        int index = i % operation->request.count;
        int64_t length = operation->shapes[index] = random_below(random, 8) ? 16 : 0;
        size_t at = random_below(random, MEMORY);
        if (order && random_below(random, 50))
            at = *next = (*next + (size_t)(order * length) + MEMORY) % MEMORY;
        operation->tensors[i < operation->request.count ? i : TENSORS + index] = (hvd_tensor){
            .data = memory + at, .shape = &operation->shapes[index], .ndim = 1, .dtype = HVD_UINT8};
    }
    operation->footprint = (struct footprint){.ranges = operation->ranges};
}

static bool writes(const hvd_request *request, int i)
{
    return i >= request->count || (!request->outputs && request->operation == HVD_ALLREDUCE);
}

static const hvd_tensor *tensor_at(const hvd_request *request, int i)
{
    return i < request->count ? &request->inputs[i] : &request->outputs[i - request->count];
}

static bool overlap(const hvd_request *a, const hvd_request *b)
{
    for (int i = 0; i < a->count * (a->outputs ? 2 : 1); i++)
        for (int j = 0; j < b->count * (b->outputs ? 2 : 1); j++) {
            const hvd_tensor *x = tensor_at(a, i), *y = tensor_at(b, j);
            const char *x_data = x->data, *y_data = y->data;
            if (*x->shape && *y->shape && x_data < y_data + *y->shape && y_data < x_data + *x->shape &&
                (writes(a, i) || writes(b, j)))
                return true;
        }
    return false;
}

static void check(const struct overlaps *overlaps, const struct operation_in_flight *all,
                  const struct operation_in_flight *one)
{
    bool any = false, before = false;
    for (int i = 0; i < OPERATIONS; i++) {
        const struct operation_in_flight *other = &all[i];
        if (other == one || !other->in_flight || !overlap(&other->request, &one->request))
            continue;
        any = true;
        before |= other->footprint.place < one->footprint.place &&
                  other->footprint.process_set != one->footprint.process_set;
    }
    assert_int_equal(overlaps_any(overlaps, &one->footprint), any);
    const struct operation_in_flight *found = overlaps_before(overlaps, &one->footprint);
    assert_int_equal(found != NULL, before);
    if (found) {
        assert_true(found->in_flight && overlap(&found->request, &one->request));
        assert_true(found->footprint.place < one->footprint.place);
    }
}

static void run(int order, int most)
{
    static struct operation_in_flight all[OPERATIONS];
    struct overlaps overlaps;
    uint64_t random = 7;
    size_t next = 0;
    overlaps_init(&overlaps);
    for (int step = 0; step < STEPS; step++) {
        struct operation_in_flight *operation = &all[random_below(&random, (uint64_t)most)];
        if (operation->in_flight) {
            overlaps_leave(&overlaps, &operation->footprint);
            operation->in_flight = false;
        } else {
            choose_tensors(operation, &random, order, &next);
            overlaps_enter(&overlaps, &operation->request, &operation->footprint, operation);
            operation->in_flight = true;
        }
        for (int i = 0; i < OPERATIONS; i++)
            if (all[i].in_flight)
                check(&overlaps, all, &all[i]);
    }
    for (int i = 0; i < OPERATIONS; i++) {
        if (all[i].in_flight)
            overlaps_leave(&overlaps, &all[i].footprint);
        all[i].in_flight = false;
    }
    assert_null(overlaps.root);
    assert_null(overlaps.disjoint);
}

TEST(overlaps_are_those_of_all_pairs)
{
    static const int most[] = {2, 5, OPERATIONS};
    for (int order = -1; order <= 1; order++)
        for (size_t i = 0; i < sizeof most / sizeof *most; i++)
            run(order, most[i]);
}
