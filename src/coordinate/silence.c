/* silence.c - ranks that do not answer, and network paths that are broken between ranks that do
 * (docs/coordination.md, "Faults"). A rank that finds either floods that. So all that are still connected
 * know the same when one of them ends the job: the root, or the top of what is cut off from it, after a
 * settling time, and any other rank after two. Called with the progress lock held. */
#include "coordinate/state.h"

#include "base/status.h"

static bool has_ended(const struct coordinator *c)
{
    return c->state == STATE_FAILED || c->state == STATE_CLOSED;
}

static void forward(struct coordinator *c, struct wire_writer *message, int except)
{
    const struct coordinator_output *output = &c->config.output;
    if (!message->failed)
        output->flood(output->owner, except < 0 ? -1 : rank_at(&c->config, except), message->bytes,
                      message->length, false);
    wire_writer_free(message);
}

/* Forwarded once: the set is bounded, and what it does not keep goes no further. */
void silence_add(struct coordinator *c, int place, int except)
{
    if (rank_set_has(&c->silent, place) || has_ended(c))
        return;
    rank_set_add(&c->silent, place, place);
    if (!rank_set_has(&c->silent, place))
        return;
    struct wire_writer message = {0};
    wire_put_u8(&message, MESSAGE_SILENT);
    wire_put_u32(&message, (uint32_t)place);
    forward(c, &message, except);
}

void silence_add_broken(struct coordinator *c, const char *text, int except)
{
    if (c->broken.code || has_ended(c))
        return;
    status_set(&c->broken, HVD_TIMED_OUT, "%s", text);
    struct wire_writer message = {0};
    wire_put_u8(&message, MESSAGE_BROKEN);
    wire_put_string(&message, text);
    forward(c, &message, except);
}

void coordinator_silent(struct coordinator *c, int rank)
{
    silence_add(c, place_of(&c->config, rank), -1);
}

void coordinator_broken(struct coordinator *c, const char *text)
{
    silence_add_broken(c, text, -1);
}

bool coordinator_has_silent(const struct coordinator *c)
{
    return c->silent.count || c->broken.code;
}

/* Where the ring of places leaves this rank's host, and in the tree. */
static bool is_cut_off(const struct coordinator *c)
{
    const struct tree_node *tree = &c->config.tree;
    const struct topology *topology = tree->topology;
    int host = topology->host_of[rank_at(&c->config, tree->place)], size = topology->size;
    int first = topology->first[host], end = topology->first[host + 1];
    /* Of two hosts either may be the one that is cut off. */
    bool cut = topology->hosts > 2 && rank_set_has(&c->silent, (first + size - 1) % size) &&
               rank_set_has(&c->silent, end % size);
    cut &= tree->parent < 0 || tree->parent >= first || rank_set_has(&c->silent, tree->parent);
    for (int i = 0; i < tree->child_count; i++)
        cut &= tree->children[i] < end || rank_set_has(&c->silent, tree->children[i]);
    return cut;
}

/* Several have lost the same parent: the lowest place comes first, and its cause stops the others. */
int64_t silence_next(const struct coordinator *c)
{
    if (!c->silent_since || has_ended(c))
        return INT64_MAX;
    const struct tree_node *tree = &c->config.tree;
    int64_t time = c->config.settling_time, later = time * tree->place / tree->topology->size;
    bool top = is_root(c) || rank_set_has(&c->silent, tree->parent);
    return c->silent_since + time * (top ? 1 : 2) + later;
}

void silence_check(struct coordinator *c, int64_t now)
{
    const struct coordinator_output *output = &c->config.output;
    hvd_status cause = c->broken;
    if (coordinator_has_silent(c) && !c->silent_since)
        c->silent_since = now;
    if (now < silence_next(c))
        return;
    if (c->silent.count)
        output->silent(output->owner, &c->silent, is_cut_off(c), &cause);
    fail(c, -1, &cause);
}
