/* kernels.c - GB/s of payload of every element kernel, as Markdown: bench_kernels [dtype] [turns]. Best of
 * many turns; one thread. In parentheses the percentage of memcpy's rate, corrected for the number of lines
 * moved, and that of a loop with the same loads and stores and hardly any arithmetic. */
#include "base/clock.h"
#include "base/types.h"
#include "device/adasum.h"
#include "device/kernel.h"
#include "device/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t sizes[] = {(size_t)256 << 10, (size_t)64 << 20};

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

static void work_average(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)reduction;
    reduce_scale(dtype, arrays->a, arrays->a, arrays->bytes / hvd_dtype_size(dtype), 1, 3);
}

static void work_factor(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)reduction;
    reduce_scale(dtype, arrays->a, arrays->a, arrays->bytes / hvd_dtype_size(dtype), 0.5, 1);
}

static void work_weigh(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    size_t elements = arrays->bytes / hvd_dtype_size(dtype);
    (void)reduction;
    reduce_weigh(dtype)(arrays->a, arrays->a, arrays->b, elements, 0.5F, 1);
}

static void work_products(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)reduction;
    struct products sum = {0};
    size_t elements = arrays->bytes / hvd_dtype_size(dtype);
    adasum_multiply(dtype, arrays->a, arrays->b, elements, &sum);
}

static void work_adasum(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)
{
    (void)reduction;
    size_t elements = arrays->bytes / hvd_dtype_size(dtype);
    adasum_add(dtype, arrays->a, arrays->a, arrays->b, elements, 0.5, 0.75);
}

/* ---- bounds ------------------------------------------------------------------------------------------ */

/* The loads and stores of a kernel alone: `statement` for each word. */
#define STREAM(name, statement)                                                                              \
    KERNEL static void name(const struct arrays *arrays, hvd_dtype dtype, hvd_reduction reduction)           \
    {                                                                                                        \
        (void)dtype, (void)reduction;                                                                        \
        uint64_t *a = (void *)arrays->a, *b = (void *)arrays->b, *to = (void *)arrays->result, sum = 0;      \
        size_t words = arrays->bytes / sizeof *a;                                                            \
        KERNEL_LOOP                                                                                          \
        for (size_t i = 0; i < words; i++)                                                                   \
            statement;                                                                                       \
        __asm__ volatile("" : : "r"(sum), "r"(b), "r"(to));                                                  \
    }

STREAM(stream_reads, sum += a[i] ^ b[i])
STREAM(stream_one, a[i] ^= 1)
STREAM(stream_in_place, a[i] += b[i])
STREAM(stream_out_of_place, to[i] = a[i] + b[i])

enum pattern { READS_TWO, IN_PLACE_OF_ONE, IN_PLACE_OF_TWO, OUT_OF_PLACE, PATTERNS };

/* lines: of cache that are moved for each line of payload: read, written, and fetched before they are
 * written. What is longer than the cache memcpy writes without fetching it. */
static struct {
    work_fn stream;
    double lines, rate[2];
} patterns[PATTERNS] = {
    [READS_TWO] = {.stream = stream_reads, .lines = 2},
    [IN_PLACE_OF_ONE] = {.stream = stream_one, .lines = 2},
    [IN_PLACE_OF_TWO] = {.stream = stream_in_place, .lines = 3},
    [OUT_OF_PLACE] = {.stream = stream_out_of_place, .lines = 4},
};
static const double copy_lines[] = {3, 2};

static int turns = 15;
static double copy_rate[2];

static double gigabytes_per_second(work_fn work, const struct arrays *arrays, hvd_dtype dtype,
                                   hvd_reduction reduction)
{
    int repeats = (int)(((size_t)16 << 20) / arrays->bytes) + 1;
    int64_t best = INT64_MAX;
    for (int turn = 0; turn < turns; turn++) {
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

static void print_rate(const struct arrays *arrays, hvd_dtype dtype, work_fn work, hvd_reduction reduction,
                       enum pattern pattern, int size)
{
    double rate = gigabytes_per_second(work, &arrays[size], dtype, reduction);
    double copy = copy_rate[size] * copy_lines[size] / patterns[pattern].lines;
    printf(" %.1f (%.0f, %.0f) |", rate, 100 * rate / copy, 100 * rate / patterns[pattern].rate[size]);
}

/* `other`: NULL, or the same out of place. */
static void print_row(const struct arrays *arrays, hvd_dtype dtype, const char *what, work_fn work,
                      work_fn other, hvd_reduction reduction, enum pattern pattern)
{
    printf("| %s | %s |", hvd_dtype_name(dtype), what);
    for (int size = 0; size < 2; size++) {
        print_rate(arrays, dtype, work, reduction, pattern, size);
        if (other)
            print_rate(arrays, dtype, other, reduction, OUT_OF_PLACE, size);
        else
            printf(" |");
    }
    printf("\n");
    fflush(stdout);
}

static void print_dtype(const struct arrays *arrays, hvd_dtype dtype)
{
#define REDUCTION(name, text, ...)                                                                           \
    if (HVD_##name != HVD_AVERAGE && HVD_##name != HVD_ADASUM && reduction_takes(HVD_##name, dtype))         \
        print_row(arrays, dtype, text, work_in_place, work_out_of_place, HVD_##name, IN_PLACE_OF_TWO);
#include "base/reductions.def"
#undef REDUCTION
    if (dtype != HVD_BOOL) {
        print_row(arrays, dtype, "average", work_average, NULL, HVD_SUM, IN_PLACE_OF_ONE);
        print_row(arrays, dtype, "factor", work_factor, NULL, HVD_SUM, IN_PLACE_OF_ONE);
    }
    if (reduce_weigh(dtype))
        print_row(arrays, dtype, "weighted sum", work_weigh, NULL, HVD_SUM, IN_PLACE_OF_TWO);
    if (reduction_takes(HVD_ADASUM, dtype)) {
        print_row(arrays, dtype, "Adasum's products", work_products, NULL, HVD_SUM, READS_TWO);
        print_row(arrays, dtype, "Adasum's sum", work_adasum, NULL, HVD_SUM, IN_PLACE_OF_TWO);
    }
}

static struct arrays make_arrays(size_t bytes)
{
    struct arrays arrays = {aligned_alloc(4096, bytes), aligned_alloc(4096, bytes),
                            aligned_alloc(4096, bytes), bytes};
    if (!arrays.a || !arrays.b || !arrays.result)
        exit(1);
    memset(arrays.a, 0, bytes); /* zeros stay normal numbers in every type, however often they are combined */
    memset(arrays.b, 0, bytes);
    memset(arrays.result, 0, bytes);
    return arrays;
}

static void keep_best(double *rate, work_fn work, const struct arrays *arrays)
{
    double measured = gigabytes_per_second(work, arrays, HVD_UINT8, HVD_SUM);
    *rate = measured > *rate ? measured : *rate;
}

static void measure_bounds(const struct arrays *arrays, int size)
{
    keep_best(&copy_rate[size], work_copy, arrays);
    for (int i = 0; i < PATTERNS; i++)
        keep_best(&patterns[i].rate[size], patterns[i].stream, arrays);
}

int main(int argc, char **argv)
{
    struct arrays arrays[2];
    turns = argc > 2 ? atoi(argv[2]) : turns;
    printf("| GB/s (%% of memcpy, of its loads and stores) | |");
    for (int size = 0; size < 2; size++) {
        arrays[size] = make_arrays(sizes[size]);
        printf(" %zu KiB, in place | out of place |", sizes[size] >> 10);
    }
    printf("\n| --- | --- | --: | --: | --: | --: |\n| | memcpy |");
    for (int size = 0; size < 2; size++) {
        for (int i = 0; i < 10; i++) /* all shares depend on these */
            measure_bounds(&arrays[size], size);
        printf(" | %.1f |", copy_rate[size]);
    }
    printf("\n");
#define DTYPE(name, text, ...)                                                                               \
    if (argc < 2 || !*argv[1] || strcmp(argv[1], text) == 0)                                                 \
        print_dtype(arrays, HVD_##name);
#include "base/dtypes.def"
#undef DTYPE
    for (int size = 0; size < 2; size++) {
        free(arrays[size].a);
        free(arrays[size].b);
        free(arrays[size].result);
    }
    return 0;
}
