/* reduce.c - see reduce.h: finds the kernel of an element type and a reduction. */
#include "device/reduce.h"

#include "device/kernel.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

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

scaled_sum_fn reduce_scaled_sum(hvd_dtype dtype, hvd_reduction reduction)
{
    return reduction == HVD_SUM || reduction == HVD_AVERAGE ? kernels_of(dtype)->scaled_sum : NULL;
}

scale_fn reduce_scale(hvd_dtype dtype)
{
    return kernels_of(dtype)->scale;
}

/* ---- identities --------------------------------------------------------------------------------------- */

/* One element of each family in dtypes.def. Floats add up to -0, as 0 would turn a -0
 * into 0. */
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
