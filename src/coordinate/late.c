/* late.c - see late.h. Under the progress lock. */
#include "coordinate/late.h"

#include <stdlib.h>

static void publish(const struct coordinator *c, int reporter)
{
    const struct coordinator_output *output = &c->config.output;
    const struct tree_node *tree = &c->config.tree;
    int place = reporter ? tree->children[reporter - 1] : tree->place;
    output->late(output->owner, reporter, rank_at(&c->config, place), &c->late[reporter].lateness);
}

static void start_waiting(struct coordinator *c, int reporter)
{
    struct late *late = &c->late[reporter];
    if (late->rounds++)
        return;
    late->since = c->now;
    late->lateness.total -= c->now;
    late->lateness.count++;
    publish(c, reporter);
}

static void stop_clock(struct coordinator *c, int reporter)
{
    struct late *late = &c->late[reporter];
    int64_t waited = c->now - late->since;
    late->rounds = 0;
    late->lateness.total += c->now;
    late->lateness.longest = waited > late->lateness.longest ? waited : late->lateness.longest;
    publish(c, reporter);
}

void late_update(struct coordinator *c, struct round *round, int lacks)
{
    if (lacks == round->lacks)
        return;
    if (round->lacks && !--c->late[round->lacks - 1].rounds)
        stop_clock(c, round->lacks - 1);
    if (lacks)
        start_waiting(c, lacks - 1);
    round->lacks = lacks;
}

void late_end(struct coordinator *c)
{
    for (int reporter = 0; c->late && reporter < c->table.reporters; reporter++) {
        if (c->late[reporter].rounds)
            stop_clock(c, reporter);
    }
    free(c->late);
    c->late = NULL;
}
