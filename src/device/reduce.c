/* reduce.c - see reduce.h: finds the kernel of an element type and a reduction. */
#include "device/reduce.h"

#include "device/kernel.h"

#include <assert.h>

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
