/* scenario.c - see scenario.h: the job, its settings and its troubles. */
#include "scenario.h"

#include "program.h"
#include "random.h"

#include <stdlib.h>

static void draw_tree(struct scenario *s, uint64_t *random, int ranks)
{
    /* Most jobs are small; about one in fifty comes near the limit. */
    double u = (double)random_below(random, 1 << 20) / (1 << 20);
    s->size = 2 + (int)((ranks - 1) * u * u * u * u);
    s->fanout = 2 + (int)random_below(random, 15);
    int *hosts = malloc((size_t)s->size * sizeof *hosts);
    int most = 1 + (int)random_below(random, random_chance(random, 20) ? s->size : 16);
    for (int rank = 0, host = 0; rank < s->size; host++) {
        int left = s->size - rank;
        for (int here = 1 + (int)random_below(random, most < left ? most : left); here > 0; here--)
            hosts[rank++] = host;
    }
    s->interleaved = random_chance(random, 50);
    for (int rank = s->size - 1; s->interleaved && rank > 0; rank--) {
        int other = (int)random_below(random, rank + 1), host = hosts[rank];
        hosts[rank] = hosts[other];
        hosts[other] = host;
    }
    if (topology_init(&s->topology, hosts, s->size, NULL))
        abort();
    free(hosts);
}

uint64_t draw_threshold(uint64_t *random)
{
    static const uint64_t thresholds[] = {0, 1000, 20000, 500000, UINT64_C(1) << 40};
    return thresholds[random_below(random, 5)];
}

int64_t draw_cycle_time(uint64_t *random)
{
    return random_chance(random, 30) ? 1 + random_below(random, 3000) : 0;
}

static void draw_settings(struct scenario *s, uint64_t *random)
{
    static const uint32_t capacities[] = {0, 1, 3, 16, 1024, 1024, 1024, 1024};
    s->fusion_threshold = draw_threshold(random);
    s->cache_capacity = capacities[random_below(random, 8)];
    s->cycle_time = draw_cycle_time(random);
    static const uint32_t thresholds[] = {0, 1000, 4096, 8192};
    uint64_t eager = random_mix(s->seed + 77);
    s->eager_threshold = thresholds[eager % 4];
    s->eager_differs = (eager >> 8 & 7) == 0;
    s->one_order = eager >> 11 & 1;
    s->tune_percent = random_chance(random, 30) ? 1 + (int)random_below(random, 30) : 0;
    s->spread = 1 + random_below(random, 2000);
    s->delay = 1 + random_below(random, random_chance(random, 20) ? 5000 : 300);
    s->think = 1 + random_below(random, 200);
    s->execution = 1 + random_below(random, random_chance(random, 50) ? 100 : 3000);
    s->opening = 1 + random_below(random, random_chance(random, 50) ? 100 : 10000);
    s->duplicate_percent = random_chance(random, 30) ? 10 : 0;
}

/* Long enough that what the nodes say has arrived when the root speaks. */
static void draw_stalls(struct scenario *s, uint64_t *random)
{
    if (!random_chance(random, 30))
        return;
    int depth = 2;
    for (int hosts = s->topology.hosts; hosts > 1; hosts = (hosts - 1 + s->fanout - 1) / s->fanout)
        depth++;
    s->stall_time = 4 * (depth * (s->delay + s->think) + s->opening) + random_below(random, 1000);
    s->sleep_percent = (int)random_below(random, 100);
    s->mute = random_chance(random, 10);
    if (s->mute)
        s->stall_shutdown_time = 20 * s->stall_time;
    if (s->mute && random_chance(random, 30))
        s->stall_time = 0; /* only the deadline counts */
}

static void draw_trouble(struct scenario *s, uint64_t *random)
{
    s->finale = random_chance(random, 70);
    s->trouble = 1 + random_below(random, s->program.rounds * (s->spread + s->delay * 4 + s->execution));
    int kind = s->mute ? 9 : (int)random_below(random, 10);
    s->leavers = kind < 3 ? 1 + (int)random_below(random, 3) : 0;
    s->cuts = kind >= 2 && kind < 5 ? 1 + (int)random_below(random, 2) : 0;
    s->losses = kind == 5;
    s->garbage = kind == 6;
    s->split = kind == 7 && s->topology.hosts > 1;
    s->broken = kind == 8 ? 1 + (int)random_below(random, 4) : 0;
    /* Long enough that what ranks find silent has passed all others, one by one, before it is over. */
    s->look = (s->size < 100 ? s->size : 100) * s->delay + 4 * s->think;
}

void scenario_init(struct scenario *s, uint64_t seed, int ranks)
{
    uint64_t random = random_mix(seed + 1);
    *s = (struct scenario){.seed = seed};
    draw_tree(s, &random, ranks);
    draw_settings(s, &random);
    draw_stalls(s, &random);
    program_draw(s, &random);
    draw_trouble(s, &random);
}

void scenario_free(struct scenario *s)
{
    for (int i = 0; i <= SETS_LIMIT; i++)
        free(s->sets[i].ranks);
    topology_free(&s->topology);
    program_free(&s->program);
    *s = (struct scenario){0};
}
