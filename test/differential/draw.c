/* draw.c - the next phase of a program, see program.h. */
#include "differential/program.h"

#include <stdio.h>
#include <string.h>

enum { AREAS = 3 };

/* Of an ordered phase. Every number in it is a multiple of 2^low, and none is larger than 2^high. */
struct area {
    hvd_dtype type;
    size_t at;
    int64_t elements;
    int low, high;
};

struct drawing {
    struct phase *phase;
    const struct layout *layout;
    uint64_t *state;
    struct area areas[AREAS];
    int area_count;
    bool alike;   /* all ranks share memory alike, as they must where several sets do */
    int only_set; /* else: the one of an ordered phase */
};

static int64_t below(struct drawing *d, int64_t n)
{
    return random_below(d->state, n);
}

static bool chance(struct drawing *d, int percent)
{
    return random_chance(d->state, percent);
}

static unsigned family_of(hvd_dtype type)
{
    return dtype_table[type].family;
}

/* ---- process sets ---------------------------------------------------------------------------------------
 */

static void add_set(struct drawing *d)
{
    struct set *set = &d->phase->sets[d->phase->set_count];
    *set = (struct set){.generation = ++d->phase->generations, .opened = chance(d, 30)};
    set->members = 1 + (unsigned)below(d, (1 << d->layout->size) - 1);
    for (int rank = 0; rank < d->layout->size; rank++)
        if (has_rank(set->members, rank))
            set->ranks[set->size++] = rank;
    d->phase->set_count++;
}

static void remove_set(struct drawing *d, int which)
{
    struct phase *phase = d->phase;
    phase->set_count--;
    memmove(&phase->sets[which], &phase->sets[which + 1],
            (size_t)(phase->set_count - which) * sizeof *phase->sets);
}

static void draw_sets(struct drawing *d, const struct phase *before)
{
    struct phase *phase = d->phase;
    if (!before) {
        phase->set_count = 1;
        phase->sets[0] = (struct set){.members = (1U << d->layout->size) - 1, .size = d->layout->size};
        for (int rank = 0; rank < d->layout->size; rank++)
            phase->sets[0].ranks[rank] = rank;
    } else {
        phase->generations = before->generations;
        phase->set_count = before->set_count;
        memcpy(phase->sets, before->sets, sizeof phase->sets);
    }
    if (phase->set_count > 1 && chance(d, 20))
        remove_set(d, 1 + (int)below(d, phase->set_count - 1));
    for (int wanted = before ? (int)chance(d, 25) : (int)below(d, 3); wanted && phase->set_count < SETS;
         wanted--)
        add_set(d);
}

/* ---- memory ---------------------------------------------------------------------------------------------
 */

/* For an unordered phase: after the memory in use, with a gap in which the fill of the arena detects writes.
 */
static void claim(struct drawing *d, size_t *at, const int64_t *elements, hvd_dtype type,
                  enum filling filling)
{
    size_t size = hvd_dtype_size(type);
    struct region *region = &d->phase->regions[d->phase->region_count++];
    *region = (struct region){.type = type, .filling = filling};
    for (int rank = 0; rank < d->layout->size; rank++) {
        size_t start = d->phase->bytes[rank] + (size_t)below(d, 70);
        at[rank] = region->at[rank] = (start + size - 1) / size * size;
        region->elements[rank] = elements[rank];
        d->phase->bytes[rank] = at[rank] + (size_t)elements[rank] * size;
    }
}

/* The results of what has the shape of its input. */
static bool works_in_place(const struct program_step *step)
{
    return !operation_makes_results(step->operation) && (step->in_place || !step->given);
}

static void place_apart(struct drawing *d, struct program_step *step, struct tensor *tensor)
{
    int64_t in[RANKS], out[RANKS];
    size_t row = (size_t)tensor_width(tensor) * hvd_dtype_size(tensor->type);
    for (int rank = 0; rank < d->layout->size; rank++) {
        bool member = has_rank(d->phase->sets[step->set].members, rank);
        in[rank] = member ? input_elements(tensor, rank) : 0;
        out[rank] = member && step->given ? output_elements(d->phase, step, tensor, rank) : 0;
        if (step->fate == FATE_MISFIT && rank == step->culprit)
            out[rank] += tensor_width(tensor);
    }
    bool within = step->in_place && operation_makes_results(step->operation);
    if (within && step->operation == HVD_ALLGATHER)
        claim(d, tensor->output, out, tensor->type, tensor->filling);
    else
        claim(d, tensor->input, in, tensor->type, tensor->filling);
    for (int rank = 0; within && rank < d->layout->size; rank++) {
        size_t before = (size_t)rows_before(d->phase, step, tensor, rank) * row;
        if (step->operation == HVD_ALLGATHER)
            tensor->input[rank] = tensor->output[rank] + before;
        else
            tensor->output[rank] = tensor->input[rank] + before;
    }
    if (works_in_place(step))
        memcpy(tensor->output, tensor->input, sizeof tensor->output);
    else if (!within && step->given)
        claim(d, tensor->output, out, tensor->type, FILL_BITS);
}

static bool meet(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Anywhere in the area of its type; on each rank elsewhere, but in groups, which all ranks share alike. False
 * where input and output would meet. */
static bool place_in_area(struct drawing *d, struct program_step *step, struct tensor *tensor,
                          const struct area *area)
{
    size_t size = hvd_dtype_size(tensor->type);
    bool everywhere = step->grouped || d->alike || chance(d, 60);
    for (int rank = 0; rank < d->layout->size; rank++) {
        int64_t in = input_elements(tensor, rank);
        bool member = has_rank(d->phase->sets[step->set].members, rank);
        bool has_one = member || !operation_makes_results(step->operation);
        int64_t out = step->given && has_one ? output_elements(d->phase, step, tensor, rank) : 0;
        if (in > area->elements || out > area->elements)
            return false;
        tensor->input[rank] = area->at + (size_t)below(d, area->elements - in + 1) * size;
        tensor->output[rank] = area->at + (size_t)below(d, area->elements - out + 1) * size;
        if (everywhere && rank && in == input_elements(tensor, 0))
            tensor->input[rank] = tensor->input[0];
        if (everywhere && rank && (step->grouped || d->alike))
            tensor->output[rank] = tensor->output[0];
        if (works_in_place(step))
            tensor->output[rank] = tensor->input[rank];
        else if (step->given &&
                 meet(tensor->input[rank], (size_t)in * size, tensor->output[rank], (size_t)out * size))
            return false;
    }
    return true;
}

static void draw_areas(struct drawing *d)
{
    d->area_count = 1 + (int)below(d, AREAS);
    for (int i = 0; i < d->area_count; i++) {
        struct area *area = &d->areas[i];
        int64_t elements[RANKS];
        size_t at[RANKS], end = d->phase->bytes[0];
        *area = (struct area){.type = dtypes[below(d, DTYPES)], .high = 2};
        area->elements = 1 + below(d, (int64_t[]){8, 70, 2000, 30000}[below(d, 20) ? below(d, 3) : 3]);
        for (int rank = 0; rank < RANKS; rank++) {
            elements[rank] = area->elements;
            d->phase->bytes[rank] = end;
        }
        claim(d, at, elements, area->type, FILL_EXACT);
        area->at = at[0];
        for (int rank = 0; rank < d->layout->size; rank++) {
            d->phase->regions[i].at[rank] = at[0];
            d->phase->bytes[rank] = at[0] + (size_t)area->elements * hvd_dtype_size(area->type);
        }
    }
}

/* ---- factors --------------------------------------------------------------------------------------------
 */

static double draw_factor(struct drawing *d, bool exact)
{
    static const double powers[] = {0.5, 2, -1, 0.25, 4, 0, -0.0};
    static const double any[] = {INFINITY, NAN, 1e-310, 1e-40, 0x1p-1074, 3, 1.0 / 3, -0.1, 1e4, 1e-4, -7.25};
    if (chance(d, 60))
        return 1;
    return exact || chance(d, 40) ? powers[below(d, 7)] : any[below(d, 11)];
}

/* ---- exact numbers --------------------------------------------------------------------------------------
 */

static int log2_up(int n)
{
    int log = 0;
    while (1 << log < n)
        log++;
    return log;
}

static bool fits(const struct area *area)
{
    static const struct limits {
        int digits, high, low;
    } halves = {11, 15, -14}, bfloats = {8, 126, -126}, singles = {24, 126, -126},
      doubles = {53, 1000, -1000};
    const struct limits *limits = area->type == HVD_FLOAT16                                  ? &halves
                                  : area->type == HVD_BFLOAT16                               ? &bfloats
                                  : area->type == HVD_FLOAT32 || area->type == HVD_COMPLEX64 ? &singles
                                                                                             : &doubles;
    return area->high - area->low <= limits->digits && area->high <= limits->high && area->low >= limits->low;
}

static void scale(struct area *area, double factor)
{
    int exponent = factor == 0 ? 0 : ilogb(factor);
    area->high += exponent > 0 ? exponent : 0;
    area->low += exponent < 0 ? exponent : 0;
}

/* Computes the numbers of an area after a reduction over `ranks`; returns false if they are no longer exact.
 */
static bool stays_exact(struct area *area, const struct program_step *step, int ranks)
{
    struct area after = *area;
    int log = log2_up(ranks);
    if (is_integer(area->type))
        return step->reduction != HVD_ADASUM;
    scale(&after, step->prescale);
    if (step->reduction == HVD_PRODUCT) {
        after.high *= ranks;
        after.low *= ranks;
        after.high += family_of(area->type) == FAMILY_complex ? ranks : 0;
    } else if (step->reduction == HVD_SUM || step->reduction == HVD_AVERAGE) {
        after.high += log + 1;
        after.low -= step->reduction == HVD_AVERAGE ? log : 0;
    }
    scale(&after, step->postscale);
    if (step->reduction == HVD_ADASUM || !fits(&after) ||
        (step->reduction == HVD_AVERAGE && ranks != 1 << log))
        return false;
    *area = after;
    return true;
}

/* ---- one step -------------------------------------------------------------------------------------------
 */

static int64_t draw_rows(struct drawing *d)
{
    static const int64_t limits[] = {0, 1, 2, 5, 9, 17, 70, 300, 3000, 60000};
    int64_t which = below(d, 60);
    return below(d, limits[which == 0 ? 9 : which < 5 ? 8 : which % 8] + 1);
}

static void draw_shape(struct drawing *d, const struct program_step *step, struct tensor *tensor)
{
    bool own = step->operation == HVD_ALLGATHER || step->operation == HVD_ALLTOALL;
    int64_t rows = draw_rows(d);
    tensor->ndim = (int)below(d, DIMENSIONS + 1);
    if (!tensor->ndim && (own || step->operation == HVD_REDUCESCATTER))
        tensor->ndim = 1;
    for (int i = 1; i < tensor->ndim; i++)
        tensor->extents[i] = below(d, 20) ? 1 + below(d, rows > 300 ? 2 : 4) : 0;
    for (int rank = 0; rank < d->layout->size; rank++)
        tensor->rows[rank] = own ? below(d, rows + 1) + (step->even ? 0 : below(d, 2)) : rows;
    for (int rank = 0; step->even && rank < d->layout->size; rank++)
        tensor->rows[rank] -= tensor->rows[rank] % d->phase->sets[step->set].size;
}

static void draw_splits(struct drawing *d, struct program_step *step)
{
    const struct set *set = &d->phase->sets[step->set];
    const struct tensor *tensor = &step->tensors[0];
    for (int i = 0; i < set->size; i++) {
        int from = set->ranks[i];
        int64_t left = has_rank(step->by, from) ? tensor->rows[from] : 0;
        for (int j = 0; j < set->size; j++) {
            int64_t rows = step->even ? left / (set->size - j) : below(d, 3) ? below(d, left + 1) : 0;
            step->splits[from][set->ranks[j]] = rows;
            left -= rows;
        }
    }
}

static bool runs_without_joined(const struct drawing *d, const struct program_step *step)
{
    if (step->operation == HVD_ALLREDUCE || step->operation == HVD_BARRIER)
        return true;
    return d->layout->join_all && (step->operation != HVD_BROADCAST || has_rank(step->by, step->root));
}

/* An operation, its reduction and its factors, that the types of the tensors have. */
static void draw_operation(struct drawing *d, struct program_step *step, bool exact)
{
    static const hvd_operation operations[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE,     HVD_ALLGATHER,
                                               HVD_BROADCAST, HVD_ALLTOALL,  HVD_REDUCESCATTER, HVD_BARRIER};
    const struct set *set = &d->phase->sets[step->set];
    step->operation = operations[below(d, 40) ? below(d, 7) : 7];
    step->root = set->ranks[below(d, set->size)];
    step->even = step->operation == HVD_ALLTOALL && chance(d, 30);
    step->count = step->operation == HVD_BARRIER ? 0 : 1;
    if (step->count && step->operation != HVD_ALLTOALL && chance(d, 30)) {
        step->grouped = true;
        step->count = 1 + (int)below(d, TENSORS);
    }
    if (exact && step->grouped)
        step->given = step->count && chance(d, 50);
    step->in_place = step->given && step->operation != HVD_ALLTOALL && chance(d, 50);
    step->reduction = reductions[below(d, step->operation == HVD_ALLREDUCE ? REDUCTIONS : 2)];
    step->prescale = step->postscale = 1;
    if (operation_reduces(step->operation)) {
        exact = exact || step->reduction == HVD_ADASUM;
        step->prescale = draw_factor(d, exact);
        step->postscale = draw_factor(d, exact);
    }
}

/* Whether the reduction takes this type; a factor it must not have is dropped. */
static bool takes(struct program_step *step, hvd_dtype type)
{
    if (!operation_reduces(step->operation))
        return true;
    if (family_of(type) == FAMILY_logical)
        step->prescale = step->postscale = 1;
    return reduction_takes(step->reduction, type);
}

static void make_apart(struct drawing *d, struct program_step *step)
{
    bool mixed = chance(d, 40);
    for (int t = 0; t < step->count; t++) {
        struct tensor *tensor = &step->tensors[t];
        do {
            tensor->type = t && !mixed ? step->tensors[0].type : dtypes[below(d, DTYPES)];
        } while (!takes(step, tensor->type));
        tensor->filling = (enum filling)below(d, 4);
        if (step->reduction == HVD_ADASUM && operation_reduces(step->operation))
            tensor->filling = FILL_ORDINARY;
        draw_shape(d, step, tensor);
    }
    if (step->operation == HVD_ALLTOALL)
        draw_splits(d, step);
}

/* Into the areas; false where that can't be. */
static bool make_in_areas(struct drawing *d, struct program_step *step)
{
    int size = d->phase->sets[step->set].size;
    struct area after[AREAS];
    memcpy(after, d->areas, sizeof after);
    if (step->grouped && operation_makes_results(step->operation))
        step->given = step->in_place = false;
    if (operation_makes_results(step->operation))
        step->in_place = false;
    if (d->alike && operation_makes_results(step->operation))
        return false;
    for (int t = 0; t < step->count; t++) {
        struct tensor *tensor = &step->tensors[t];
        struct area *area = &after[below(d, d->area_count)];
        tensor->type = area->type;
        tensor->filling = FILL_EXACT;
        if (!takes(step, tensor->type))
            return false;
        if (operation_reduces(step->operation) && !stays_exact(area, step, size))
            return false;
        draw_shape(d, step, tensor);
        if (step->operation == HVD_ALLTOALL)
            draw_splits(d, step);
        if (!place_in_area(d, step, tensor, area))
            return false;
    }
    memcpy(d->areas, after, sizeof after);
    return true;
}

/* ---- what does not go well ------------------------------------------------------------------------------
 */

static int count_ranks(unsigned ranks)
{
    return __builtin_popcount(ranks);
}

static int draw_rank(struct drawing *d, unsigned ranks)
{
    int which = (int)below(d, count_ranks(ranks));
    for (int rank = 0;; rank++)
        if (has_rank(ranks, rank) && which-- == 0)
            return rank;
}

static void refuse(struct drawing *d, struct program_step *step)
{
    static const struct {
        hvd_operation operation;
        hvd_reduction reduction;
        hvd_dtype type;
        double factor;
    } refused[] = {
        {HVD_ALLREDUCE, HVD_AVERAGE, HVD_BOOL, 1},      {HVD_ALLREDUCE, HVD_MAX, HVD_COMPLEX64, 1},
        {HVD_ALLREDUCE, HVD_ADASUM, HVD_INT32, 1},      {HVD_REDUCESCATTER, HVD_MAX, HVD_FLOAT32, 1},
        {HVD_REDUCESCATTER, HVD_SUM, HVD_BOOL, 0.5},    {HVD_ALLREDUCE, HVD_SUM, HVD_BOOL, 2},
        {HVD_REDUCESCATTER, HVD_ADASUM, HVD_FLOAT32, 1}};
    int which = (int)below(d, sizeof refused / sizeof *refused);
    step->fate = FATE_REFUSED;
    step->operation = refused[which].operation;
    step->reduction = refused[which].reduction;
    step->postscale = refused[which].factor;
    step->prescale = 1;
    step->count = 1;
    step->grouped = step->given = step->in_place = step->even = false;
    step->tensors[0].type = refused[which].type;
    draw_shape(d, step, &step->tensors[0]);
}

/* Integers take finite factors only. */
static bool has_bad_factor(const struct program_step *step)
{
    bool whole = false;
    for (int t = 0; t < step->count; t++)
        whole = whole || family_of(step->tensors[t].type) == FAMILY_integer;
    return whole && !(isfinite(step->prescale) && isfinite(step->postscale));
}

static void draw_fate(struct drawing *d, struct program_step *step, bool late)
{
    step->fate = late && !runs_without_joined(d, step) ? FATE_ABSENT : FATE_RUNS;
    step->culprit = draw_rank(d, step->by);
    if (has_bad_factor(step)) {
        step->fate = FATE_REFUSED;
    } else if (chance(d, 3)) {
        refuse(d, step);
    } else if (chance(d, 6) && count_ranks(step->by) > 1 && step->count) {
        step->fate = FATE_DIFFERS;
        step->difference = (enum difference)below(d, DIFFERENCES);
        step->given = step->in_place = false;
    } else if (!d->phase->ordered && step->fate == FATE_RUNS && step->given && !step->in_place &&
               !step->grouped && operation_makes_results(step->operation) && chance(d, 10)) {
        step->fate = FATE_MISFIT;
    }
}

/* ---- a phase --------------------------------------------------------------------------------------------
 */

static void draw_step(struct drawing *d, struct program_step *step, int index)
{
    struct phase *phase = d->phase;
    for (int attempt = 0;; attempt++) {
        *step = (struct program_step){.number = step->number, .named = !phase->ordered || chance(d, 60)};
        step->set = phase->ordered && !d->alike ? d->only_set : (int)below(d, phase->set_count);
        bool late = phase->joiners && step->set == phase->join_set && index >= phase->step_count / 2;
        step->by = phase->sets[step->set].members & ~(late ? phase->joiners : 0);
        step->priority = (int)below(d, 3);
        snprintf(step->name, sizeof step->name, "t%d", index);
        draw_operation(d, step, phase->ordered);
        if (attempt > 30)
            *step = (struct program_step){.number = step->number,
                                          .operation = HVD_BARRIER,
                                          .named = true,
                                          .by = phase->sets[0].members &
                                                ~(phase->join_set || !late ? 0 : phase->joiners)};
        if (!phase->ordered)
            make_apart(d, step);
        else if (attempt <= 30 && !make_in_areas(d, step))
            continue;
        draw_fate(d, step, late);
        for (int t = 0; !phase->ordered && t < step->count; t++)
            place_apart(d, step, &step->tensors[t]);
        return;
    }
}

static void draw_joiners(struct drawing *d)
{
    struct phase *phase = d->phase;
    phase->join_set = (int)below(d, phase->set_count);
    unsigned members = phase->sets[phase->join_set].members;
    if (count_ranks(members) < 2 || !chance(d, 15))
        return;
    while (!phase->joiners || phase->joiners == members)
        phase->joiners = (unsigned)below(d, 1 << RANKS) & members;
}

static bool same_sets(const struct phase *a, const struct phase *b)
{
    bool same = a->set_count == b->set_count;
    for (int i = 0; same && i < a->set_count; i++)
        same = a->sets[i].generation == b->sets[i].generation;
    return same;
}

void phase_draw(struct phase *phase, const struct phase *before, const struct layout *layout, uint64_t *state,
                int *next_number)
{
    struct drawing d = {.phase = phase, .layout = layout, .state = state};
    *phase = (struct phase){0};
    draw_sets(&d, before);
    if (before && same_sets(phase, before) &&
        chance(&d, 25)) { /* what the ranks have agreed on is run again */
        *phase = *before;
    } else {
        phase->ordered = chance(&d, 45);
        phase->shared_memory = chance(&d, 20);
        phase->step_count = 3 + (int)below(&d, STEPS - 2);
        draw_joiners(&d);
        d.alike = chance(&d, 40);
        d.only_set = (int)below(&d, phase->set_count);
        if (phase->ordered)
            draw_areas(&d);
        for (int i = 0; i < phase->step_count; i++)
            draw_step(&d, &phase->steps[i], i);
    }
    phase->seed = random_next(state);
    for (int i = 0; i < phase->step_count; i++)
        phase->steps[i].number = (*next_number)++;
}
