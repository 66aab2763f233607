/* main.c - simulate: runs seeds, stops at the first violation, and reports what the runs did. */
#include "world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_FOR_EVERYTHING 200 /* from here on every kind of event must have happened */

static int usage(const char *program)
{
    fprintf(
        stderr,
        "usage: %s [--seeds N] [--first S] [--ranks MAX] [--verbose] [--corrupt] | --scale RANKS\n"
        "Runs N seeds from S on (200, 0), each a job of 2 to MAX (1000) virtual ranks, and checks what\n"
        "must hold in each. --verbose prints every event. --corrupt flips bits of messages at random:\n"
        "then only a sanitizer or a crash can complain. Exit status 1: a violation; its seed is printed.\n"
        "--scale counts instead what a step costs among so many ranks.\n",
        program);
    return 2;
}

static bool parse_flag(const char *word, struct options *options)
{
    options->verbose |= strcmp(word, "--verbose") == 0;
    options->corrupt |= strcmp(word, "--corrupt") == 0;
    return strcmp(word, "--verbose") == 0 || strcmp(word, "--corrupt") == 0;
}

static bool parse_number(const char *word, const char *value, struct options *options)
{
    char *end;
    uint64_t number = strtoull(value, &end, 10);
    if (!*value || *end)
        return false;
    if (strcmp(word, "--seeds") == 0)
        options->seeds = number;
    else if (strcmp(word, "--first") == 0)
        options->first = number;
    else if (strcmp(word, "--ranks") == 0)
        options->ranks = (int)number;
    else if (strcmp(word, "--scale") == 0)
        options->scale = (int)number;
    else
        return false;
    return true;
}

static bool parse(int argc, char **argv, struct options *options)
{
    *options = (struct options){.seeds = 200, .ranks = 1000};
    for (int i = 1; i < argc; i++) {
        if (parse_flag(argv[i], options))
            continue;
        if (i + 1 == argc || !parse_number(argv[i], argv[i + 1], options))
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
    if (options->corrupt || options->seeds < SEEDS_FOR_EVERYTHING || complete)
        return true;
    printf("FAILED: something never happened, so it was not tested\n");
    return false;
}

/* The same seed must give the same run. */
static bool repeats(struct options options)
{
    struct tally ignored = {0};
    uint64_t digests[2] = {0, 1};
    options.verbose = false;
    bool ran = world_run(options.first, &options, &ignored, &digests[0]) &&
               world_run(options.first, &options, &ignored, &digests[1]);
    if (ran && digests[0] == digests[1])
        return true;
    printf("FAILED: seed %" PRIu64 " gave two different runs\n", options.first);
    return false;
}

int main(int argc, char **argv)
{
    struct options options;
    struct tally tally = {0};
    uint64_t digest;
    if (!parse(argc, argv, &options))
        return usage(argv[0]);
    if (options.scale)
        return scale_run(options.scale) ? 0 : 1;
    for (uint64_t seed = options.first; seed < options.first + options.seeds; seed++) {
        if (world_run(seed, &options, &tally, &digest))
            continue;
        printf("again: %s --seeds 1 --first %" PRIu64 " --ranks %d --verbose\n", argv[0], seed,
               options.ranks);
        return 1;
    }
    if (!repeats(options))
        return 1;
    return print_tally(&options, &tally) ? 0 : 1;
}
