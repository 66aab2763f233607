/* driver.c - runs a fuzz entry: first the corpus, then for --seconds inputs made from it. Those that reach
 * new code are kept. gcc's -fsanitize-coverage=trace-pc,trace-cmp reports which code runs and what it
 * compares; without it the inputs are merely random. clang's libFuzzer accepts the same entries.
 *
 *   fuzz_x [--seconds S] [--seed N] [--keep FOLDER] [FILE or FOLDER]...
 *
 * --keep writes the new inputs to a folder. An input that fails is written to fuzz_x.crash. One thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LONGEST       4096
#define POOL_LIMIT    8192
#define MAP_SIZE      16384
#define CONSTANTS     512
#define INPUT_SECONDS 60 /* one input that takes longer hangs */

#define NOT_COVERED __attribute__((no_sanitize_coverage))

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

struct input {
    uint8_t *bytes;
    size_t length;
};

static struct input pool[POOL_LIMIT];
static int pool_count;
static uint64_t random_state;
static const char *keep_folder;
static char crash_path[512];
static struct input current; /* what runs just now, for the report of a crash */

/* ---- coverage, which the compiler reports -------------------------------------------------------------- */

static uint8_t counts[MAP_SIZE], seen[MAP_SIZE];
static uintptr_t previous;
static uint64_t constants[CONSTANTS];
static unsigned next_constant;

NOT_COVERED void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0) * (uintptr_t)0x9e3779b97f4a7c15u >> 48;
    counts[(here ^ previous) % MAP_SIZE]++;
    previous = here >> 1;
}

static NOT_COVERED void note_constant(uint64_t value)
{
    if (value > 1)
        constants[next_constant++ % CONSTANTS] = value;
}

#define COMPARISON(suffix, type)                                                                             \
    NOT_COVERED void __sanitizer_cov_trace_##suffix(type a, type b)                                          \
    {                                                                                                        \
        note_constant(a);                                                                                    \
        (void)b;                                                                                             \
    }
COMPARISON(cmp1, uint8_t)
COMPARISON(cmp2, uint16_t)
COMPARISON(cmp4, uint32_t)
COMPARISON(cmp8, uint64_t)
COMPARISON(const_cmp1, uint8_t)
COMPARISON(const_cmp2, uint16_t)
COMPARISON(const_cmp4, uint32_t)
COMPARISON(const_cmp8, uint64_t)
#undef COMPARISON

NOT_COVERED void __sanitizer_cov_trace_cmpf(float a, float b)
{
    (void)a, (void)b;
}

NOT_COVERED void __sanitizer_cov_trace_cmpd(double a, double b)
{
    (void)a, (void)b;
}

NOT_COVERED void __sanitizer_cov_trace_switch(uint64_t value, const uint64_t *cases)
{
    (void)value;
    for (uint64_t i = 0; i < cases[0]; i++)
        note_constant(cases[2 + i]);
}

/* How often, roughly: 1, 2, 3, 4-7, 8-15, ... */
static NOT_COVERED uint8_t rough(uint8_t count)
{
    return count < 4 ? (uint8_t)(1u << count) : count < 8 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

static NOT_COVERED bool reached_anything_new(void)
{
    bool any = false;
    for (size_t i = 0; i < MAP_SIZE; i++) {
        static const uint8_t nothing[256];
        if (i % sizeof nothing == 0 && memcmp(counts + i, nothing, sizeof nothing) == 0) {
            i += sizeof nothing - 1;
            continue;
        }
        if (!counts[i])
            continue;
        uint8_t bit = rough(counts[i]);
        any |= !(seen[i] & bit);
        seen[i] |= bit;
    }
    return any;
}

/* ---- random changes ------------------------------------------------------------------------------------ */

static uint64_t random_next(void)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t random_below(size_t limit)
{
    return limit ? random_next() % limit : 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void overwrite(uint8_t *bytes, size_t length, const void *with, size_t count)
{
    size_t at = random_below(length);
    memcpy(bytes + at, with, smaller(count, length - at));
}

static size_t insert(uint8_t *bytes, size_t length, const void *what, size_t count)
{
    uint8_t copy[LONGEST];
    size_t at = random_below(length + 1);
    count = smaller(count, LONGEST - length);
    memcpy(copy, what, count);
    memmove(bytes + at + count, bytes + at, length - at);
    memcpy(bytes + at, copy, count);
    return length + count;
}

static size_t change(uint8_t *bytes, size_t length)
{
    const struct input *other = &pool[random_below((size_t)pool_count)];
    uint64_t number =
        random_below(2) ? constants[random_below(CONSTANTS)] : random_next() >> random_below(64);
    size_t width = (size_t)1 << random_below(4);
    size_t at = random_below(length), count = random_below(smaller(length - at, 64)) + 1;
    switch (length ? random_below(9) : 8) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << random_below(8));
        return length;
    case 1:
        bytes[at] = (uint8_t)random_below(16);
        return length;
    case 2:
        bytes[at] = (uint8_t)(bytes[at] + random_below(9) - 4);
        return length;
    case 3:
        overwrite(bytes, length, &number, width);
        return length;
    case 4:
        return insert(bytes, length, &number, width);
    case 5:
        memmove(bytes + at, bytes + at + count, length - at - count);
        return length - count;
    case 6:
        return insert(bytes, length, bytes + at, count);
    case 7: /* the other's end instead of this one's */
        at = smaller(at, other->length);
        memcpy(bytes + at, other->bytes + at, other->length - at);
        return other->length;
    default:
        return insert(bytes, length, &number, 1);
    }
}

/* ---- running ------------------------------------------------------------------------------------------- */

static void write_file(const char *path, const struct input *input)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    ssize_t ignored = write(file, input->bytes, input->length);
    (void)ignored;
    close(file);
}

static void on_crash(int number)
{
    static const char text[] = "this input failed: see the file *.crash\n";
    write_file(crash_path, &current);
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

const char *__asan_default_options(void)
{
    return "abort_on_error=1:handle_abort=0:detect_leaks=1:allocator_may_return_null=1";
}

/* Keeps the input when it reached anything new. */
static void run(const uint8_t *bytes, size_t length)
{
    current.length = length;
    current.bytes = malloc(length ? length : 1); /* its own block, so that a sanitizer sees the end */
    if (!current.bytes)
        abort();
    memcpy(current.bytes, bytes, length);
    memset(counts, 0, sizeof counts);
    previous = 0;
    alarm(INPUT_SECONDS);
    LLVMFuzzerTestOneInput(current.bytes, length);
    if (!reached_anything_new() || pool_count == POOL_LIMIT) {
        free(current.bytes);
        return;
    }
    pool[pool_count++] = current;
    if (keep_folder) {
        char path[600];
        snprintf(path, sizeof path, "%s/%08x", keep_folder, (unsigned)random_next());
        write_file(path, &current);
    }
}

static int run_path(const char *path)
{
    struct stat info;
    uint8_t bytes[LONGEST];
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        struct dirent **entries;
        int count = scandir(path, &entries, NULL, alphasort), failed = count < 0;
        for (int i = 0; i < count; i++) {
            char inner[600];
            snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
            if (entries[i]->d_name[0] != '.')
                failed |= run_path(inner);
            free(entries[i]);
        }
        free(entries);
        return failed;
    }
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    run(bytes, length);
    return 0;
}

static void run_changed(void)
{
    static uint8_t bytes[LONGEST];
    const struct input *base = &pool[random_below((size_t)pool_count)];
    size_t length = base->length, changes = (size_t)1 << random_below(5);
    memcpy(bytes, base->bytes, length);
    for (size_t i = 0; i < changes; i++)
        length = change(bytes, length);
    run(bytes, length);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    const char *wanted = getenv("FUZZ_SECONDS"), *seed = getenv("HOROVOD_TEST_SEED");
    double seconds = wanted ? strtod(wanted, NULL) : 0;
    unsigned long inputs = 0;
    int failed = 0;
    random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    snprintf(crash_path, sizeof crash_path, "%s.crash", argv[0]);
    signal(SIGABRT, on_crash);
    signal(SIGALRM, on_crash);
    signal(SIGSEGV, on_crash);
    run((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            random_state = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--keep") == 0 && i + 1 < argc)
            keep_folder = argv[++i];
        else
            failed |= run_path(argv[i]);
    }
    printf("%d inputs of the corpus reach new code; seed %llu\n", pool_count,
           (unsigned long long)random_state);
    if (!pool_count)
        pool[pool_count++] = (struct input){malloc(1), 0};
    fflush(stdout);
    for (double end = now() + seconds; now() < end; inputs++)
        run_changed();
    printf("%lu inputs tried, %d kept\n", inputs, pool_count);
    for (int i = 0; i < pool_count; i++)
        free(pool[i].bytes);
    return failed;
}
