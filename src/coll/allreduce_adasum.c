/* allreduce_adasum.c - Adasum: parallel gradients are averaged, orthogonal ones added. The executor's thread.
 *
 *   a (+) b = (1 - ab / 2aa) a + (1 - ab / 2bb) b,  ab the dot product of a tensor; a factor is 1 if aa is 0
 *
 *   5 ranks               rank 0      rank 1      rank 2      rank 3      rank 4
 *   fold                  0(+)4  <------------------------------------------ sends
 *   distance 1            1st half    2nd half    1st half    2nd half       of 04(+)1, 04(+)1, 2(+)3, 2(+)3
 *   distance 2            1st quarter 3rd quarter 2nd quarter 4th quarter    of 041(+)23
 *   gather                all         all         all         all
 *   unfold                sends ------------------------------------------> all
 *
 *   cost: log2(n)(log2(n) + 5) / 2 steps, about; each rank sends the vector twice, and 24 bytes a tensor and
 * step.
 *
 *   hosts A (ranks 0 1 2) and B (ranks 3 4)
 *   within the hosts      0 folds 1, then 2 in    3 folds 4 in
 *   between the leaders   0 and 3 as above        a host sends the vector once, if hosts are a power of two
 *   within the hosts      0 sends all to 1, 2     3 to 4
 *
 * Partners exchange halves. Each computes the dot products of its part of both operands; the 2, 4, 8, ...
 * ranks with the other parts add these products by doubling. After Maleki and others, "Scaling distributed
 * training with adaptive summation", 2020. Every part of the result is computed by one rank. */
#include "coll/pattern.h"

#include "base/status.h"
#include "device/adasum.h"
#include "device/reduce.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* ---- partners of merges ------------------------------------------------------------------------------- */

/* The `power` members, each with an index, take part in the halving. Each other rank sends its part to its
 * parent, which folds it in first, and receives the result from there. */
struct tree {
    bool by_hosts; /* the members are leaders of hosts */
    int power;
    int index;                         /* of this rank, or of the member that gets its part */
    int parent;                        /* -1: a member */
    int children[PATTERN_CHILD_LIMIT]; /* ranks, in the order in which they are folded in */
    int count;
};

/* Returns true if leaders of hosts merge for their hosts. If hosts are equal and all numbers are powers of
 * two, halving all ranks by place merges within hosts first, and all ranks of a host share its traffic. */
static bool goes_by_hosts(const struct topology *topology)
{
    bool one_level = topology->hosts == 1 || topology->hosts == topology->size;
    bool alike = topology_is_homogeneous(topology) && pattern_power(topology->size) == topology->size;
    return !one_level && !alike;
}

static int rank_of(const struct collective *collective, const struct tree *tree, int member)
{
    const struct topology *topology = collective->topology;
    return topology->rank_at[tree->by_hosts ? topology->first[member] : member];
}

/* Adds this rank's parent and children in the binomial tree of its host. */
static void tree_add_host(const struct topology *topology, int rank, struct tree *tree)
{
    int local = topology_local_rank(topology, rank), size = topology_local_size(topology, rank);
    const int *ranks = topology->rank_at + topology->first[topology->host_of[rank]];
    for (int distance = 1; distance < size && tree->parent < 0; distance *= 2)
        if (local & distance)
            tree->parent = ranks[local - distance];
        else if (local + distance < size)
            tree->children[tree->count++] = ranks[local + distance];
}

static struct tree tree_of(const struct collective *collective)
{
    const struct topology *topology = collective->topology;
    int rank = collective->rank;
    struct tree tree = {.by_hosts = goes_by_hosts(topology), .parent = -1};
    int size = tree.by_hosts ? topology->hosts : topology->size;
    int at = tree.by_hosts ? topology->host_of[rank] : topology->place_of[rank];
    tree.power = pattern_power(size);
    tree.index = at % tree.power;
    if (tree.by_hosts)
        tree_add_host(topology, rank, &tree);
    if (tree.parent < 0 && at >= tree.power)
        tree.parent = rank_of(collective, &tree, tree.index);
    else if (tree.parent < 0 && at + tree.power < size)
        tree.children[tree.count++] = rank_of(collective, &tree, at + tree.power);
    return tree;
}

/* The collective's scratch. Until the gather, the collective's output consists of its tensors, the room, the
 * own products and the partner's products. */
struct adasum {
    hvd_dtype dtype;
    struct vector tensors; /* the collective's output as it was: a span for each */
    struct tree tree;
    size_t element;    /* bytes */
    size_t length;     /* of the tensors, in elements; the room follows them */
    struct range kept; /* the range of the tensors where this rank computes */
    char *room;        /* the partner's elements of that range */
    int folded;        /* children that have been folded in */
    int distance;      /* to the partner in the halving */
    bool finishes;     /* the last merge: its result is multiplied by the factor after the reduction */
    bool upper;        /* this rank's operand is the second one */
    int round;         /* distance of the next exchange of products; 0: exchange the operands first */
    struct products *own, *theirs;
    struct factors *factors;
    int *gates; /* the steps after which the blocks of index ^ 0, index ^ 1, ... are there */
};

struct factors {
    double lower, upper;
};

/* ---- ranges --------------------------------------------------------------------------------------- */

static struct range half_of(const struct collective *collective, struct range range, bool upper)
{
    struct range half = pattern_block(range.length, hvd_dtype_size(collective->dtype), 2, upper);
    return (struct range){range.offset + half.offset, half.length};
}

/* Returns the range that a member has at the end of the halving. */
static struct range block_of(const struct collective *collective, size_t length, const struct tree *tree,
                             int member)
{
    struct range range = {0, length};
    for (int distance = 1; distance < tree->power; distance *= 2)
        range = half_of(collective, range, member & distance);
    return range;
}

/* ---- memory --------------------------------------------------------------------------------------- */

static hvd_code begin(struct collective *collective, const struct tree *tree, hvd_status *status)
{
    struct range whole = whole_of(collective);
    size_t count = (size_t)collective->output.count, element = hvd_dtype_size(collective->dtype);
    struct range kept = tree->count > 0 ? whole : half_of(collective, whole, false);
    size_t room = kept.length * element;
    size_t lists = (count + 3) * (sizeof(struct span) + sizeof(size_t)) +
                   count * (2 * sizeof(struct products) + sizeof(struct factors)) +
                   (size_t)tree->power * sizeof(int);
    struct adasum *a = malloc(sizeof *a + lists + room);
    if (!a)
        return status_set(status, HVD_OUT_OF_MEMORY,
                          "rank %d has no memory for the %zu bytes that Adasum needs", collective->rank,
                          lists + room);
    struct span *spans = (struct span *)(a + 1);
    struct products *products = (struct products *)(spans + count + 3);
    struct factors *factors = (struct factors *)(products + 2 * count);
    size_t *starts = (size_t *)(factors + count);
    *a = (struct adasum){.dtype = collective->dtype,
                         .tensors = collective->output,
                         .tree = *tree,
                         .element = element,
                         .length = whole.length,
                         .kept = whole,
                         .distance = 1,
                         .own = products,
                         .theirs = products + count,
                         .factors = factors,
                         .gates = (int *)(starts + count + 3)};
    a->room = (char *)(a->gates + tree->power); /* which is even: aligned for every type */
    memcpy(spans, a->tensors.spans, count * sizeof *spans);
    spans[count] = (struct span){a->room, room};
    spans[count + 1] = (struct span){(char *)a->own, count * sizeof *products};
    spans[count + 2] = (struct span){(char *)a->theirs, count * sizeof *products};
    memset(a->theirs, 0, count * sizeof *products);
    collective->output = (struct vector){spans, starts, (int)count + 3, 0};
    vector_measure(&collective->output);
    collective->scratch = a;
    return HVD_OK;
}

/* ---- computing, a chunk at a time ------------------------------------------------------------------- */

/* Computes elements of one tensor, from byte `offset` of all tensors on. */
static void compute_piece(const struct collective *collective, bool multiplies, int tensor, size_t offset,
                          size_t elements)
{
    struct adasum *a = collective->scratch;
    char *own = a->tensors.spans[tensor].data + (offset - a->tensors.starts[tensor]);
    const char *theirs = a->room + (offset - a->kept.offset * a->element);
    const char *lower = a->upper ? theirs : own, *upper = a->upper ? own : theirs;
    if (multiplies)
        adasum_multiply(a->dtype, lower, upper, elements, &a->own[tensor]);
    else
        adasum_add(a->dtype, own, lower, upper, elements, a->factors[tensor].lower, a->factors[tensor].upper);
    if (!multiplies && a->finishes)
        reduce_scale(a->dtype, own, own, elements, collective->postscale, 1);
}

/* A step in the room multiplies, one among the tensors adds. */
static void compute(struct collective *collective, const struct step *step, size_t done, size_t length)
{
    struct adasum *a = collective->scratch;
    bool multiplies = step->offset >= a->length;
    size_t offset = ((multiplies ? a->kept.offset : step->offset) + done) * a->element;
    size_t end = offset + length * a->element;
    for (int tensor = vector_find(&a->tensors, offset); offset < end; tensor++) {
        size_t after = a->tensors.starts[tensor] + a->tensors.spans[tensor].length;
        size_t piece = (after < end ? after : end) - offset;
        if (piece)
            compute_piece(collective, multiplies, tensor, offset, piece / a->element);
        offset += piece;
    }
}

/* ---- one merge: operands, products, result ------------------------------------------------------------ */

static int add_step(struct schedule *schedule, enum step_kind kind, int peer, struct range range, int gate)
{
    return step_add(schedule, kind, peer, range,
                    (struct contribution){.buffer = BUFFER_OUTPUT, .gate = gate});
}

/* Plans the send of a merge. The first merge takes this rank's contribution, which must be moved to the
 * output. */
static void plan_send(const struct collective *collective, int partner, struct range sent, bool first,
                      struct schedule *schedule)
{
    const struct adasum *a = collective->scratch;
    struct contribution from = {.buffer = BUFFER_OUTPUT, .gate = STEP_NO_GATE};
    if (first) {
        from = contribution_add(collective, sent, schedule);
        if (collective->prescale != 1 || !vector_same(&collective->input, &a->tensors))
            copy_add(a->kept, false, schedule);
    }
    int send = add_step(schedule, STEP_SEND, partner, sent, from.gate);
    if (!schedule->failed)
        schedule->steps[send].buffer = from.buffer;
}

static bool is_folding(const struct adasum *a)
{
    return a->folded < a->tree.count;
}

static void plan_operands(struct collective *collective, bool first, struct schedule *schedule)
{
    struct adasum *a = collective->scratch;
    const struct tree *tree = &a->tree;
    struct range sent = {0, 0};
    int partner;
    if (is_folding(a)) {
        partner = tree->children[a->folded];
    } else {
        partner = rank_of(collective, tree, tree->index ^ a->distance);
        a->upper = tree->index & a->distance;
        sent = half_of(collective, a->kept, !a->upper);
        a->kept = half_of(collective, a->kept, a->upper);
    }
    plan_send(collective, partner, sent, first, schedule);
    struct range room = {a->length, a->kept.length};
    int receive = add_step(schedule, STEP_RECEIVE, partner, room, STEP_NO_GATE);
    add_step(schedule, STEP_COMPUTE, 0, room, receive);
    memset(a->own, 0, (size_t)a->tensors.count * sizeof *a->own);
    a->round = 1;
}

static void plan_products(struct collective *collective, struct schedule *schedule)
{
    struct adasum *a = collective->scratch;
    /* Doubles are sent as whole elements of the tensors' type, which is not longer than a double. */
    const size_t *starts = collective->output.starts + a->tensors.count;
    struct range own = {starts[1] / a->element, (starts[2] - starts[1]) / a->element};
    struct range theirs = {starts[2] / a->element, own.length};
    int partner = rank_of(collective, &a->tree, a->tree.index ^ a->round);
    add_step(schedule, STEP_SEND, partner, own, STEP_NO_GATE);
    add_step(schedule, STEP_RECEIVE, partner, theirs, STEP_NO_GATE);
    a->round *= 2;
}

static void products_add(struct adasum *a)
{
    for (int i = 0; i < a->tensors.count; i++) {
        a->own[i].lower += a->theirs[i].lower;
        a->own[i].upper += a->theirs[i].upper;
        a->own[i].mixed += a->theirs[i].mixed;
    }
}

/* A NaN stays a NaN. */
static double factor_of(double square, double product)
{
    return square < DBL_MIN ? 1 : 1 - product / (2 * square);
}

static void weigh(struct adasum *a)
{
    for (int i = 0; i < a->tensors.count; i++) {
        const struct products *sum = &a->own[i];
        a->factors[i].lower = factor_of(sum->lower, sum->mixed);
        a->factors[i].upper = factor_of(sum->upper, sum->mixed);
    }
}

/* ---- the whole -------------------------------------------------------------------------------------- */

/* Plans the gather: blocks return along the way of the halves, every byte as soon as it is there. */
static void plan_gather(const struct collective *collective, int own, struct schedule *schedule)
{
    const struct adasum *a = collective->scratch;
    const struct tree *tree = &a->tree;
    size_t length = a->length;
    a->gates[0] = own;
    for (int distance = tree->power / 2; distance > 0; distance /= 2) {
        int member = tree->index ^ distance, partner = rank_of(collective, tree, member);
        for (int x = 0; x < tree->power; x += 2 * distance) {
            add_step(schedule, STEP_SEND, partner, block_of(collective, length, tree, tree->index ^ x),
                     a->gates[x]);
            struct range theirs = block_of(collective, length, tree, member ^ x);
            a->gates[x + distance] = add_step(schedule, STEP_RECEIVE, partner, theirs, STEP_NO_GATE);
        }
    }
    for (int child = 0; child < tree->count; child++)
        for (int x = 0; x < tree->power; x++)
            add_step(schedule, STEP_SEND, tree->children[child],
                     block_of(collective, length, tree, tree->index ^ x), a->gates[x]);
}

/* Plans the steps of a rank that is no member: it sends its part, which includes those of its children, to
 * its parent. The result can't arrive before the part has left. */
static void plan_giving(const struct collective *collective, const struct tree *tree,
                        struct schedule *schedule)
{
    struct range whole = whole_of(collective);
    struct contribution from = {.buffer = BUFFER_OUTPUT, .gate = STEP_NO_GATE};
    if (!tree->count)
        from = contribution_add(collective, whole, schedule);
    int send = add_step(schedule, STEP_SEND, tree->parent, whole, from.gate);
    if (!schedule->failed)
        schedule->steps[send].buffer = from.buffer;
    for (int x = 0; x < tree->power; x++) {
        struct range block = block_of(collective, whole.length, tree, tree->index ^ x);
        int receive = add_step(schedule, STEP_RECEIVE, tree->parent, block, STEP_NO_GATE);
        for (int child = 0; child < tree->count; child++)
            add_step(schedule, STEP_SEND, tree->children[child], block, receive);
    }
}

/* Plans the result of a merge; returns true if it was the last one. */
static bool plan_result(struct collective *collective, struct schedule *schedule)
{
    struct adasum *a = collective->scratch;
    bool folding = is_folding(a), last = !folding && 2 * a->distance == a->tree.power;
    weigh(a);
    a->finishes = last && collective->postscale != 1;
    int add = add_step(schedule, STEP_COMPUTE, 0, a->kept, STEP_NO_GATE);
    if (last) {
        plan_gather(collective, add, schedule);
        collective->output = a->tensors;
    }
    if (folding)
        a->folded++;
    else
        a->distance *= 2;
    a->round = 0;
    return last;
}

/* Plans a phase of a rank that merges; returns true if it is the last one. */
static bool plan_merge(struct collective *collective, bool first, struct schedule *schedule)
{
    struct adasum *a = collective->scratch;
    if (a->round > 1)
        products_add(a);
    if (a->round == 0 && !is_folding(a) && a->tree.parent >= 0) {
        collective->output = a->tensors;
        plan_giving(collective, &a->tree, schedule);
        return true;
    }
    if (a->round == 0)
        plan_operands(collective, first, schedule);
    else if (!is_folding(a) && a->round <= a->distance)
        plan_products(collective, schedule);
    else
        return plan_result(collective, schedule);
    return false;
}

static hvd_code plan(struct collective *collective, int phase, struct schedule *schedule, bool *more,
                     hvd_status *status)
{
    if (phase == 0) {
        struct tree tree = tree_of(collective);
        if (tree.parent >= 0 && !tree.count) {
            *more = false;
            plan_giving(collective, &tree, schedule);
            return HVD_OK;
        }
        TRY(begin(collective, &tree, status));
    }
    *more = !plan_merge(collective, phase == 0, schedule);
    return HVD_OK;
}

const struct algorithm allreduce_adasum = {
    .name = "adasum", .operation = HVD_ALLREDUCE, .plan = plan, .compute = compute, .adasum = true};
