/* main.c - simulate: runs seeds, stops at the first violation, and tells what the runs did. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_FOR_EVERYTHING 200 /* from here on every kind of event must have happened */

struct options {
    uint64_t seeds, first;
    int ranks;
    bool verbose;
};

static int usage(const char *program)
{
    fprintf(
        stderr,
        "usage: %s [--seeds N] [--first S] [--ranks MAX] [--verbose]\n"
        "Runs N seeds from S on (200, 0), each a job of 2 to MAX (1000) virtual ranks, and checks what must\n"
        "hold in each. --verbose prints every event. Exit status 1: a violation; its seed is printed.\n",
        program);
    return 2;
}

static bool parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){200, 0, 1000, false};
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        bool known = true;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--verbose") == 0) {
            options->verbose = true;
            continue;
        }
        uint64_t number = strtoull(value, &end, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            options->seeds = number;
        else if (strcmp(argv[i], "--first") == 0)
            options->first = number;
        else if (strcmp(argv[i], "--ranks") == 0)
            options->ranks = (int)number;
        else
            known = false;
        if (!known || !*value || *end)
            return false;
        i++;
    }
    return options->ranks >= 2;
}

static bool print_tally(const struct options *options, const struct tally *tally)
{
    bool complete = true;
    printf("%10" PRIu64 "  seeds, of at most %d ranks\n", options->seeds, options->ranks);
#define TALLY(field, text)                                                                                   \
    printf("%10" PRIu64 "  %s\n", tally->field, text);                                                       \
    complete &= tally->field > 0;
#include "tally.def"
#undef TALLY
    if (options->seeds < SEEDS_FOR_EVERYTHING || complete)
        return true;
    printf("FAILED: something never happened, so it was not tested\n");
    return false;
}

int main(int argc, char **argv)
{
    struct options options;
    struct tally tally = {0};
    uint64_t digest, again;
    if (!parse(argc, argv, &options))
        return usage(argv[0]);
    for (uint64_t seed = options.first; seed < options.first + options.seeds; seed++) {
        if (world_run(seed, options.ranks, options.verbose, &tally, &digest))
            continue;
        printf("again: %s --seeds 1 --first %" PRIu64 " --ranks %d --verbose\n", argv[0], seed,
               options.ranks);
        return 1;
    }
    struct tally ignored = {0};
    if (options.seeds &&
        (!world_run(options.first, options.ranks, false, &ignored, &digest) ||
         !world_run(options.first, options.ranks, false, &ignored, &again) || digest != again)) {
        printf("FAILED: seed %" PRIu64 " gave two different runs\n", options.first);
        return 1;
    }
    return print_tally(&options, &tally) ? 0 : 1;
}
