/* parts.c - see handle.h. */
#include "engine/handle.h"

#include "base/status.h"
#include "base/types.h"
#include "engine/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_FORMAT "part %d of %s"
#define NAME_EXTRA  24 /* bytes, at most, that the format adds */

/* ---- division --------------------------------------------------------------------------------------- */

/* Memory of one tensor of the group. */
struct member_range {
    uintptr_t start, end;
    int member;
    bool written;
};

/* The same memory in the order of the group, so that one pass of raise_parts divides it. */
static int compare_ranges(const void *a, const void *b)
{
    const struct member_range *x = a, *y = b;
    return x->start == y->start ? x->member - y->member : x->start > y->start ? 1 : -1;
}

/* Tensors mostly lie in memory as they come. */
static bool may_share(const hvd_request *request)
{
    struct extent extent = {0};
    bool apart = true;
    for (int i = 0; apart && i < request->count; i++) {
        apart = extent_add(&extent, &request->inputs[i], !request->outputs);
        if (apart && request->outputs)
            apart = extent_add(&extent, &request->outputs[i], true);
    }
    return !apart;
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

/* The later one of two that share memory belongs to a later part; false when all do already. */
static bool raise_parts(const struct member_range *ranges, int count, int *parts)
{
    bool raised = false;
    for (int i = 0; i < count; i++) {
        for (int j = i + 1; j < count && ranges[j].start < ranges[i].end; j++) {
            int a = ranges[i].member, b = ranges[j].member;
            int first = a < b ? a : b, second = a < b ? b : a;
            if (a == b || !(ranges[i].written || ranges[j].written) || parts[second] > parts[first])
                continue;
            parts[second] = parts[first] + 1;
            raised = true;
        }
    }
    return raised;
}

/* The part of each tensor, from 0 on; returns how many parts there are, -1 when memory is out. */
static int divide(const hvd_request *request, int *parts)
{
    size_t lists = request->outputs ? 2 : 1;
    struct member_range *ranges = reallocarray(NULL, (size_t)request->count * lists, sizeof *ranges);
    if (!ranges)
        return -1;
    int count = list_ranges(request, ranges), last = 0;
    while (raise_parts(ranges, count, parts))
        ;
    for (int i = 0; i < request->count; i++)
        last = parts[i] > last ? parts[i] : last;
    free(ranges);
    return last + 1;
}

/* ---- creation --------------------------------------------------------------------------------------- */

/* A tensor of another part: one dimension more, of extent 0. */
static int64_t *empty_tensor(hvd_tensor *tensor, int64_t *shape)
{
    int kept = tensor->ndim < HVD_MAX_DIMENSIONS ? tensor->ndim : HVD_MAX_DIMENSIONS - 1;
    shape[0] = 0;
    if (kept)
        memcpy(shape + 1, tensor->shape, (size_t)kept * sizeof *shape);
    tensor->shape = shape;
    tensor->ndim = kept + 1;
    return shape + kept + 1;
}

/* The request of one part, in lists of the caller. */
static hvd_request part_request(const struct hvd_handle *whole, const int *parts, int part,
                                hvd_tensor *tensors, int64_t *shapes)
{
    hvd_request request = whole->request;
    for (int i = 0; i < request.count; i++) {
        hvd_tensor *output = tensors + request.count + i;
        tensors[i] = whole->request.inputs[i];
        if (request.outputs)
            *output = whole->request.outputs[i];
        if (parts[i] == part)
            continue;
        shapes = empty_tensor(&tensors[i], shapes);
        output->shape = tensors[i].shape;
        output->ndim = tensors[i].ndim;
    }
    request.inputs = tensors;
    request.outputs = request.outputs ? tensors + request.count : NULL;
    request.done = NULL;
    return request;
}

static hvd_code create_part(struct hvd_handle *whole, hvd_request *request, int part, int size,
                            struct hvd_handle ***tail, hvd_status *status)
{
    struct hvd_handle *created;
    /* Without the operation in front, which handle_create adds. Later parts get room for a name. */
    const char *name = request->name ? strchr(whole->name, '.') + 1 : NULL;
    request->name = part ? NULL : name;
    hvd_code code = handle_create(whole->context, request, size, false, &created, status);
    if (code)
        return code;
    handle_release(created); /* the engine's reference is the only one */
    atomic_fetch_add_explicit(&whole->references, 1, memory_order_relaxed);
    created->whole = whole;
    created->part = part;
    if (part && name)
        parts_name(created);
    **tail = created;
    *tail = &created->following;
    return HVD_OK;
}

static hvd_code create_all(struct hvd_handle *whole, const int *parts, int count, int size,
                           hvd_status *status)
{
    const hvd_request *request = &whole->request;
    size_t tensors = (size_t)request->count, extents = tensors;
    if (request->name && whole->name_length + NAME_EXTRA >= REQUEST_NAME_LIMIT)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the name %.40s... has %u bytes; that of a group whose tensors share memory may "
                          "have %d",
                          whole->name, (unsigned)whole->name_length, REQUEST_NAME_LIMIT - NAME_EXTRA - 1);
    for (int i = 0; i < request->count; i++)
        extents += (size_t)request->inputs[i].ndim;
    hvd_tensor *list = reallocarray(NULL, 2 * tensors, sizeof *list);
    int64_t *shapes = reallocarray(NULL, extents, sizeof *shapes);
    hvd_code code = HVD_OK;
    if (!list || !shapes)
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory while submitting %s", whole->name);
    struct hvd_handle **tail = &whole->parts;
    for (int part = 0; !code && part < count; part++) {
        hvd_request own = part_request(whole, parts, part, list, shapes);
        code = create_part(whole, &own, part, size, &tail, status);
    }
    free(list);
    free(shapes);
    if (code)
        parts_drop(whole);
    return code;
}

hvd_code parts_create(struct hvd_handle *whole, int size, hvd_status *status)
{
    const hvd_request *request = &whole->request;
    if (request->count < 2)
        return HVD_OK;
    bool reads_only = operation_makes_results(request->operation) && !request->outputs;
    if (reads_only || !may_share(request))
        return HVD_OK;
    int *parts = calloc((size_t)request->count, sizeof *parts);
    int count = parts ? divide(request, parts) : -1;
    hvd_code code = HVD_OK;
    if (count < 0)
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory while submitting %s", whole->name);
    else if (count > 1)
        code = create_all(whole, parts, count, size, status);
    free(parts);
    return code;
}

void parts_drop(struct hvd_handle *whole)
{
    for (struct hvd_handle *part = whole->parts, *next; part; part = next) {
        next = part->following;
        handle_release(part);
    }
    whole->parts = NULL;
}

/* ---- one after the other ---------------------------------------------------------------------------- */

bool parts_wait(const struct hvd_handle *part)
{
    return part->whole && part->whole->parts_done < part->part && !handle_is_done(part->whole);
}

hvd_code parts_check(const struct hvd_handle *part, hvd_status *status)
{
    bool ended = part->whole && handle_is_done(part->whole) && part->whole->failure;
    return ended ? status_copy(status, part->whole->failure) : HVD_OK;
}

void parts_ended(struct hvd_handle *part, const hvd_status *status)
{
    struct hvd_handle *whole = part->whole, *following = part->following;
    if (!whole)
        return;
    if (part->failure) /* this rank's own, if the status is none: the other ranks go on, and so do its parts
                        */
        handle_fail(whole, part->failure);
    whole->parts_done += !status->code;
    if (!handle_is_done(whole) && (status->code || !following))
        handle_finish(whole, status);
    if (following && following->touched.held) {
        following->next = part->context->released;
        part->context->released = following;
    }
}

void parts_name(struct hvd_handle *part)
{
    struct hvd_handle *whole = part->whole;
    if (part->part)
        snprintf(part->name, REQUEST_NAME_LIMIT, NAME_FORMAT, part->part + 1, whole->name);
    else if (!whole->request.name)
        memcpy(whole->name, part->name, strlen(part->name) + 1);
}
