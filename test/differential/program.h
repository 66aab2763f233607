/* program.h - random programs: the requests of the ranks of a job, made from a seed, as plain data that is
 * equal on all of them.
 *
 * A program is a list of phases. In a phase every rank submits its steps, one request each, and waits for all
 * of them. All tensors of a rank are in one block of memory, its arena, so a step is a list of offsets, and
 * the expected result is the arenas after the steps have run one by one (reference.h).
 *
 * In an ordered phase all ranks submit in the order of the steps. Tensors are anywhere in areas of one
 * element type each, and hold numbers that every order of additions adds exactly. In an unordered phase each
 * rank has an order of its own; every tensor has memory of its own, and may hold any numbers. */
#ifndef HVD_TEST_PROGRAM_H
#define HVD_TEST_PROGRAM_H

#include "base/topology.h"
#include "numbers.h"
#include "random.h"

enum { RANKS = 8, STEPS = 14, TENSORS = 3, DIMENSIONS = 4, SETS = 4, REGIONS = 2 * STEPS * TENSORS };

/* What a region of the arena holds at first. */
enum filling {
    FILL_EXACT,    /* small integers; any integers where the type is one */
    FILL_ORDINARY, /* fractions */
    FILL_SPECIAL,  /* these, and infinities, NaN, subnormal numbers, zeros of both signs */
    FILL_BITS,     /* any bits */
};

struct region {
    size_t at[RANKS]; /* bytes from the start of the arena */
    int64_t elements[RANKS];
    hvd_dtype type;
    enum filling filling;
};

struct tensor {
    hvd_dtype type;
    int ndim;
    int64_t rows[RANKS]; /* the first extent of the input, on each rank */
    int64_t extents[DIMENSIONS];
    size_t input[RANKS], output[RANKS]; /* bytes; the latter where the output is the caller's */
    enum filling filling;
};

/* What becomes of a step. */
enum fate {
    FATE_RUNS,
    FATE_DIFFERS, /* one rank submits something else: an error on all, and nothing is written */
    FATE_REFUSED, /* on the rank itself, at once */
    FATE_MISFIT,  /* the output of one rank has other rows: an error there, all others go on */
    FATE_ABSENT,  /* does not run without the ranks that have joined: an error on all others */
};

/* In what a rank differs. */
enum difference { DIFFERS_TYPE, DIFFERS_SHAPE, DIFFERS_NDIM, DIFFERS_FACTOR, DIFFERS_ARGUMENT, DIFFERENCES };

struct program_step {
    int number; /* in the job, from 0 on */
    hvd_operation operation;
    hvd_reduction reduction;
    double prescale, postscale;
    int root; /* of the job */
    int set;  /* index into the sets of its phase; 0: all ranks */
    int count;
    bool grouped, given, in_place, named;
    int priority;
    enum fate fate;
    enum difference difference;
    int culprit;
    unsigned by; /* the ranks that submit it, as bits */
    int64_t splits[RANKS][RANKS];
    bool even; /* no splits are given */
    char name[16];
    struct tensor tensors[TENSORS];
};

struct set {
    unsigned members; /* as bits */
    int size;
    int ranks[RANKS];
    bool opened;    /* by its members alone */
    int generation; /* its number among all sets that the job has had; 0: all ranks */
};

struct phase {
    bool ordered, shared_memory; /* the latter: arenas are hvd_shared_alloc's */
    int set_count;
    struct set sets[SETS]; /* the first is all ranks */
    int generations;       /* how many others the job has had */
    int step_count;
    struct program_step steps[STEPS];
    unsigned joiners; /* the ranks that join early; the rest of that set joins at the end */
    int join_set;
    int region_count;
    struct region regions[REGIONS];
    size_t bytes[RANKS]; /* of the arenas */
    uint64_t seed;
};

/* How a job runs; its program says what it does. */
struct layout {
    int size;
    const char *hosts[RANKS]; /* NULL: this one */
    bool join_all, mpi;
    bool deterministic;
    const struct topology *topology;
};

/* The phase behind `before`, which has its sets and may have its steps; NULL: the first one. */
void phase_draw(struct phase *phase, const struct phase *before, const struct layout *layout, uint64_t *state,
                int *next_number);

int set_rank(const struct set *set, int rank); /* -1: no member */
static inline bool has_rank(unsigned ranks, int rank)
{
    return ranks >> rank & 1;
}

int64_t tensor_width(const struct tensor *tensor); /* elements of a row */
/* Of the input and the output of a tensor on a rank. */
int64_t input_elements(const struct tensor *tensor, int rank);
int64_t output_rows(const struct phase *phase, const struct program_step *step, const struct tensor *tensor,
                    int rank);
int64_t output_elements(const struct phase *phase, const struct program_step *step,
                        const struct tensor *tensor, int rank);
/* Rows of lower ranks, in the output of an allgather or the input of a reducescatter. */
int64_t rows_before(const struct phase *phase, const struct program_step *step, const struct tensor *tensor,
                    int rank);

bool has_output(const struct program_step *step); /* in the arena */

/* What the arena of a rank holds at first. */
void phase_fill(const struct phase *phase, int rank, char *arena);

void step_describe(const struct phase *phase, const struct program_step *step, char *text, size_t capacity);

#endif
