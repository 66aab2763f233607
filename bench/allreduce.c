/* allreduce.c - time of blocking float32 allreduces (sum, in place), 4 bytes to 64 MiB: horovodrun -np N
 * bench_allreduce
 *
 * Per size: the ranks meet at a barrier, rank 0's clock takes each call, and the median of all calls is
 * printed. */
#include "horovod.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(hvd_context *context, const hvd_request *request)
{
    hvd_status status;
    if (hvd_run(context, request, NULL, &status)) {
        fprintf(stderr, "%s\n", status.text);
        exit(1);
    }
}

static double median_time(hvd_context *context, float *data, size_t bytes)
{
    enum { MOST = 2000 };
    static double times[MOST];
    int rounds = bytes <= 65536 ? MOST : bytes <= (1 << 20) ? 300 : 30;
    int64_t shape[] = {(int64_t)(bytes / sizeof *data)};
    hvd_tensor tensor = {
        .data = data, .shape = shape, .ndim = 1, .dtype = HVD_FLOAT32, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = "bench",
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_SUM};
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    for (int i = 0; i < 5; i++)
        run(context, &request);
    run(context, &barrier);
    for (int i = 0; i < rounds; i++) {
        double start = now();
        run(context, &request);
        times[i] = now() - start;
    }
    qsort(times, (size_t)rounds, sizeof *times, compare);
    return times[rounds / 2];
}

int main(void)
{
    hvd_context *context;
    hvd_status status;
    if (hvd_init(NULL, &context, &status)) {
        fprintf(stderr, "%s\n", status.text);
        return 1;
    }
    hvd_placement placement = hvd_get_placement(context);
    float *data = calloc(1, 64u << 20);
    if (!data)
        return 1;
    if (placement.rank == 0)
        printf("%12s %12s %12s\n", "bytes", "us", "GB/s");
    for (size_t bytes = 4; bytes <= 64u << 20; bytes *= 4) {
        double time = median_time(context, data, bytes);
        if (placement.rank == 0)
            printf("%12zu %12.1f %12.2f\n", bytes, time * 1e6, (double)bytes / time * 1e-9);
    }
    free(data);
    hvd_shutdown(context);
    return 0;
}
