/* scenario.c - see scenario.h. */
#include "scenario.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>

#define OPERATIONS_PER_RUN 40000 /* about; large jobs get few names and rounds */

static void draw_tree(struct scenario *s, uint64_t *random, int ranks)
{
    /* Most jobs are small; about one in fifty comes near the limit. */
    double u = (double)random_below(random, 1 << 20) / (1 << 20);
    s->size = 2 + (int)((ranks - 1) * u * u * u * u);
    s->fanout = 2 + (int)random_below(random, 15);
    s->host_sizes = malloc((size_t)s->size * sizeof *s->host_sizes);
    int most = 1 + (int)random_below(random, random_chance(random, 20) ? s->size : 16);
    for (int left = s->size; left > 0; s->hosts++) {
        int ranks_here = 1 + (int)random_below(random, most < left ? most : left);
        s->host_sizes[s->hosts] = ranks_here;
        left -= ranks_here;
    }
}

static void draw_settings(struct scenario *s, uint64_t *random)
{
    static const uint64_t thresholds[] = {0, 1000, 20000, UINT64_C(1) << 40};
    static const uint32_t capacities[] = {0, 1, 3, 16, 1024, 1024, 1024, 1024};
    s->fusion_threshold = thresholds[random_below(random, 4)];
    s->cache_capacity = capacities[random_below(random, 8)];
    s->cycle_time = random_chance(random, 30) ? 1 + random_below(random, 3000) : 0;
    s->spread = 1 + random_below(random, 2000);
    s->delay = 1 + random_below(random, random_chance(random, 20) ? 5000 : 300);
    s->think = 1 + random_below(random, 200);
    s->execution = 1 + random_below(random, random_chance(random, 50) ? 100 : 3000);
}

static void draw_program(struct scenario *s, uint64_t *random)
{
    int budget = OPERATIONS_PER_RUN / s->size;
    int most_names = budget / 3 < 1 ? 1 : budget / 3 > 48 ? 48 : budget / 3;
    s->names = 1 + (int)random_below(random, most_names);
    int rounds = 2 + budget / s->names;
    s->rounds = 2 + (int)random_below(random, rounds < 40 ? rounds : 40);
    s->lockstep = random_chance(random, 50);
    s->fresh_percent = random_chance(random, 50) ? 0 : (int)random_below(random, 60);
    s->variants = random_chance(random, 20) ? 12 : 2;
    s->duplicate_percent = random_chance(random, 30) ? 10 : 0;
    s->plans = calloc((size_t)s->names * (size_t)s->rounds, sizeof *s->plans);
    int change_percent = random_chance(random, 50) ? 1 : (int)random_below(random, 20);
    int mismatch_percent = random_chance(random, 50) ? 0 : (int)random_below(random, 20);
    for (int n = 0; n < s->names; n++) {
        for (int r = 0; r < s->rounds; r++) {
            struct plan *plan = &s->plans[n * s->rounds + r];
            bool changes = r == 0 || random_chance(random, change_percent);
            plan->form = changes ? random_next(random) : plan[-1].form;
            plan->mismatch = random_chance(random, mismatch_percent) ? random_next(random) | 1 : 0;
        }
    }
}

static void draw_trouble(struct scenario *s, uint64_t *random)
{
    s->finale = random_chance(random, 70);
    s->trouble = 1 + random_below(random, s->rounds * (s->spread + s->delay * 4 + s->execution));
    int kind = (int)random_below(random, 10);
    s->leavers = kind < 3 ? 1 + (int)random_below(random, 3) : 0;
    s->cuts = kind >= 2 && kind < 5 ? 1 + (int)random_below(random, 2) : 0;
    s->losses = kind == 5;
    s->garbage = kind == 6;
}

void scenario_init(struct scenario *s, uint64_t seed, int ranks)
{
    uint64_t random = random_mix(seed + 1);
    *s = (struct scenario){.seed = seed};
    draw_tree(s, &random, ranks);
    draw_settings(s, &random);
    draw_program(s, &random);
    draw_trouble(s, &random);
}

void scenario_free(struct scenario *s)
{
    free(s->host_sizes);
    free(s->plans);
    *s = (struct scenario){0};
}

/* ---- requests ---------------------------------------------------------------------------------------- */

static const struct plan *plan_of(const struct scenario *s, int name, int round)
{
    return &s->plans[name * s->rounds + round];
}

static hvd_operation operation_of(int name)
{
    static const hvd_operation mix[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLREDUCE,
                                        HVD_ALLGATHER, HVD_ALLREDUCE, HVD_BARRIER,   HVD_ALLREDUCE};
    return mix[name % 8];
}

void scenario_name(const struct scenario *s, int name, int round, char *text, size_t capacity)
{
    if ((int)(random_mix(s->seed ^ (uint64_t)name) % 100) < s->fresh_percent)
        snprintf(text, capacity, "noname.%d.%d", name, round);
    else
        snprintf(text, capacity, "allreduce.tensor%d", name);
}

bool scenario_mismatch(const struct scenario *s, int name, int round)
{
    return plan_of(s, name, round)->mismatch;
}

/* Which of the forms a rank asks for; in a mismatch at least two ranks differ. */
static int variant_of(const struct scenario *s, const struct plan *plan, int rank)
{
    if (!plan->mismatch)
        return 0;
    int odd = (int)(plan->mismatch % (uint64_t)s->size);
    if (rank == odd)
        return 1;
    if (rank == (odd + 1) % s->size || plan->mismatch >> 40 & 1)
        return 0;
    return (int)(random_mix(plan->mismatch + (uint64_t)rank) % (uint64_t)s->variants);
}

struct signature scenario_signature(const struct scenario *s, int name, int round, int rank)
{
    static const hvd_dtype types[] = {HVD_FLOAT32, HVD_FLOAT64};
    static char data;
    const struct plan *plan = plan_of(s, name, round);
    int variant = variant_of(s, plan, rank);
    hvd_operation operation = operation_of(name);
    int64_t shape[] = {operation == HVD_ALLGATHER ? rank % 3 : 2, 1 + (int64_t)(plan->form % 60) + variant};
    hvd_tensor tensor = {&data, shape, 2, types[plan->form >> 8 & 1], HVD_CPU, 0};
    hvd_request request = {
        .struct_size = sizeof request,
        .operation = operation,
        .count = operation != HVD_BARRIER,
        .inputs = &tensor,
        .reduction = plan->form >> 9 & 1 ? HVD_SUM : HVD_MAX,
        .root = (int32_t)((plan->form >> 10 & 3) % (uint64_t)s->size),
        .priority = (int32_t)(plan->form >> 12 & 3) + (operation == HVD_BARRIER ? variant : 0),
    };
    struct signature signature;
    hvd_status status;
    if (signature_encode(&request, &signature, &status)) {
        fprintf(stderr, "%s\n", status.text);
        abort();
    }
    return signature;
}
