/* driver.c - main() for a fuzz entry where there is no libFuzzer: runs the files it is given, or random bytes
 * from seeds ("--seeds N"). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST 4096

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Small numbers are frequent, as lengths and kinds are small. */
static void run_seed(unsigned long seed)
{
    uint8_t *bytes = malloc(LONGEST);
    uint64_t state = seed;
    size_t length = random_next(&state) % (seed % 10 ? 256 : LONGEST);
    for (size_t i = 0; i < length; i++) {
        uint64_t r = random_next(&state);
        bytes[i] = (uint8_t)(r & 0x300 ? r % 8 : r);
    }
    uint8_t *exact = realloc(bytes, length ? length : 1); /* so that a sanitizer sees reads past the end */
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
}

static int run_file(const char *path)
{
    uint8_t bytes[LONGEST];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(bytes, length);
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        unsigned long seeds = strtoul(argv[2], NULL, 10);
        for (unsigned long seed = 0; seed < seeds; seed++)
            run_seed(seed);
        printf("%lu seeds\n", seeds);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        failed |= run_file(argv[i]);
    return failed;
}
