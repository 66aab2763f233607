/* sets.c - what idle process sets cost: horovodrun -np 2 build/bench/bench_sets. For 0, 100 and 500 sets of
 * all ranks: microseconds for an allreduce of 4 bytes by the world (median), descriptors of a rank, shared
 * memory of all ranks (which takes the permission to read /proc/self/map_files). */
#include "base/clock.h"
#include "horovod.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { ROUNDS = 5001, WARM_UP = 2000 };

static void check(hvd_code code, const hvd_status *status)
{
    if (code) {
        fprintf(stderr, "bench: %s\n", status->text);
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double time_allreduce(hvd_context *context)
{
    static int64_t times[ROUNDS];
    hvd_status status;
    float value = 1;
    hvd_tensor tensor = {.data = &value, .dtype = HVD_FLOAT32, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = "x",
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_MAX};
    for (int i = -WARM_UP; i < ROUNDS; i++) {
        int64_t start = clock_now();
        check(hvd_run(context, &request, NULL, &status), &status);
        if (i >= 0)
            times[i] = clock_now() - start;
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    return (double)times[ROUNDS / 2] / 1000;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and the folder's own */
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static double shared_mebibytes(void)
{
    double bytes = 0;
    char line[512], range[64], path[96];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        struct stat info;
        if (!strstr(line, "memfd:horovod") || sscanf(line, "%63s", range) != 1)
            continue;
        snprintf(path, sizeof path, "/proc/self/map_files/%s", range);
        bytes += stat(path, &info) ? 0 : (double)info.st_blocks * 512;
    }
    if (maps)
        fclose(maps);
    return bytes / (1 << 20);
}

int main(void)
{
    static const int counts[] = {0, 100, 500};
    hvd_status status;
    hvd_context *context;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    check(hvd_init(NULL, &context, &status), &status);
    hvd_placement placement = hvd_get_placement(context);
    int32_t *ranks = calloc((size_t)placement.size, sizeof *ranks);
    if (!ranks)
        return 1;
    for (int32_t rank = 0; rank < placement.size; rank++)
        ranks[rank] = rank;
    int added = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        for (int32_t id; added < counts[i]; added++)
            check(hvd_process_set_add(context, ranks, placement.size, &id, &status), &status);
        double microseconds = time_allreduce(context);
        if (placement.rank == 0)
            printf("%3d sets: %6.1f us, %4d descriptors, %7.1f MiB of shared memory\n", added, microseconds,
                   count_descriptors(), shared_mebibytes());
    }
    free(ranks);
    hvd_shutdown(context);
    return 0;
}
