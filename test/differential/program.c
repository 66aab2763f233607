/* program.c - see program.h. */
#include "differential/program.h"

#include <stdio.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------------------
 */

int set_rank(const struct set *set, int rank)
{
    for (int i = 0; i < set->size; i++)
        if (set->ranks[i] == rank)
            return i;
    return -1;
}

int64_t tensor_width(const struct tensor *tensor)
{
    int64_t width = 1;
    for (int i = 1; i < tensor->ndim; i++)
        width *= tensor->extents[i];
    return width;
}

int64_t input_elements(const struct tensor *tensor, int rank)
{
    return (tensor->ndim ? tensor->rows[rank] : 1) * tensor_width(tensor);
}

static int64_t rows_kept(int64_t rows, int size, int place)
{
    return rows / size + (place < rows % size);
}

/* A rank that has joined has no rows. */
static int64_t rows_given(const struct program_step *step, const struct tensor *tensor, int rank)
{
    return has_rank(step->by, rank) ? tensor->rows[rank] : 0;
}

int64_t output_rows(const struct phase *phase, const struct program_step *step, const struct tensor *tensor,
                    int rank)
{
    const struct set *set = &phase->sets[step->set];
    int64_t rows = 0;
    if (step->operation == HVD_REDUCESCATTER)
        return rows_kept(tensor->rows[rank], set->size, set_rank(set, rank));
    if (step->operation != HVD_ALLGATHER && step->operation != HVD_ALLTOALL)
        return tensor->rows[rank];
    for (int i = 0; i < set->size; i++)
        rows += step->operation == HVD_ALLGATHER ? rows_given(step, tensor, set->ranks[i])
                                                 : step->splits[set->ranks[i]][rank];
    return rows;
}

int64_t output_elements(const struct phase *phase, const struct program_step *step,
                        const struct tensor *tensor, int rank)
{
    return (tensor->ndim ? output_rows(phase, step, tensor, rank) : 1) * tensor_width(tensor);
}

int64_t rows_before(const struct phase *phase, const struct program_step *step, const struct tensor *tensor,
                    int rank)
{
    const struct set *set = &phase->sets[step->set];
    int64_t rows = 0;
    for (int i = 0; i < set->size && set->ranks[i] < rank; i++)
        rows += step->operation == HVD_ALLGATHER ? rows_given(step, tensor, set->ranks[i])
                                                 : rows_kept(tensor->rows[rank], set->size, i);
    return rows;
}

bool has_output(const struct program_step *step)
{
    return step->count && (step->given || !operation_makes_results(step->operation));
}

/* ---- contents -------------------------------------------------------------------------------------------
 */

static double special(hvd_dtype type, uint64_t *state)
{
    static const double values[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 2};
    int which = (int)random_below(state, 10);
    double least = type == HVD_FLOAT16                             ? 0x1p-24
                   : type == HVD_FLOAT64 || type == HVD_COMPLEX128 ? 0x1p-1074
                                                                   : 0x1p-133;
    return which < 8 ? values[which] : which == 8 ? least : -3 * least;
}

static double number_drawn(hvd_dtype type, enum filling filling, uint64_t *state)
{
    if (filling == FILL_EXACT)
        return (double)random_below(state, 7) - 3;
    if (filling == FILL_SPECIAL && random_chance(state, 6))
        return special(type, state);
    return (double)(random_below(state, 65537) - 32768) / 8191;
}

/* Complex numbers are pairs. */
static hvd_dtype part_type(hvd_dtype type)
{
    return type == HVD_COMPLEX64 ? HVD_FLOAT32 : type == HVD_COMPLEX128 ? HVD_FLOAT64 : type;
}

static void fill(const struct region *region, int rank, uint64_t state, char *arena)
{
    hvd_dtype part = part_type(region->type);
    size_t bytes = (size_t)region->elements[rank] * hvd_dtype_size(region->type), size = hvd_dtype_size(part);
    char *data = arena + region->at[rank];
    for (size_t at = 0; at < bytes; at += size) {
        uint64_t bits = random_next(&state);
        if (region->filling == FILL_BITS || is_integer(region->type))
            memcpy(data + at, &bits, size);
        else
            number_put(part, data + at, number_drawn(region->type, region->filling, &state));
    }
}

void phase_fill(const struct phase *phase, int rank, char *arena)
{
    uint64_t state = phase->seed + (uint64_t)rank * 1000003;
    for (size_t i = 0; i < phase->bytes[rank]; i++)
        arena[i] = (char)random_mix(state + i / 8);
    for (int i = 0; i < phase->region_count; i++)
        fill(&phase->regions[i], rank, random_mix(state + (uint64_t)i), arena);
}

/* ---- texts ----------------------------------------------------------------------------------------------
 */

static const char *const fates[] = {"runs", "differs on a rank", "is refused", "does not fit", "is absent"};

static size_t add(char *text, size_t capacity, size_t used, const char *more)
{
    int length = snprintf(text + used, capacity - used, "%s", more);
    return used + (size_t)length < capacity ? used + (size_t)length : capacity - 1;
}

static size_t describe_tensor(const struct tensor *tensor, bool given, char *text, size_t capacity,
                              size_t used)
{
    static const char *const fillings[] = {"exact", "ordinary", "special", "bits"};
    char more[160];
    snprintf(more, sizeof more, "\n    %s, %s, rows", hvd_dtype_name(tensor->type),
             fillings[tensor->filling]);
    used = add(text, capacity, used, more);
    for (int rank = 0; rank < RANKS && tensor->ndim; rank++) {
        snprintf(more, sizeof more, " %lld", (long long)tensor->rows[rank]);
        used = add(text, capacity, used, more);
    }
    snprintf(more, sizeof more, " of %lld elements, %d dimensions, at", (long long)tensor_width(tensor),
             tensor->ndim);
    used = add(text, capacity, used, more);
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(more, sizeof more, " %zu", tensor->input[rank]);
        used = add(text, capacity, used, more);
        snprintf(more, sizeof more, "->%zu", tensor->output[rank]);
        if (given && tensor->output[rank] != tensor->input[rank])
            used = add(text, capacity, used, more);
    }
    return used;
}

void step_describe(const struct phase *phase, const struct program_step *step, char *text, size_t capacity)
{
    int used =
        snprintf(text, capacity,
                 "step %d (%s phase): %s%s, %s, factors %g and %g, root %d, set %d of ranks %#x, submitted "
                 "by %#x, %s%s%s%s",
                 step->number, phase->ordered ? "ordered" : "unordered", step->grouped ? "group of " : "",
                 hvd_operation_name(step->operation), reduction_name(step->reduction), step->prescale,
                 step->postscale, step->root, step->set, phase->sets[step->set].members, step->by,
                 fates[step->fate], step->given ? ", output given" : "", step->in_place ? ", in place" : "",
                 step->named ? "" : ", unnamed");
    size_t at = used < 0 ? 0 : (size_t)used < capacity ? (size_t)used : capacity - 1;
    for (int t = 0; t < step->count; t++)
        at = describe_tensor(&step->tensors[t], has_output(step), text, capacity, at);
}
