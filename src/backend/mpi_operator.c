/* mpi_operator.c - makes the MPI_Op of each element type and reduction, from the engine's kernels if MPI's
 * own one gives other results. Any thread; an MPI_Op is made once and kept for the life of the process.
 *
 * MPI_SUM adds integers and floats of 32 and 64 bits as the kernels do, and is the fastest. All other
 * reductions (a NaN in a minimum, 16-bit floats, bool) are an MPI_Op over the kernels. So are sums of
 * integers of 8 and 16 bits: Open MPI 4's vector code saturates them at the limits of the signed type instead
 * of wrapping around. */
#include "backend/mpi_operator.h"

#include "base/types.h"
#include "device/reduce.h"

#include <stdatomic.h>
#include <stdbool.h>

#define KERNEL(kind, dtype, reduction)                                                                       \
    static void kind##_##dtype(void *in, void *inout, int *count, void *type)                                \
    {                                                                                                        \
        (void)type;                                                                                          \
        reduce_combine(HVD_##dtype, HVD_##reduction)(inout, in, inout, (size_t)*count);                      \
    }
#define DTYPE(name, ...)                                                                                     \
    KERNEL(sum, name, SUM) KERNEL(min, name, MIN) KERNEL(max, name, MAX) KERNEL(product, name, PRODUCT)
#include "base/dtypes.def"
#undef DTYPE

enum { SUM, MIN, MAX, PRODUCT, KERNELS };

static const mpi_op_fn kernels[][KERNELS] = {
#define DTYPE(name, ...) [HVD_##name] = {sum_##name, min_##name, max_##name, product_##name},
#include "base/dtypes.def"
#undef DTYPE
};

static int kernel_of(hvd_reduction reduction)
{
    return reduction == HVD_MIN ? MIN : reduction == HVD_MAX ? MAX : reduction == HVD_PRODUCT ? PRODUCT : SUM;
}

enum mpi_type mpi_type_of(hvd_dtype dtype)
{
    static const enum mpi_type by_width[] = {
        [1] = MPI_INT8, [2] = MPI_INT16, [4] = MPI_INT32, [8] = MPI_INT64, [16] = MPI_BYTES16};
    size_t width = dtype_table[dtype].size;
    if (dtype_table[dtype].family == FAMILY_real)
        return width == 4 ? MPI_REAL32 : MPI_REAL64;
    return by_width[width];
}

static bool adds_as_mpi(hvd_dtype dtype)
{
    return (dtype_table[dtype].family & (FAMILY_integer | FAMILY_real)) != 0 && dtype_table[dtype].size >= 4;
}

int mpi_operator_of(const struct mpi_abi *abi, hvd_dtype dtype, hvd_reduction reduction, mpi_handle *op)
{
    /* One table for the process; two threads that make an operator at the same time make two. */
    static _Atomic(mpi_handle) made[sizeof kernels / sizeof *kernels][KERNELS];
    int kernel = kernel_of(reduction), error = 0;
    if (kernel == SUM && adds_as_mpi(dtype)) {
        *op = abi->op_sum();
        return 0;
    }
    *op = atomic_load(&made[dtype][kernel]);
    if (!*op)
        error = abi->op_create(kernels[dtype][kernel], op);
    if (!error)
        atomic_store(&made[dtype][kernel], *op);
    return error;
}
