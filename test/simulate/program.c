/* program.c - the requests of the members of a process set, and their outcomes. */
#include "program.h"

#include "base/types.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPERATIONS_PER_RUN 40000 /* about; large jobs get few names and rounds */

/* ---- who requests what --------------------------------------------------------------------------------- */

bool program_requests(const struct program *p, int rank, int epoch, int round)
{
    return round - p->starts[epoch] < p->lengths[epoch * p->size + rank];
}

static int epoch_of(const struct program *p, int round)
{
    int epoch = 0;
    while (round >= p->starts[epoch + 1])
        epoch++;
    return epoch;
}

static void draw_epochs(struct program *p, uint64_t *random)
{
    p->epochs = p->joins ? 1 + (int)random_below(random, p->rounds < 3 ? p->rounds : 3) : 1;
    p->starts = calloc((size_t)p->epochs + 1, sizeof *p->starts);
    p->lengths = calloc((size_t)p->epochs * (size_t)p->size, sizeof *p->lengths);
    for (int e = 0; e <= p->epochs; e++)
        p->starts[e] = p->rounds * e / p->epochs;
    int lazy = (int)random_below(random, 3); /* nobody in particular, most, or one rank takes part in all */
    for (int e = 0; e < p->epochs; e++) {
        int whole = p->starts[e + 1] - p->starts[e];
        int one = (int)random_below(random, p->size);
        for (int r = 0; r < p->size; r++) {
            bool all = !p->joins || (lazy == 1 ? random_chance(random, 80) : lazy == 2 && r == one);
            p->lengths[e * p->size + r] = all ? whole : (int)random_below(random, whole + 1);
        }
    }
}

/* ---- for what ------------------------------------------------------------------------------------------ */

static hvd_operation operation_of(const struct program *p, int name, int round)
{
    static const hvd_operation mix[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_BROADCAST,     HVD_ALLREDUCE,
                                        HVD_ALLGATHER, HVD_ALLREDUCE, HVD_REDUCESCATTER, HVD_ALLREDUCE,
                                        HVD_ALLTOALL,  HVD_ALLREDUCE, HVD_BARRIER};
    static const hvd_operation changes[] = {HVD_BARRIER, HVD_ADD_PROCESS_SET, HVD_REMOVE_PROCESS_SET};
    if (name == p->changes)
        return changes[plan_of(p, name, round)->change];
    return mix[name % 11];
}

static int root_of(const struct program *p, const struct plan *plan)
{
    return (int)((plan->form >> 10 & 3) % (uint64_t)p->size);
}

/* Which of the forms a rank requests; in a mismatch at least two ranks differ. */
static int variant_of(const struct program *p, const struct plan *plan, int rank)
{
    if (!plan->mismatch)
        return 0;
    int odd = (int)(plan->mismatch % (uint64_t)p->size);
    if (rank == odd)
        return 1;
    if (rank == (odd + 1) % p->size || plan->mismatch >> 40 & 1)
        return 0;
    return (int)(random_mix(plan->mismatch + (uint64_t)rank) % (uint64_t)p->variants);
}

static bool runs_without(const struct program *p, int name, int round, bool root_requests)
{
    const struct operation *row = &operation_table[operation_of(p, name, round)];
    return row->absence == ABSENCE_always || (row->absence == ABSENCE_join_all && p->join_all &&
                                              (root_requests || row->argument != ARGUMENT_root));
}

/* The outcome that a name must have: all ranks that request it must request the same, and the others have
 * joined. */
static void judge(struct program *p, int name, int round)
{
    struct plan *plan = plan_of(p, name, round);
    int epoch = epoch_of(p, round);
    int variant = 0;
    bool differ = false;
    for (int r = 0; r < p->size; r++) {
        if (!program_requests(p, r, epoch, round))
            continue;
        int own = variant_of(p, plan, r);
        differ |= plan->requesters && own != variant;
        variant = own;
        plan->requesters++;
    }
    bool root_requests = program_requests(p, root_of(p, plan), epoch, round);
    if (!plan->requesters)
        plan->outcome = OUTCOME_NONE;
    else if (differ)
        plan->outcome = OUTCOME_MISMATCH;
    else if (plan->requesters == p->size || runs_without(p, name, round, root_requests))
        plan->outcome = OUTCOME_RUNS;
    else
        plan->outcome = OUTCOME_JOINED;
}

bool program_apart(const struct plan *plan, int rank)
{
    return plan->apart && random_mix(plan->apart + (uint64_t)rank) % 4 == 0;
}

static void draw_plans(struct program *p, uint64_t *random)
{
    p->plans = calloc((size_t)p->names * (size_t)p->rounds, sizeof *p->plans);
    int change_percent = random_chance(random, 50) ? 1 : (int)random_below(random, 20);
    int mismatch_percent = random_chance(random, 50) ? 0 : (int)random_below(random, 20);
    int apart_percent = random_chance(random, 50) ? 0 : (int)random_below(random, 20);
    uint64_t rows = random_mix(p->seed + 3);
    int rows_percent = random_chance(&rows, 50) ? 1 : (int)random_below(&rows, 100);
    for (int n = 0; n < p->names; n++) {
        for (int r = 0; r < p->rounds; r++) {
            struct plan *plan = plan_of(p, n, r);
            bool changes = r == 0 || random_chance(random, change_percent);
            plan->form = changes ? random_next(random) : plan[-1].form;
            plan->mismatch = random_chance(random, mismatch_percent) ? random_next(random) | 1 : 0;
            plan->apart = random_chance(random, apart_percent) ? random_next(random) | 1 : 0;
            plan->rows = r == 0 || random_chance(&rows, rows_percent) ? random_next(&rows) : plan[-1].rows;
        }
    }
}

static void draw_program(struct program *p, uint64_t *random, int most_names, int most_rounds)
{
    p->names = 1 + (int)random_below(random, most_names);
    p->rounds = 2 + (int)random_below(random, most_rounds);
    p->lockstep = random_chance(random, 50);
    p->fresh_percent = random_chance(random, 50) ? 0 : (int)random_below(random, 60);
    p->variants = random_chance(random, 20) ? 12 : 2;
    p->joins = random_chance(random, 35);
    p->join_all = random_chance(random, 40);
    p->unnamed = random_chance(random, 50) ? 0 : -1;
    p->changes = -1;
}

/* ---- process sets -------------------------------------------------------------------------------------- */

static void draw_members(struct scenario *s, struct set_plan *set, uint64_t *random)
{
    int percent = 1 + (int)random_below(random, s->size > 64 ? 6400 / s->size : 100);
    set->ranks = malloc((size_t)s->size * sizeof *set->ranks);
    for (int r = 0; r < s->size; r++) {
        if (random_chance(random, percent))
            set->ranks[set->size++] = r;
    }
    if (!set->size)
        set->ranks[set->size++] = (int)random_below(random, s->size);
}

/* Adds sets, and removes some of those that were added; a change that does not happen uses up no id. */
static void draw_changes(struct scenario *s, uint64_t *random)
{
    struct program *p = &s->program;
    bool there[SETS_LIMIT + 1] = {false};
    for (int r = 0; r < p->rounds; r++) {
        struct plan *plan = plan_of(p, p->changes, r);
        int victim = s->set_count ? 1 + (int)random_below(random, s->set_count) : 0;
        if (victim && there[victim] && random_chance(random, 25)) {
            plan->change = CHANGE_REMOVE;
            plan->set = victim;
        } else if (s->set_count < SETS_LIMIT && random_chance(random, 40)) {
            plan->change = CHANGE_ADD;
            plan->set = s->set_count + 1;
            if (!s->sets[plan->set].ranks)
                draw_members(s, &s->sets[plan->set], random);
        }
        judge(p, p->changes, r);
        if (plan->outcome == OUTCOME_RUNS && plan->change != CHANGE_NONE) {
            there[plan->set] = plan->change == CHANGE_ADD;
            s->set_count += plan->change == CHANGE_ADD;
        }
    }
}

void program_draw(struct scenario *s, uint64_t *random)
{
    struct program *p = &s->program;
    int budget = OPERATIONS_PER_RUN / s->size;
    int most_names = budget / 3 < 1 ? 1 : budget / 3 > 48 ? 48 : budget / 3;
    int most_rounds = 2 + budget / most_names;
    p->seed = s->seed;
    p->size = s->size;
    draw_program(p, random, most_names, most_rounds < 40 ? most_rounds : 40);
    if (s->mute)
        p->joins = false;
    bool sets = random_chance(random, 40);
    if (sets)
        p->changes = p->names++;
    draw_epochs(p, random);
    draw_plans(p, random);
    for (int n = 0; n < p->names; n++) {
        for (int r = 0; n != p->changes && r < p->rounds; r++)
            judge(p, n, r);
    }
    if (sets)
        draw_changes(s, random);
}

void program_init_small(struct program *p, const struct scenario *s, int set)
{
    uint64_t random = random_mix(s->seed * 16 + (uint64_t)set);
    *p = (struct program){.seed = random, .size = s->sets[set].size};
    draw_program(p, &random, 5, 6);
    draw_epochs(p, &random);
    draw_plans(p, &random);
    for (int n = 0; n < p->names; n++) {
        for (int r = 0; r < p->rounds; r++)
            judge(p, n, r);
    }
}

void program_free(struct program *p)
{
    free(p->starts);
    free(p->lengths);
    free(p->plans);
    *p = (struct program){0};
}

/* ---- requests ---------------------------------------------------------------------------------------- */

void program_name(const struct program *p, int name, int round, char *text, size_t capacity)
{
    if ((int)(random_mix(p->seed ^ (uint64_t)name) % 100) < p->fresh_percent)
        snprintf(text, capacity, ".fresh.%d.%d", name, round);
    else
        snprintf(text, capacity, ".tensor%d", name);
}

static struct signature encode(const hvd_request *request)
{
    uint32_t length;
    hvd_status status;
    if (signature_measure(request, &length, &status)) {
        fprintf(stderr, "%s\n", status.text);
        abort();
    }
    return signature_encode(request, NULL, malloc(length), length);
}

struct signature join_signature(void)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    return encode(&request);
}

/* In a mismatch the ranks of the set differ, or its number does. */
static struct signature change_signature(const struct scenario *s, const struct plan *plan, int variant)
{
    const struct set_plan *set = &s->sets[plan->set];
    bool add = plan->change == CHANGE_ADD;
    bool fewer = add && variant % 2 && set->size > 1;
    hvd_request request = {.struct_size = sizeof request,
                           .operation = add ? HVD_ADD_PROCESS_SET : HVD_REMOVE_PROCESS_SET,
                           .root = plan->set + (add ? 0 : variant),
                           .priority = fewer ? variant / 2 : variant,
                           .ranks = set->ranks,
                           .rank_count = set->size - fewer};
    return encode(&request);
}

static bool is_pair(const struct program *p, int name, int round)
{
    hvd_operation operation = operation_of(p, name, round);
    return (plan_of(p, name, round)->form >> 16 & 7) == 0 &&
           (operation_reduces(operation) || operation == HVD_ALLGATHER);
}

int program_row_numbers(const struct program *p, int name, int round)
{
    switch (operation_of(p, name, round)) {
    case HVD_ALLGATHER:
        return 1 + is_pair(p, name, round);
    case HVD_ALLTOALL:
        return p->size;
    default:
        return 0;
    }
}

/* As many rows everywhere, but for one rank; or every number is another one, small or large. */
enum { ROWS_EQUAL, ROWS_EXCEPT_ONE, ROWS_SMALL, ROWS_LARGE };

static int rows_style(const struct plan *plan)
{
    return (int)(plan->rows >> 60 & 3);
}

int program_row_bytes(const struct plan *plan)
{
    return rows_style(plan) == ROWS_LARGE ? 7 : 2;
}

uint64_t program_rows(const struct program *p, int name, int round, int rank, int index)
{
    const struct plan *plan = plan_of(p, name, round);
    uint64_t number = random_mix(plan->rows + (uint64_t)rank * 1000003 + (uint64_t)index);
    int style = rows_style(plan);
    bool odd = style == ROWS_EXCEPT_ONE && (uint64_t)rank == plan->rows % (uint64_t)p->size;
    if (style == ROWS_EQUAL || (style == ROWS_EXCEPT_ONE && !odd))
        return style == ROWS_EQUAL ? plan->rows >> 8 & 3 : 2;
    return style == ROWS_LARGE ? number >> 20 : number & 0xfff;
}

struct signature program_signature(const struct program *p, const struct scenario *s, int name, int round,
                                   int rank)
{
    static const hvd_dtype types[] = {HVD_FLOAT32, HVD_FLOAT64};
    static char data;
    const struct plan *plan = plan_of(p, name, round);
    int variant = variant_of(p, plan, rank);
    hvd_operation operation = operation_of(p, name, round);
    if (plan->change != CHANGE_NONE)
        return change_signature(s, plan, variant);
    const struct operation *row = &operation_table[operation];
    int64_t length = plan->form >> 14 & 1 ? 300 : 1; /* some go in long batches */
    int64_t shape[] = {row->shape == SHAPE_same_rows ? rank % 3 : 2,
                       (1 + (int64_t)(plan->form % 60) + variant) * length};
    hvd_tensor tensors[] = {{&data, shape, 2, types[plan->form >> 8 & 1], HVD_CPU, 0},
                            {&data, shape, 2, types[~plan->form >> 8 & 1], HVD_CPU, 0}};
    const double two = 2;
    hvd_request request = {
        .struct_size = sizeof request,
        .operation = operation,
        .count = (row->shape != SHAPE_no_tensors) + is_pair(p, name, round),
        .inputs = tensors,
        .reduction = plan->form >> 9 & 1 || !operation_does(operation, HVD_MAX) ? HVD_SUM : HVD_MAX,
        .root = (int32_t)root_of(p, plan),
        .prescale = plan->form >> 15 & 1 ? &two : NULL,
        .priority = (int32_t)(plan->form >> 12 & 3) + (operation == HVD_BARRIER ? variant : 0),
    };
    return encode(&request);
}
