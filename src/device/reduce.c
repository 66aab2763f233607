/* reduce.c - finds the kernel of an element type and a reduction, and computes identities. Pure functions on
 * constant tables; any thread. */
#include "device/reduce.h"

#include "device/kernel.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if !(defined(__x86_64__) || defined(__aarch64__)) /* reduce_x86.c, reduce_neon.c */
const struct kernels *kernels_native(hvd_dtype dtype, int place)
{
    (void)dtype, (void)place;
    return NULL;
}
#endif

const struct kernels *kernels_of(hvd_dtype dtype)
{
    const struct kernels *native = kernels_native(dtype, 0);
    if (native)
        return native;
    switch (dtype) {
#define DTYPE(name, ...)                                                                                     \
    case HVD_##name:                                                                                         \
        return &kernels_##name;
#include "base/dtypes.def"
#undef DTYPE
    }
    assert(!"unknown element type");
    return &kernels_UINT8;
}

combine_fn reduce_combine(hvd_dtype dtype, hvd_reduction reduction)
{
    const struct kernels *kernels = kernels_of(dtype);
    switch (reduction) {
#define REDUCTION(name, text, kernel, types)                                                                 \
    case HVD_##name:                                                                                         \
        return kernels->kernel;
#include "base/reductions.def"
#undef REDUCTION
    }
    assert(!"unknown reduction");
    return kernels->sum;
}

weigh_fn reduce_weigh(hvd_dtype dtype)
{
    return kernels_of(dtype)->weigh;
}

/* ---- factors ------------------------------------------------------------------------------------------ */

#define CHUNK 256 /* elements */

/* Returns true if float32, in which the kernels of smaller types multiply, would change the factor to 0,
 * infinity or a subnormal number with few digits. */
static bool is_out_of_float(double factor)
{
    return factor != 0 && isfinite(factor) && !isnormal((float)factor);
}

static void scale_floats(float *result, const float *a, size_t elements, double factor)
{
    for (size_t i = 0; i < elements; i++) {
        float product = (float)(a[i] * factor);
        result[i] = ONE_NAN(product);
    }
}

static void scale_halves(const struct kernels *kernels, uint16_t *result, const uint16_t *a, size_t elements,
                         double factor)
{
    float wide[CHUNK];
    for (size_t at = 0; at < elements; at += CHUNK) {
        size_t count = elements - at < CHUNK ? elements - at : CHUNK;
        kernels->widen(wide, a + at, count);
        scale_floats(wide, wide, count, factor);
        kernels->narrow(result + at, wide, count);
    }
}

void reduce_scale(hvd_dtype dtype, void *result, const void *a, size_t elements, double factor,
                  int64_t divisor)
{
    const struct kernels *kernels = kernels_of(dtype);
    double by = factor / (double)divisor;
    bool is_half = kernels->widen, is_single = dtype == HVD_FLOAT32 || dtype == HVD_COMPLEX64;
    if (!(is_half || is_single) || !is_out_of_float(by))
        kernels->scale(result, a, elements, factor, divisor);
    else if (is_half)
        scale_halves(kernels, result, a, elements, by);
    else
        scale_floats(result, a, elements * hvd_dtype_size(dtype) / sizeof(float), by);
}

/* ---- identities --------------------------------------------------------------------------------------- */

/* The identity of each family in dtypes.def. That of a sum of floats is -0, as 0 would turn a -0 into 0. */
#define VALUE(type, least, greatest)                                                                         \
    type value = reduction == HVD_MIN       ? (type)(greatest)                                               \
                 : reduction == HVD_MAX     ? (type)(least)                                                  \
                 : reduction == HVD_PRODUCT ? (type)1                                                        \
                                            : (type) - (type)0

#define ELEMENT(type, least, greatest)                                                                       \
    VALUE(type, least, greatest);                                                                            \
    memcpy(element, &value, sizeof value)

#define ALL_ONES(type) ((type) ~(type)0)
#define HIGHEST(type)                                                                                        \
    (ALL_ONES(type) > 0 ? ALL_ONES(type) : (type)(((uint64_t)1 << (8 * sizeof(type) - 1)) - 1))
#define LOWEST(type)                ((type)~HIGHEST(type))
#define ELEMENT_integer(name, type) ELEMENT(type, LOWEST(type), HIGHEST(type))
#define ELEMENT_logical(name, type) ELEMENT(type, 0, 1)
#define ELEMENT_real(name, type)    ELEMENT(type, -INFINITY, INFINITY)
#define ELEMENT_complex(name, type) ELEMENT(type, 0, 0) /* has neither minimum nor maximum */
#define ELEMENT_half(name, type)                                                                             \
    VALUE(float, -INFINITY, INFINITY);                                                                       \
    kernels_##name.narrow(element, &value, 1)

void identity_element(hvd_dtype dtype, hvd_reduction reduction, void *element)
{
    switch (dtype) {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    case HVD_##name: {                                                                                       \
        ELEMENT_##family(name, storage);                                                                     \
        break;                                                                                               \
    }
#include "base/dtypes.def"
#undef DTYPE
    }
}
