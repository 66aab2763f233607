/* protocol.c - times every case: warm up (once where one round fills the time), agree on how many rounds,
 * meet at a barrier, take each round, and write the median into RESULTS/RANK, or the mean where BENCH_MEAN is
 * set. Who reads the files takes the largest over the ranks. "cpu" stands for an allreduce's CPU time,
 * "memory" for what a process holds, "carried-allreduce" for the bytes that an allreduce, or whatever is
 * named, moves by the host's network interfaces. */
#include "protocol.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rounds; a case whose round takes TOO_LONG times the time for it has one round only. */
enum { WARM_UP = 3, FEWEST = 3, MOST = 2000, TOO_LONG = 5, MEAN_TIMES = 10 };

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
static void *zeros(size_t bytes)
{
    size_t room = bytes / 4096 * 4096 + 4096;
    void *memory = aligned_alloc(4096, room);
    if (!memory) {
        fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    for (size_t i = 0; i < room / sizeof(float); i++)
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
    tensors->data[tensors->number] = zeros(elements * tensors->element_size);
    tensors->elements[tensors->number++] = elements;
    tensors->packed_elements += elements;
}

/* Whether work puts its result into `output`, which for many ranks is large. */
static bool needs_output(const char *what)
{
    return strstr(what, "gather") || strstr(what, "alltoall") || strstr(what, "scatter");
}

static struct tensors one_tensor(size_t bytes, const char *dtype, bool with_output)
{
    struct tensors tensors = {.dtype = dtype, .element_size = peer_element_size(dtype)};
    add_tensor(&tensors, bytes / tensors.element_size);
    tensors.output = with_output ? zeros(bytes * (size_t)peer_size()) : NULL;
    return tensors;
}

/* Those that the file lists. */
static struct tensors listed_tensors(const char *argument)
{
    struct tensors tensors = {.dtype = "float32", .element_size = 4};
    size_t number;
    FILE *file = fopen(argument, "r");
    if (!file) {
        perror(argument);
        exit(1);
    }
    while (fscanf(file, "%zu", &number) == 1)
        add_tensor(&tensors, number);
    fclose(file);
    tensors.packed = zeros(tensors.packed_elements * tensors.element_size);
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
    char *to = tensors->packed;
    for (int i = 0; i < tensors->number; to += tensors->elements[i++] * tensors->element_size)
        memcpy(to, tensors->data[i], tensors->elements[i] * tensors->element_size);
}

void unpack(struct tensors *tensors)
{
    const char *from = tensors->packed;
    for (int i = 0; i < tensors->number; from += tensors->elements[i++] * tensors->element_size)
        memcpy(tensors->data[i], from, tensors->elements[i] * tensors->element_size);
}

/* KiB that this process can write to, each page divided by the number of processes that hold it. Pages of
 * programs and libraries are left out: their share changes with whatever else runs. */
static long memory_held(void)
{
    long held = 0, part;
    bool writable = false;
    char line[512], access[5];
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*x-%*x %4s", access) == 1)
            writable = access[1] == 'w';
        else if (writable && sscanf(line, "Pss: %ld", &part) == 1)
            held += part;
    }
    if (file)
        fclose(file);
    return held;
}

static work_fn find_work(const char *what)
{
    const struct row *row = peer_rows;
    while (row->what && strcmp(row->what, what) != 0)
        row++;
    return row->work;
}

static long memory_of_opening;

/* In the steady state, buffers have been used from end to end: those for short messages, too, whoever sent
 * how many by then. */
enum { STEADY = 20, SHORT_ONES = 128, SHORT_BYTES = 64 << 10 };

static double memory_beyond(work_fn work, struct tensors *tensors)
{
    struct tensors one = one_tensor(SHORT_BYTES, tensors->dtype, false);
    work_fn work_on_one = find_work("allreduce");
    peer_barrier();
    long before = memory_held();
    for (int i = 0; i < STEADY; i++)
        work(tensors);
    for (int i = 0; i < SHORT_ONES; i++)
        work_on_one(&one);
    peer_barrier();
    /* Between barriers: a rank that works or ends changes what the others hold of shared pages. */
    long after = memory_held();
    peer_barrier();
    free_tensors(&one);
    return (double)(memory_of_opening + after - before);
}

enum { CPU_ROUNDS = 5 };

/* Microseconds that all threads of this process computed, in a round. */
static double cpu_time(work_fn work, struct tensors *tensors)
{
    struct timespec before, after;
    work(tensors);
    peer_barrier();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    for (int i = 0; i < CPU_ROUNDS; i++)
        work(tensors);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    return 1e6 / CPU_ROUNDS *
           ((double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec));
}

#define CARRIED "carried-"
#define HEADERS 66 /* bytes of Ethernet, IPv4 and TCP with time stamps */

struct payload {
    double sent, received;
};

/* By all interfaces but lo. */
static struct payload payload_so_far(void)
{
    char line[512], name[64];
    double in, packets_in, out, packets_out;
    struct payload sum = {0};
    FILE *file = fopen("/proc/net/dev", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, " %63[^:]: %lf %lf %*f %*f %*f %*f %*f %*f %lf %lf", name, &in, &packets_in, &out,
                   &packets_out) == 5 &&
            strcmp(name, "lo") != 0) {
            sum.sent += out - HEADERS * packets_out;
            sum.received += in - HEADERS * packets_in;
        }
    }
    if (file)
        fclose(file);
    return sum;
}

/* In the busier direction. */
static double bytes_carried(work_fn work, struct tensors *tensors)
{
    work(tensors); /* opens connections */
    peer_barrier();
    struct payload before = payload_so_far();
    peer_barrier();
    work(tensors);
    peer_barrier();
    struct payload after = payload_so_far();
    peer_barrier();
    double sent = after.sent - before.sent, received = after.received - before.received;
    return sent > received ? sent : received;
}

/* A few calls, one if it takes longer than that. Returns the seconds of the last one. */
static double warm_up(work_fn work, struct tensors *tensors, double seconds)
{
    double longest = 0;
    for (int i = 0; i < WARM_UP && longest < seconds; i++) {
        double start = now();
        work(tensors);
        /* Of all ranks, so that they agree on the number of rounds without another word. */
        longest = peer_largest(now() - start);
    }
    return longest;
}

static double median_time(work_fn work, struct tensors *tensors, double seconds)
{
    static double times[MOST];
    double longest = warm_up(work, tensors, seconds);
    double rounds = seconds / longest;
    int fewest = longest > TOO_LONG * seconds ? 1 : FEWEST;
    int count = rounds < fewest ? fewest : rounds > MOST ? MOST : (int)rounds;
    peer_barrier();
    for (int i = 0; i < count; i++) {
        double start = now();
        work(tensors);
        times[i] = now() - start;
    }
    qsort(times, (size_t)count, sizeof *times, compare);
    return times[count / 2];
}

/* Beside busy programs single calls differ a thousandfold, so the sum of all counts: of batches, which double
 * as long as they are short, for MEAN_TIMES as long as a median takes. One batch that is long enough would
 * not do: a single wait for another program makes a batch of few calls so. */
static double mean_time(work_fn work, struct tensors *tensors, double seconds)
{
    warm_up(work, tensors, MEAN_TIMES * seconds);
    double total = 0, spent = 0;
    long calls = 0, count = 1;
    while (total < MEAN_TIMES * seconds) {
        peer_barrier();
        double start = now();
        for (long i = 0; i < count; i++)
            work(tensors);
        spent = peer_largest(now() - start);
        total += spent;
        calls += count;
        if (spent < seconds / 2)
            count *= 2;
    }
    return total / (double)calls;
}

static double time_of_call(work_fn work, struct tensors *tensors, double seconds)
{
    return (getenv("BENCH_MEAN") ? mean_time : median_time)(work, tensors, seconds);
}

static void run_case(const char *name, double seconds, FILE *results)
{
    char what[32], argument[4096], dtype[16] = "float32";
    if (sscanf(name, "%31[^:]:%4095[^:]:%15s", what, argument, dtype) < 2)
        return;
    bool memory = strcmp(what, "memory") == 0, cpu = strcmp(what, "cpu") == 0;
    bool carried = strncmp(what, CARRIED, strlen(CARRIED)) == 0;
    bool one = isdigit((unsigned char)argument[0]);
    work_fn work = find_work(memory ? "async" : cpu ? "allreduce" : carried ? what + strlen(CARRIED) : what);
    if (!work || !peer_element_size(dtype))
        return;
    struct tensors tensors =
        one ? one_tensor(strtoul(argument, NULL, 10), dtype, needs_output(what)) : listed_tensors(argument);
    double value = memory    ? memory_beyond(work, &tensors)
                   : cpu     ? cpu_time(work, &tensors)
                   : carried ? bytes_carried(work, &tensors)
                             : 1e6 * time_of_call(work, &tensors, seconds);
    fprintf(results, "%s,%.3f\n", name, value);
    free_tensors(&tensors);
}

int main(int argc, char **argv)
{
    long before = memory_held();
    peer_open(&argc, &argv);
    memory_of_opening = memory_held() - before;
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
