/* parts.c - divides a group whose tensors share memory into parts. No state; any thread. */
#include "engine/parts.h"

#include "base/status.h"
#include "base/types.h"
#include "engine/overlap.h"

#include <stdbool.h>
#include <stdlib.h>

/* Memory of one tensor of the group. */
struct member_range {
    uintptr_t start, end;
    int member;
    bool written;
};

/* Ranges of equal memory are in the order of the group, so that one pass of raise_parts divides them. */
static int compare_ranges(const void *a, const void *b)
{
    const struct member_range *x = a, *y = b;
    return x->start == y->start ? x->member - y->member : x->start > y->start ? 1 : -1;
}

/* Tensors are mostly in memory in the order of the group, so comparing bounds suffices. */
static bool may_share(const hvd_request *request)
{
    struct extent extent = {0};
    bool disjoint = true;
    for (int i = 0; disjoint && i < request->count; i++) {
        disjoint = extent_add(&extent, &request->inputs[i], !request->outputs);
        if (disjoint && request->outputs)
            disjoint = extent_add(&extent, &request->outputs[i], true);
    }
    return !disjoint;
}

static int add_range(struct member_range *ranges, int count, const hvd_tensor *tensor, int member,
                     bool written)
{
    size_t bytes = tensor_bytes(tensor);
    uintptr_t start = (uintptr_t)tensor->data;
    if (!bytes)
        return count;
    ranges[count] = (struct member_range){start, start + bytes, member, written};
    return count + 1;
}

static int list_ranges(const hvd_request *request, struct member_range *ranges)
{
    int count = 0;
    for (int i = 0; i < request->count; i++) {
        count = add_range(ranges, count, &request->inputs[i], i, !request->outputs);
        if (request->outputs)
            count = add_range(ranges, count, &request->outputs[i], i, true);
    }
    qsort(ranges, (size_t)count, sizeof *ranges, compare_ranges);
    return count;
}

/* Moves the later one of two tensors that share memory to a later part; returns false if none had to move. */
static bool raise_parts(const struct member_range *ranges, int count, uint16_t *parts)
{
    bool raised = false;
    for (int i = 0; i < count; i++) {
        for (int j = i + 1; j < count && ranges[j].start < ranges[i].end; j++) {
            int a = ranges[i].member, b = ranges[j].member;
            int first = a < b ? a : b, second = a < b ? b : a;
            if (a == b || !(ranges[i].written || ranges[j].written) || parts[second] > parts[first])
                continue;
            parts[second] = (uint16_t)(parts[first] + 1);
            raised = true;
        }
    }
    return raised;
}

/* Finds the part of each tensor; returns how many parts there are, 0 if memory is out. */
static int divide(const hvd_request *request, uint16_t *parts)
{
    size_t lists = request->outputs ? 2 : 1;
    struct member_range *ranges = reallocarray(NULL, (size_t)request->count * lists, sizeof *ranges);
    if (!ranges)
        return 0;
    int count = list_ranges(request, ranges), last = 0;
    while (raise_parts(ranges, count, parts))
        ;
    for (int i = 0; i < request->count; i++)
        last = parts[i] > last ? parts[i] : last;
    free(ranges);
    return last + 1;
}

hvd_code parts_find(const hvd_request *request, struct parts *parts, hvd_status *status)
{
    *parts = (struct parts){.count = 1};
    bool reads_only = operation_makes_results(request->operation) && !request->outputs;
    if (reads_only || !may_share(request))
        return HVD_OK;
    parts->of = calloc((size_t)request->count, sizeof *parts->of);
    parts->count = parts->of ? divide(request, parts->of) : 0;
    if (!parts->count) {
        parts_free(parts);
        return status_no_memory(status);
    }
    if (parts->count == 1)
        parts_free(parts);
    return HVD_OK;
}

void parts_free(struct parts *parts)
{
    free(parts->of);
    parts->of = NULL;
}
