/* main.c - simulate_membership: runs seeds, stops at the first violation, and reports what the runs did. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_FOR_EVERYTHING 1000 /* from here on every kind of event must have happened */

static bool print_tally(uint64_t seeds, const struct tally *tally)
{
    bool complete = true;
    printf("%10" PRIu64 "  seeds\n", seeds);
#define TALLY(field, text)                                                                                   \
    printf("%10" PRIu64 "  %s\n", tally->field, text);                                                       \
    complete &= tally->field > 0;
#include "tally.def"
#undef TALLY
    if (seeds < SEEDS_FOR_EVERYTHING || complete)
        return true;
    printf("FAILED: something never happened, so it was not tested\n");
    return false;
}

/* The same seed must give the same run. */
static bool repeats(uint64_t seed)
{
    struct tally ignored = {0};
    uint64_t digests[2] = {0, 1};
    if (world_run(seed, false, &ignored, &digests[0]) && world_run(seed, false, &ignored, &digests[1]) &&
        digests[0] == digests[1])
        return true;
    printf("FAILED: seed %" PRIu64 " gave two different runs\n", seed);
    return false;
}

int main(int argc, char **argv)
{
    uint64_t seeds = 1000, first = 0, digest;
    bool verbose = false;
    struct tally tally = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
            seeds = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--first") == 0) {
            first = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(
                stderr,
                "usage: %s [--seeds N] [--first S] [--verbose]\n"
                "Runs N seeds from S on (1000, 0), each an elastic job with faults, and checks what must\n"
                "hold in each. --verbose prints every event. Exit status 1: a violation.\n",
                argv[0]);
            return 2;
        }
    }
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        if (world_run(seed, verbose, &tally, &digest))
            continue;
        printf("again: %s --seeds 1 --first %" PRIu64 " --verbose\n", argv[0], seed);
        return 1;
    }
    return repeats(first) && print_tally(seeds, &tally) ? 0 : 1;
}
