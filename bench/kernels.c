/* kernels.c - GB/s of payload of memcpy and of every element kernel, for arrays that fit the cache and for
 * arrays that do not: bench/kernels [dtype] [reduction]. Best of many turns; one thread. */
#include "base/clock.h"
#include "base/types.h"
#include "device/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 15

struct arrays {
    char *a, *b, *result;
    size_t bytes;
};

typedef void (*work_fn)(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction);

static void work_copy(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)dtype, (void)reduction;
    memcpy(arrays->result, arrays->a, arrays->bytes);
}

static void work_in_place(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    reduce_combine(dtype, reduction)(arrays->a, arrays->a, arrays->b, arrays->bytes / hvd_dtype_size(dtype));
}

static void work_out_of_place(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    size_t elements = arrays->bytes / hvd_dtype_size(dtype);
    reduce_combine(dtype, reduction)(arrays->result, arrays->a, arrays->b, elements);
}

static void work_scale(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)reduction;
    reduce_scale(dtype)(arrays->a, arrays->a, arrays->bytes / hvd_dtype_size(dtype), 1, 3);
}

static double gigabytes_per_second(work_fn work, const struct arrays *arrays, hvd_dtype dtype,
                                   hvd_reduction reduction)
{
    int repeats = (int)(((size_t)64 << 20) / arrays->bytes);
    int64_t best = INT64_MAX;
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = clock_now();
        for (int i = 0; i < repeats; i++) {
            work(arrays, dtype, reduction);
            __asm__ volatile("" ::: "memory");
        }
        int64_t time = clock_now() - start;
        best = time < best ? time : best;
    }
    return (double)arrays->bytes * repeats / (double)best;
}

static void print_dtype(const struct arrays *arrays, hvd_dtype dtype, const char *reduction)
{
#define REDUCTION(name, text, ...)                                                                           \
    if (HVD_##name != HVD_AVERAGE && reduction_takes(HVD_##name, dtype) &&                                   \
        (!reduction || strcmp(reduction, text) == 0))                                                        \
        printf("%-10s %-8s %8.1f %12.1f\n", hvd_dtype_name(dtype), text,                                     \
               gigabytes_per_second(work_in_place, arrays, dtype, HVD_##name),                               \
               gigabytes_per_second(work_out_of_place, arrays, dtype, HVD_##name));
#include "base/reductions.def"
#undef REDUCTION
    if (!reduction && reduce_scale(dtype))
        printf("%-10s %-8s %8.1f\n", hvd_dtype_name(dtype), "scale",
               gigabytes_per_second(work_scale, arrays, dtype, HVD_SUM));
}

static void print_size(size_t bytes, const char *dtype, const char *reduction)
{
    struct arrays arrays = {aligned_alloc(4096, bytes), aligned_alloc(4096, bytes),
                            aligned_alloc(4096, bytes), bytes};
    if (!arrays.a || !arrays.b || !arrays.result)
        exit(1);
    memset(arrays.a, 0, bytes); /* zeros stay normal numbers in every type, however often they are combined */
    memset(arrays.b, 0, bytes);
    memset(arrays.result, 0, bytes);
    printf("\narrays of %zu KiB   GB/s in place, out of place\n", bytes >> 10);
    printf("%-19s %21.1f\n", "memcpy", gigabytes_per_second(work_copy, &arrays, HVD_UINT8, HVD_SUM));
#define DTYPE(name, text, ...)                                                                               \
    if (!dtype || strcmp(dtype, text) == 0)                                                                  \
        print_dtype(&arrays, HVD_##name, reduction);
#include "base/dtypes.def"
#undef DTYPE
    free(arrays.a);
    free(arrays.b);
    free(arrays.result);
}

int main(int argc, char **argv)
{
    const char *dtype = argc > 1 ? argv[1] : NULL, *reduction = argc > 2 ? argv[2] : NULL;
    print_size((size_t)256 << 10, dtype, reduction);
    print_size((size_t)64 << 20, dtype, reduction);
    return 0;
}
