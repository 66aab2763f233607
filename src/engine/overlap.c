/* overlap.c - a treap of the address ranges of operations in flight. Nodes are ordered by the start of their
 * range, and by their own address among equals; each has the largest end in its subtree, so that a search
 * skips subtrees that end before it. Under the progress lock. */
#include "engine/overlap.h"

#include "base/types.h"

void overlaps_init(struct overlaps *overlaps)
{
    *overlaps = (struct overlaps){.weight = 1};
}

static bool comes_before(const struct memory_range *a, const struct memory_range *b)
{
    return a->start != b->start ? a->start < b->start : a < b;
}

static void extend(struct memory_range *node, const struct memory_range *child)
{
    for (int kind = 0; kind < RANGE_KINDS; kind++) {
        if (child->reach[kind] > node->reach[kind])
            node->reach[kind] = child->reach[kind];
    }
}

static void measure(struct memory_range *node)
{
    node->reach[ALL_RANGES] = node->end;
    node->reach[WRITTEN_RANGES] = node->written ? node->end : 0;
    if (node->left)
        extend(node, node->left);
    if (node->right)
        extend(node, node->right);
}

static void split(struct memory_range *tree, const struct memory_range *at, struct memory_range **left,
                  struct memory_range **right)
{
    if (!tree) {
        *left = *right = NULL;
        return;
    }
    if (comes_before(tree, at)) {
        *left = tree;
        split(tree->right, at, &tree->right, right);
    } else {
        *right = tree;
        split(tree->left, at, left, &tree->left);
    }
    measure(tree);
}

static struct memory_range *merge(struct memory_range *left, struct memory_range *right)
{
    if (!left || !right)
        return left ? left : right;
    struct memory_range *top = left->weight > right->weight ? left : right;
    if (top == left)
        left->right = merge(left->right, right);
    else
        right->left = merge(left, right->left);
    measure(top);
    return top;
}

static void insert(struct memory_range **tree, struct memory_range *node)
{
    measure(node); /* a leaf */
    while (*tree && node->weight <= (*tree)->weight) {
        extend(*tree, node);
        tree = comes_before(node, *tree) ? &(*tree)->left : &(*tree)->right;
    }
    split(*tree, node, &node->left, &node->right);
    measure(node);
    *tree = node;
}

static struct memory_range *remove_node(struct memory_range *tree, const struct memory_range *node)
{
    if (tree == node)
        return merge(tree->left, tree->right);
    if (comes_before(node, tree))
        tree->left = remove_node(tree->left, node);
    else
        tree->right = remove_node(tree->right, node);
    measure(tree);
    return tree;
}

typedef bool (*relation)(const struct footprint *other, const struct footprint *footprint);

static bool is_other(const struct footprint *other, const struct footprint *footprint)
{
    return other != footprint;
}

static bool holds_back(const struct footprint *other, const struct footprint *footprint)
{
    return other->place < footprint->place && (other->held || other->process_set != footprint->process_set);
}

/* Returns the first range that overlaps this one and whose operation is related to this one's. */
static const struct memory_range *find(const struct memory_range *tree, const struct memory_range *range,
                                       relation related)
{
    if (!tree || tree->reach[range->written ? ALL_RANGES : WRITTEN_RANGES] <= range->start)
        return NULL;
    const struct memory_range *found = find(tree->left, range, related);
    if (found || tree->start >= range->end)
        return found;
    bool overlap = tree->end > range->start && (tree->written || range->written);
    return overlap && related(tree->footprint, range->footprint) ? tree : find(tree->right, range, related);
}

/* ---- memory of operations ----------------------------------------------------------------------------- */

static bool is_in_place(const hvd_request *request)
{
    return !request->outputs && !operation_makes_results(request->operation);
}

static void insert_tensor(struct overlaps *overlaps, struct footprint *footprint, const hvd_tensor *tensor,
                          bool written)
{
    struct memory_range *range = &footprint->ranges[footprint->count];
    uintptr_t start = (uintptr_t)tensor->data;
    size_t bytes = tensor_bytes(tensor);
    if (!bytes)
        return;
    /* Marsaglia's xorshift: weights need only be independent of addresses. */
    overlaps->weight ^= overlaps->weight << 13;
    overlaps->weight ^= overlaps->weight >> 17;
    overlaps->weight ^= overlaps->weight << 5;
    *range = (struct memory_range){.start = start,
                                   .end = start + bytes,
                                   .footprint = footprint,
                                   .weight = overlaps->weight,
                                   .written = written};
    footprint->count++;
    insert(&overlaps->root, range);
}

static void insert_all(struct overlaps *overlaps, struct footprint *footprint)
{
    const hvd_request *request = footprint->request;
    for (int i = 0; i < request->count; i++) {
        insert_tensor(overlaps, footprint, &request->inputs[i], is_in_place(request));
        if (request->outputs)
            insert_tensor(overlaps, footprint, &request->outputs[i], true);
    }
}

/* ---- extents ------------------------------------------------------------------------------------------ */

static void bounds_join(struct bounds *bounds, struct bounds more)
{
    if (!bounds->end)
        *bounds = more;
    if (!more.end)
        return;
    bounds->start = more.start < bounds->start ? more.start : bounds->start;
    bounds->end = more.end > bounds->end ? more.end : bounds->end;
}

static bool bounds_meet(struct bounds a, struct bounds b)
{
    return a.start < b.end && b.start < a.end;
}

bool extent_add(struct extent *extent, const hvd_tensor *tensor, bool written)
{
    size_t bytes = tensor_bytes(tensor);
    struct bounds bounds = {(uintptr_t)tensor->data, (uintptr_t)tensor->data + bytes};
    if (!bytes)
        return true;
    bool disjoint = !bounds_meet(bounds, extent->written) && !(written && bounds_meet(bounds, extent->read));
    bounds_join(written ? &extent->written : &extent->read, bounds);
    return disjoint;
}

static struct extent extent_of(const hvd_request *request)
{
    struct extent extent = {0};
    for (int i = 0; i < request->count; i++) {
        extent_add(&extent, &request->inputs[i], is_in_place(request));
        if (request->outputs)
            extent_add(&extent, &request->outputs[i], true);
    }
    return extent;
}

/* ---- operations --------------------------------------------------------------------------------------- */

/* Returns false if it may overlap an operation in flight. */
static bool enter_extent(struct overlaps *overlaps, const hvd_request *request)
{
    if (!overlaps->extent.read.end && !overlaps->extent.written.end)
        overlaps->extent = extent_of(overlaps->disjoint->request);
    struct extent extent = extent_of(request), *all = &overlaps->extent;
    bool disjoint = !bounds_meet(extent.read, all->written) && !bounds_meet(extent.written, all->read) &&
                    !bounds_meet(extent.written, all->written);
    bounds_join(&all->read, extent.read);
    bounds_join(&all->written, extent.written);
    return disjoint;
}

static void add_disjoint(struct overlaps *overlaps, struct footprint *footprint)
{
    footprint->disjoint = true;
    footprint->previous = NULL;
    footprint->next = overlaps->disjoint;
    if (footprint->next)
        footprint->next->previous = footprint;
    overlaps->disjoint = footprint;
}

static void drop_disjoint(struct overlaps *overlaps, struct footprint *footprint)
{
    *(footprint->previous ? &footprint->previous->next : &overlaps->disjoint) = footprint->next;
    if (footprint->next)
        footprint->next->previous = footprint->previous;
    footprint->disjoint = false;
}

void overlaps_enter(struct overlaps *overlaps, const hvd_request *request, struct footprint *footprint,
                    void *owner)
{
    bool only = !overlaps->root && !overlaps->disjoint;
    footprint->place = ++overlaps->entered;
    footprint->process_set = request->process_set;
    footprint->request = request;
    footprint->owner = owner;
    if (only)
        overlaps->extent = (struct extent){0};
    if (only || enter_extent(overlaps, request)) {
        add_disjoint(overlaps, footprint);
        return;
    }
    for (struct footprint *other; (other = overlaps->disjoint);) {
        drop_disjoint(overlaps, other);
        insert_all(overlaps, other);
    }
    insert_all(overlaps, footprint);
}

void overlaps_leave(struct overlaps *overlaps, struct footprint *footprint)
{
    for (int i = 0; i < footprint->count; i++)
        overlaps->root = remove_node(overlaps->root, &footprint->ranges[i]);
    if (footprint->disjoint)
        drop_disjoint(overlaps, footprint);
    *footprint = (struct footprint){.ranges = footprint->ranges};
}

static const struct footprint *find_any(const struct overlaps *overlaps, const struct footprint *footprint,
                                        relation related)
{
    const struct memory_range *found = NULL;
    for (int i = 0; !found && i < footprint->count; i++)
        found = find(overlaps->root, &footprint->ranges[i], related);
    return found ? found->footprint : NULL;
}

bool overlaps_any(const struct overlaps *overlaps, const struct footprint *footprint)
{
    return find_any(overlaps, footprint, is_other);
}

void *overlaps_before(const struct overlaps *overlaps, const struct footprint *footprint)
{
    const struct footprint *found = find_any(overlaps, footprint, holds_back);
    return found ? found->owner : NULL;
}
