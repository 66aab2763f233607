/* protocol.c - times every case: warm up (once where one round fills the time), agree on how many rounds,
 * meet at a barrier, take each round, and write the median into RESULTS/RANK. Who reads the files takes the
 * largest over the ranks. */
#include "protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARM_UP = 3, FEWEST = 3, MOST = 2000, TOO_LONG = 5 };

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

/* Zeros that are really there: memory never written to is one page of zeros, however large. */
static float *zeros(size_t elements)
{
    size_t bytes = (elements * sizeof(float) + 4095) / 4096 * 4096;
    float *memory = aligned_alloc(4096, bytes ? bytes : 4096);
    if (!memory) {
        fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        ((volatile float *)memory)[i] = 0;
    return memory;
}

static void add_tensor(struct tensors *tensors, size_t elements)
{
    size_t room = (size_t)tensors->number + 1;
    tensors->data = realloc(tensors->data, room * sizeof *tensors->data);
    tensors->elements = realloc(tensors->elements, room * sizeof *tensors->elements);
    if (!tensors->data || !tensors->elements)
        exit(1);
    tensors->data[tensors->number] = zeros(elements);
    tensors->elements[tensors->number++] = elements;
    tensors->packed_elements += elements;
}

/* One tensor of `argument` bytes, or those that the file of this name lists. */
static struct tensors make_tensors(const char *argument)
{
    struct tensors tensors = {0};
    char *end;
    size_t number = strtoul(argument, &end, 10);
    if (*end == '\0') {
        add_tensor(&tensors, number / sizeof(float));
        tensors.output = zeros(tensors.elements[0] * (size_t)peer_size());
        return tensors;
    }
    FILE *file = fopen(argument, "r");
    if (!file) {
        perror(argument);
        exit(1);
    }
    while (fscanf(file, "%zu", &number) == 1)
        add_tensor(&tensors, number);
    fclose(file);
    tensors.packed = zeros(tensors.packed_elements);
    return tensors;
}

static void free_tensors(struct tensors *tensors)
{
    for (int i = 0; i < tensors->number; i++)
        free(tensors->data[i]);
    free(tensors->data);
    free(tensors->elements);
    free(tensors->packed);
    free(tensors->output);
}

void pack(struct tensors *tensors)
{
    float *to = tensors->packed;
    for (int i = 0; i < tensors->number; to += tensors->elements[i++])
        memcpy(to, tensors->data[i], tensors->elements[i] * sizeof *to);
}

void unpack(struct tensors *tensors)
{
    const float *from = tensors->packed;
    for (int i = 0; i < tensors->number; from += tensors->elements[i++])
        memcpy(tensors->data[i], from, tensors->elements[i] * sizeof *from);
}

static double median_time(work_fn work, struct tensors *tensors, double seconds)
{
    static double times[MOST];
    double start = 0, longest = 0;
    for (int i = 0; i < WARM_UP && longest < seconds; i++) {
        start = now();
        work(tensors);
        longest = peer_largest(now() - start);
    }
    double rounds = seconds / longest;
    int fewest = longest > TOO_LONG * seconds ? 1 : FEWEST;
    int count = rounds < fewest ? fewest : rounds > MOST ? MOST : (int)rounds;
    peer_barrier();
    for (int i = 0; i < count; i++) {
        start = now();
        work(tensors);
        times[i] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, compare);
    return times[count / 2];
}

static void run_case(const char *name, double seconds, FILE *results)
{
    const char *colon = strchr(name, ':');
    for (const struct row *row = peer_rows; colon && row->what; row++) {
        if (strlen(row->what) != (size_t)(colon - name) || strncmp(row->what, name, strlen(row->what)) != 0)
            continue;
        struct tensors tensors = make_tensors(colon + 1);
        fprintf(results, "%s,%.3f\n", name, 1e6 * median_time(row->work, &tensors, seconds));
        free_tensors(&tensors);
    }
}

int main(int argc, char **argv)
{
    peer_open(&argc, &argv);
    if (argc < 4) {
        fprintf(stderr, "usage: %s SECONDS RESULTS CASE...\n", argv[0]);
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", argv[2], peer_rank());
    FILE *results = fopen(path, "w");
    if (!results) {
        perror(path);
        return 1;
    }
    for (int i = 3; i < argc; i++)
        run_case(argv[i], strtod(argv[1], NULL), results);
    fclose(results);
    peer_close();
    return 0;
}
