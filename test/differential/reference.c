/* reference.c - see reference.h. */
#include "differential/reference.h"

#include "adasum.h"
#include "group/group.h"

#include <stdlib.h>

/* ---- one element ----------------------------------------------------------------------------------------
 */

#define SCALE_logical(name, storage, compute)                                                                \
    (void)factor;                                                                                            \
    (void)divisor;                                                                                           \
    *(storage *)result = *(const storage *)a

#define HIGHEST(storage)                                                                                     \
    ((storage)-1 < 1 ? (storage)((UINT64_C(1) << (8 * sizeof(storage) - 1)) - 1) : (storage)-1)

/* Without a factor a quotient of integers; else computed in float64, within the limits of the type. */
#define SCALE_integer(name, storage, compute)                                                                \
    storage value = *(const storage *)a, highest = HIGHEST(storage), lowest = (storage)~highest;             \
    double real = (double)value * factor / divisor;                                                          \
    *(storage *)result = factor == 1               ? (storage)(value / (storage)divisor)                     \
                         : real >= (double)highest ? highest                                                 \
                         : real > (double)lowest   ? (storage)real                                           \
                                                   : lowest

#define SCALE_real(name, storage, compute)                                                                   \
    *(storage *)result = (storage)(*(const storage *)a * (factor / divisor))

#define SCALE_half(name, storage, compute)                                                                   \
    *(storage *)result = to_##name((float)(from_##name(*(const storage *)a) * (factor / divisor)))

#define SCALE_complex(name, storage, compute)                                                                \
    ((compute *)result)[0] = (compute)(((const compute *)a)[0] * (factor / divisor));                        \
    ((compute *)result)[1] = (compute)(((const compute *)a)[1] * (factor / divisor))

void number_scale(hvd_dtype dtype, void *result, const void *a, double factor, int divisor)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    case HVD_##name: {                                                                                       \
        SCALE_##family(name, storage, compute);                                                              \
        break;                                                                                               \
    }
#include "base/dtypes.def"
#undef DTYPE
    }
}

static bool is_scaled(const struct program_step *step)
{
    return step->prescale != 1;
}

/* What a rank gives to a reduction. */
static void give(const struct program_step *step, const struct tensor *tensor, const void *element,
                 void *given)
{
    if (is_scaled(step))
        number_scale(tensor->type, given, element, step->prescale, 1);
    else
        memcpy(given, element, hvd_dtype_size(tensor->type));
}

static bool is_logical(hvd_dtype type)
{
    return dtype_table[type].family == FAMILY_logical;
}

/* ---- where elements are ---------------------------------------------------------------------------------
 */

static const char *input_of(char *const *arenas, const struct tensor *tensor, int rank, int64_t element)
{
    return arenas[rank] + tensor->input[rank] + (size_t)element * hvd_dtype_size(tensor->type);
}

/* The elements of the inputs that element `i` of the output of `rank` is reduced from. */
static int64_t reduced_from(const struct phase *phase, const struct program_step *step,
                            const struct tensor *tensor, int rank, int64_t i)
{
    if (step->operation != HVD_REDUCESCATTER)
        return i;
    return rows_before(phase, step, tensor, rank) * tensor_width(tensor) + i;
}

static int members_submitting(const struct phase *phase, const struct program_step *step, int *ranks)
{
    const struct set *set = &phase->sets[step->set];
    int count = 0;
    for (int i = 0; i < set->size; i++)
        if (has_rank(step->by, set->ranks[i]))
            ranks[count++] = set->ranks[i];
    return count;
}

/* ---- reductions -----------------------------------------------------------------------------------------
 */

static bool is_half(hvd_dtype type)
{
    return dtype_table[type].family == FAMILY_half;
}

/* Averages of 16-bit floats, which never overflow. */
static bool averages_halves(const struct program_step *step, const struct tensor *tensor)
{
    return step->reduction == HVD_AVERAGE && is_half(tensor->type);
}

static void average_halves(const struct reference *reference, char *const *arenas,
                           const struct program_step *step, const struct tensor *tensor, int64_t from,
                           void *result)
{
    _Alignas(16) char given[16];
    int ranks[RANKS], count = members_submitting(reference->phase, step, ranks);
    double mean = 0;
    for (int i = 0; i < count; i++) {
        give(step, tensor, input_of(arenas, tensor, ranks[i], from), given);
        mean += number_get(tensor->type, given) / reference->phase->sets[step->set].size;
    }
    number_put(tensor->type, result, mean * step->postscale);
}

static void reduce_element(const struct reference *reference, char *const *arenas,
                           const struct program_step *step, const struct tensor *tensor, int64_t from,
                           void *result)
{
    _Alignas(16) char given[16];
    int ranks[RANKS], count = members_submitting(reference->phase, step, ranks);
    size_t size = hvd_dtype_size(tensor->type);
    for (int i = 0; i < count; i++) {
        give(step, tensor, input_of(arenas, tensor, ranks[i], from), given);
        if (is_logical(tensor->type))
            *given = *given != 0;
        if (i)
            number_combine(tensor->type, step->reduction, result, result, given);
        else
            memcpy(result, given, size);
    }
    int divisor = step->reduction == HVD_AVERAGE ? reference->phase->sets[step->set].size : 1;
    if (step->postscale != 1 || divisor != 1)
        number_scale(tensor->type, result, result, step->postscale, divisor);
}

static void order_of(const struct reference *reference, const struct set *set, struct adasum_order *order,
                     int *first)
{
    struct topology subset;
    CHECK_OK(topology_subset(&subset, reference->layout->topology, set->ranks, set->size, &check_status));
    *order = adasum_order_of(&subset);
    *first = subset.rank_at[0];
    topology_free(&subset);
}

/* A tensor as a whole; ranks that have joined give zeros. */
static void adasum(const struct reference *reference, char *const *arenas, const struct program_step *step,
                   const struct tensor *tensor, char *result)
{
    const struct set *set = &reference->phase->sets[step->set];
    size_t count = (size_t)input_elements(tensor, set->ranks[0]), size = hvd_dtype_size(tensor->type);
    double *operands[RANKS] = {0};
    struct adasum_order order;
    int first;
    for (int i = 0; i < set->size; i++) {
        operands[i] = calloc(count + 1, sizeof *operands[i]);
        CHECK(operands[i], "out of memory");
        for (size_t e = 0; has_rank(step->by, set->ranks[i]) && e < count; e++)
            operands[i][e] = number_get(tensor->type, input_of(arenas, tensor, set->ranks[i], (int64_t)e)) *
                             step->prescale;
    }
    order_of(reference, set, &order, &first);
    for (int i = 0; i < order.count; i++)
        adasum_merge(operands[order.merges[i].lower], operands[order.merges[i].upper], count);
    for (size_t e = 0; e < count; e++)
        number_put(tensor->type, result + e * size, operands[first][e] * step->postscale);
    for (int i = 0; i < set->size; i++)
        free(operands[i]);
}

/* ---- one tensor of one step -----------------------------------------------------------------------------
 */

static char *join_rows(const struct reference *reference, char *const *arenas,
                       const struct program_step *step, const struct tensor *tensor, int rank, char *to)
{
    const struct set *set = &reference->phase->sets[step->set];
    size_t row = (size_t)tensor_width(tensor) * hvd_dtype_size(tensor->type);
    for (int i = 0; i < set->size; i++) {
        int from = set->ranks[i];
        size_t first = 0, rows = has_rank(step->by, from) ? (size_t)tensor->rows[from] : 0;
        if (step->operation == HVD_ALLTOALL) {
            rows = (size_t)step->splits[from][rank];
            for (int j = 0; set->ranks[j] != rank; j++)
                first += (size_t)step->splits[from][set->ranks[j]];
        }
        if (rows && row)
            memcpy(to, arenas[from] + tensor->input[from] + first * row, rows * row);
        to += rows * row;
    }
    return to;
}

/* What `rank` gets, in memory of the caller's. */
static void compute(const struct reference *reference, char *const *arenas, const struct program_step *step,
                    const struct tensor *tensor, int rank, char *to)
{
    size_t size = hvd_dtype_size(tensor->type);
    int64_t count = output_elements(reference->phase, step, tensor, rank);
    if (step->operation == HVD_BROADCAST && count) {
        memcpy(to, input_of(arenas, tensor, step->root, 0), (size_t)count * size);
    } else if (step->operation == HVD_ALLGATHER || step->operation == HVD_ALLTOALL) {
        join_rows(reference, arenas, step, tensor, rank, to);
    } else if (step->reduction == HVD_ADASUM) {
        adasum(reference, arenas, step, tensor, to);
    } else {
        for (int64_t i = 0; i < count; i++)
            (averages_halves(step, tensor) ? average_halves : reduce_element)(
                reference, arenas, step, tensor, reduced_from(reference->phase, step, tensor, rank, i),
                to + (size_t)i * size);
    }
}

static bool fits_on(const struct program_step *step, int rank)
{
    return step->fate == FATE_RUNS || (step->fate == FATE_MISFIT && rank != step->culprit);
}

static void run_tensor(struct reference *reference, const struct program_step *step, int at, int t)
{
    const struct tensor *tensor = &step->tensors[t];
    int ranks[RANKS], count = members_submitting(reference->phase, step, ranks);
    bool alike = step->operation == HVD_ALLREDUCE || step->operation == HVD_BROADCAST;
    char *got[RANKS] = {0};
    for (int i = 0; i < count; i++) {
        size_t bytes =
            (size_t)output_elements(reference->phase, step, tensor, ranks[i]) * hvd_dtype_size(tensor->type);
        got[i] = malloc(bytes + 1);
        CHECK(got[i], "out of memory");
        if (i && alike)
            memcpy(got[i], got[0], bytes);
        else
            compute(reference, reference->after, step, tensor, ranks[i], got[i]);
    }
    for (int i = 0; i < count; i++) {
        size_t bytes =
            (size_t)output_elements(reference->phase, step, tensor, ranks[i]) * hvd_dtype_size(tensor->type);
        if (!has_output(step)) {
            reference->results[ranks[i]][at][t] = got[i];
            continue;
        }
        if (fits_on(step, ranks[i]) && bytes)
            memcpy(reference->after[ranks[i]] + tensor->output[ranks[i]], got[i], bytes);
        free(got[i]);
    }
}

void reference_make(struct reference *reference, const struct phase *phase, const struct layout *layout,
                    const bool *chosen)
{
    *reference = (struct reference){.phase = phase, .layout = layout};
    for (int rank = 0; rank < layout->size; rank++) {
        reference->before[rank] = malloc(phase->bytes[rank] + 1);
        reference->after[rank] = malloc(phase->bytes[rank] + 1);
        CHECK(reference->before[rank] && reference->after[rank], "out of memory");
        phase_fill(phase, rank, reference->before[rank]);
        memcpy(reference->after[rank], reference->before[rank], phase->bytes[rank]);
    }
    for (int i = 0; i < phase->step_count; i++) {
        const struct program_step *step = &phase->steps[i];
        bool runs = chosen[i] && (step->fate == FATE_RUNS || step->fate == FATE_MISFIT);
        for (int t = 0; runs && t < step->count; t++)
            run_tensor(reference, step, i, t);
    }
}

void reference_free(struct reference *reference)
{
    for (int rank = 0; rank < reference->layout->size; rank++) {
        free(reference->before[rank]);
        free(reference->after[rank]);
        for (int i = 0; i < STEPS; i++)
            for (int t = 0; t < TENSORS; t++)
                free(reference->results[rank][i][t]);
    }
}

/* ---- what was rounded -----------------------------------------------------------------------------------
 */

/* What the numbers that one element is reduced from say of its rounding. */
struct inputs {
    long double sum, size; /* of the numbers, and of what they are without sign */
    long double product;
    long double greatest, least; /* of all partial products, whatever their order */
    bool finite;
};

/* The largest number, the smallest normal and the smallest of all, of a real type; a step is that of 1. */
struct limits {
    long double greatest, normal, least, step;
};

static hvd_dtype part_of(hvd_dtype type)
{
    return type == HVD_COMPLEX64 ? HVD_FLOAT32 : type == HVD_COMPLEX128 ? HVD_FLOAT64 : type;
}

static struct limits limits_of(hvd_dtype type)
{
    hvd_dtype part = part_of(type);
    long double step = number_step(part);
    if (part == HVD_FLOAT16)
        return (struct limits){65504, 0x1p-14L, 0x1p-24L, step};
    if (part == HVD_FLOAT64)
        return (struct limits){0x1.fffffffffffffp1023L, 0x1p-1022L, 0x1p-1074L, step};
    return (struct limits){0x1.fep127L, 0x1p-126L, part == HVD_BFLOAT16 ? 0x1p-133L : 0x1p-149L, step};
}

static struct inputs look_at(const struct reference *reference, const struct program_step *step,
                             const struct tensor *tensor, int rank, int64_t i, int part)
{
    struct inputs inputs = {.product = 1, .greatest = 1, .least = 1, .finite = true};
    int ranks[RANKS], count = members_submitting(reference->phase, step, ranks);
    int64_t from = reduced_from(reference->phase, step, tensor, rank, i);
    hvd_dtype type = part_of(tensor->type);
    bool pair = type != tensor->type;
    for (int r = 0; r < count; r++) {
        _Alignas(16) char given[16];
        give(step, tensor, input_of(reference->before, tensor, ranks[r], from), given);
        long double value = number_get(type, given + (size_t)part * hvd_dtype_size(type)),
                    size = fabsl(value);
        if (pair && step->reduction == HVD_PRODUCT)
            size = fabsl(number_get(type, given)) + fabsl(number_get(type, given + hvd_dtype_size(type)));
        inputs.finite = inputs.finite && isfinite(size);
        inputs.sum += value;
        inputs.size += size;
        inputs.product *= pair ? size : value;
        inputs.greatest *= size > 1 ? 2 * size : 1;
        inputs.least *= size < 1 && size > 0 ? size : 1;
    }
    return inputs;
}

/* How far, as a part of the numbers' size, a sum or product may be from the exact one. Of halves that is half
 * a step for each addition, one for a multiplication at the end, and a whole step where the factor before has
 * been rounded to another neighbour. */
static long double relative_bound(const struct program_step *step, const struct tensor *tensor, int size)
{
    bool product = step->reduction == HVD_PRODUCT;
    long double eps = limits_of(tensor->type).step;
    if (!is_half(tensor->type))
        return ((product ? 4 : 1) * size + 6) * eps;
    bool divides = step->reduction == HVD_AVERAGE && (size & (size - 1));
    int before = is_scaled(step) ? (product ? 2 * size : 2) : 0, after = divides || step->postscale != 1;
    return (size - 1 + before + after) * eps / 2 * (1 + size * eps);
}

/* The same of subnormal numbers. */
static long double absolute_bound(const struct program_step *step, const struct tensor *tensor, int size)
{
    long double least = limits_of(tensor->type).least, factor = fabs(step->postscale);
    if (is_half(tensor->type))
        return least * (2 * size * factor + 1);
    return ((step->reduction == HVD_PRODUCT ? 4 : 1) * size + 6) * least * fmaxl(1, factor);
}

/* One part of one element, neither NaN nor equal to what it should be. */
static bool within_bounds(const struct reference *reference, const struct program_step *step,
                          const struct tensor *tensor, const struct inputs *inputs, long double is,
                          long double should)
{
    struct limits limits = limits_of(tensor->type);
    bool product = step->reduction == HVD_PRODUCT, pair = part_of(tensor->type) != tensor->type;
    int size = reference->phase->sets[step->set].size;
    double divisor = step->reduction == HVD_AVERAGE ? size : 1;
    long double factor = step->postscale / divisor; /* rounded: a subnormal one loses bits */
    long double greatest = product ? inputs->greatest : averages_halves(step, tensor) ? 0 : inputs->size;
    long double exact = product && pair ? should : (product ? inputs->product : inputs->sum) * factor;
    long double scale = fabsl((product ? inputs->product : inputs->size) * factor);
    bool overflows = greatest * (1 + size * limits.step) >= limits.greatest;
    if (overflows && (!isfinite(is) || !inputs->finite))
        return true; /* on some way, but not on another one */
    if (product && (overflows || inputs->least < limits.normal || (pair && !inputs->finite)))
        return true;
    long double relative = relative_bound(step, tensor, size);
    if (!isfinite(factor)) /* of what may be 0 or not: infinite, or no number */
        return inputs->finite && fabsl(inputs->sum) <= relative * inputs->size;
    if (!inputs->finite)
        return false; /* infinite, or no number, on every way */
    long double bound = relative * scale + absolute_bound(step, tensor, size);
    if (!isfinite(is)) /* an average of finite halves only by its factor */
        return fabsl(exact) + bound >= limits.greatest &&
               !(averages_halves(step, tensor) && fabs(step->postscale) <= 1);
    return fabsl(is - exact) <= bound;
}

/* One number, multiplied twice: a factor may be rounded to the type first. */
static bool scaled_alike(const struct program_step *step, const struct tensor *tensor, double is,
                         double should)
{
    struct limits limits = limits_of(tensor->type);
    if (!isfinite(should))
        return isinf(should) && !signbit(is) == !signbit(should) &&
               fabs(is) >= (double)(limits.greatest * (1 - 4 * limits.step));
    return fabsl((long double)is - should) <=
           4 * (limits.step * fabs(should) + limits.least * fmax(1, fabs(step->postscale)));
}

static bool accepts_part(const struct reference *reference, const struct program_step *step,
                         const struct tensor *tensor, int rank, int64_t i, int part, double is, double should)
{
    if (is == should || (is != is && should != should))
        return true;
    if (reference->phase->ordered)
        return false;
    if (step->reduction == HVD_MIN || step->reduction == HVD_MAX)
        return scaled_alike(step, tensor, is, should);
    if (step->reduction == HVD_ADASUM)
        return fabs(is - should) <=
               number_step(tensor->type) * 64 * RANKS * fabs(step->prescale * step->postscale);
    struct inputs inputs = look_at(reference, step, tensor, rank, i, part);
    return within_bounds(reference, step, tensor, &inputs, is, should);
}

bool reference_accepts(const struct reference *reference, const struct program_step *step,
                       const struct tensor *tensor, int rank, int64_t i, const void *is, const void *should)
{
    hvd_dtype part = part_of(tensor->type);
    size_t size = hvd_dtype_size(part);
    bool moves = !operation_reduces(step->operation) && !reference->phase->ordered;
    if (moves || is_integer(tensor->type))
        return false;
    for (int p = 0; (size_t)p * size < hvd_dtype_size(tensor->type); p++) {
        double got = number_get(part, (const char *)is + (size_t)p * size);
        double wanted = number_get(part, (const char *)should + (size_t)p * size);
        if (!accepts_part(reference, step, tensor, rank, i, p, got, wanted))
            return false;
    }
    return true;
}
