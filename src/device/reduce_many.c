/* reduce_many.c - see reduce_many.h. The vectors are worked through in blocks; what has been added up of a
 * block stays in the first-level cache, so memory sees each source read once and the result written once. */
#include "device/reduce_many.h"

#include "device/kernel.h"

#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK ((size_t)4 << 10) /* bytes of float32 or of the type itself */

struct reduction {
    combine_fn combine; /* of float32 for half types */
    scale_fn scale;     /* NULL: nothing to scale */
    widen_fn widen;     /* NULL: not a half type */
    widen_fn add;       /* NULL: not a sum of those */
    narrow_fn narrow;
    double factor;
    int64_t divisor;
};

static void reduce_block(const struct reduction *by, char *result, const char *const *sources, int count,
                         size_t offset, size_t elements, size_t bytes)
{
    alignas(64) char sum[BLOCK];
    const void *value = sources[0] + offset;
    for (int i = 1; i < count; i++) {
        void *to = i + 1 < count ? sum : result + offset;
        by->combine(to, value, sources[i] + offset, elements);
        value = to;
    }
    if (by->scale)
        by->scale(result + offset, value, elements, by->factor, by->divisor);
    else if (value != result + offset)
        memcpy(result + offset, value, bytes);
}

static void reduce_halves(const struct reduction *by, char *result, const char *const *sources, int count,
                          size_t offset, size_t elements)
{
    alignas(64) float sum[BLOCK / sizeof(float)], other[BLOCK / sizeof(float)];
    by->widen(sum, (const uint16_t *)(const void *)(sources[0] + offset), elements);
    for (int i = 1; i < count; i++) {
        const uint16_t *halves = (const uint16_t *)(const void *)(sources[i] + offset);
        if (by->add) {
            by->add(sum, halves, elements);
        } else {
            by->widen(other, halves, elements);
            by->combine(sum, sum, other, elements);
        }
    }
    if (by->scale)
        by->scale(sum, sum, elements, by->factor, by->divisor);
    by->narrow((uint16_t *)(void *)(result + offset), sum, elements);
}

void reduce_many(hvd_dtype dtype, hvd_reduction reduction, void *result, const void *const *sources,
                 int count, size_t elements, double factor, int64_t divisor)
{
    const struct kernels *kernels = kernels_of(dtype);
    hvd_dtype computed = kernels->widen ? HVD_FLOAT32 : dtype;
    bool scales = factor != 1 || divisor != 1, adds = reduction == HVD_SUM || reduction == HVD_AVERAGE;
    struct reduction by = {.combine = reduce_combine(computed, reduction),
                           .scale = scales ? reduce_scale(computed) : NULL,
                           .widen = kernels->widen,
                           .add = adds ? kernels->add_widened : NULL,
                           .narrow = kernels->narrow,
                           .factor = factor,
                           .divisor = divisor};
    size_t element = hvd_dtype_size(dtype), most = BLOCK / hvd_dtype_size(computed);
    for (size_t done = 0; done < elements; done += most) {
        size_t n = elements - done < most ? elements - done : most;
        if (by.widen)
            reduce_halves(&by, result, (const char *const *)sources, count, done * element, n);
        else
            reduce_block(&by, result, (const char *const *)sources, count, done * element, n, n * element);
    }
}
