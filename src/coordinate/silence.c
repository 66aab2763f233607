/* silence.c - collects reports about silent ranks and broken paths, and concludes which ranks are lost. Under
 * the progress lock. */
#include "coordinate/silence.h"

#include "base/status.h"
#include "coordinate/close.h"

#include <stdlib.h>

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

static int host_of(const struct coordinator *c, int place)
{
    return c->config.tree.topology->host_of[rank_at(&c->config, place)];
}

/* ---- reports and answers ------------------------------------------------------------------------------- */

/* Returns NULL if memory is out: then the report is dropped. */
static struct silent_place *silent_place_at(struct coordinator *c, int place)
{
    if (!c->silent_places)
        c->silent_places = calloc((size_t)c->config.tree.topology->size, sizeof *c->silent_places);
    return c->silent_places ? &c->silent_places[place] : NULL;
}

void silence_add_present(struct coordinator *c, int place, int except)
{
    struct silent_place *silent = has_ended(c) ? NULL : silent_place_at(c, place);
    if (!silent || silent->present)
        return;
    silent->present = true;
    struct wire_writer message = {0};
    wire_put_u8(&message, MESSAGE_PRESENT);
    wire_put_u32(&message, (uint32_t)place);
    forward(c, &message, except);
}

/* The other ranks of the reported rank's host answer as well: if none of them does, the host is lost. */
static bool must_answer(const struct coordinator *c, int place)
{
    int own = c->config.tree.place;
    return place == own || (c->config.tree.topology->hosts > 1 && host_of(c, place) == host_of(c, own));
}

void silence_add(struct coordinator *c, int place, int reporter, int except)
{
    struct silent_place *silent = has_ended(c) ? NULL : silent_place_at(c, place);
    if (!silent || silent->reporter)
        return;
    silent->reporter = reporter + 1;
    c->any_silent = true;
    c->silent_since = 0;
    struct wire_writer message = {0};
    wire_put_u8(&message, MESSAGE_SILENT);
    wire_put_u32(&message, (uint32_t)place);
    wire_put_u32(&message, (uint32_t)reporter);
    forward(c, &message, except);
    if (must_answer(c, place))
        silence_add_present(c, c->config.tree.place, -1);
}

void silence_add_broken(struct coordinator *c, const char *text, int except)
{
    if (c->broken.code || has_ended(c))
        return;
    status_set(&c->broken, HVD_TIMED_OUT, "%s", text);
    status_blame(&c->broken, HVD_CAUSE_NETWORK, -1, NULL);
    c->silent_since = 0;
    struct wire_writer message = {0};
    wire_put_u8(&message, MESSAGE_BROKEN);
    wire_put_string(&message, text);
    forward(c, &message, except);
}

bool has_silent(const struct coordinator *c)
{
    return c->any_silent || c->broken.code;
}

/* ---- conclusions --------------------------------------------------------------------------------------- */

/* Between ranks of one host there is no network, so a silent rank there has a stopped process. */
static bool is_lost(const struct coordinator *c, int place)
{
    const struct silent_place *silent = c->silent_places ? &c->silent_places[place] : NULL;
    return silent && silent->reporter &&
           (!silent->present || host_of(c, place) == host_of(c, silent->reporter - 1));
}

/* The leader of a host finds the host cut off if its neighbours on the ring of places and in the tree are all
 * lost. */
static bool is_cut_off(const struct coordinator *c)
{
    const struct tree_node *tree = &c->config.tree;
    const struct topology *topology = tree->topology;
    int host = host_of(c, tree->place), size = topology->size;
    int first = topology->first[host], end = topology->first[host + 1];
    /* With two hosts either may be the one that is cut off. */
    bool cut = topology->hosts > 2 && tree->place == first && is_lost(c, (first + size - 1) % size) &&
               is_lost(c, end % size);
    cut = cut && (is_root(c) || is_lost(c, tree->parent));
    for (int i = 0; i < tree->child_count; i++)
        cut = cut && (tree->children[i] < end || is_lost(c, tree->children[i]));
    return cut;
}

static void add_lost(const struct coordinator *c, int host, struct rank_set *lost)
{
    const struct topology *topology = c->config.tree.topology;
    int first = topology->first[host], last = topology->first[host + 1] - 1;
    bool any = false, answers = host == host_of(c, c->config.tree.place);
    for (int place = first; place <= last; place++) {
        any |= is_lost(c, place);
        answers |= c->silent_places[place].present;
    }
    if (any && !answers)
        rank_set_add(lost, first, last);
    for (int place = first; any && answers && place <= last; place++) {
        if (is_lost(c, place))
            rank_set_add(lost, place, place);
    }
}

static void add_pair(struct silence *silence, int a, int b)
{
    int low = a < b ? a : b, high = a < b ? b : a;
    for (int i = 0; i < silence->pair_count; i++) {
        if (silence->pairs[i][0] == low && silence->pairs[i][1] == high)
            return;
    }
    if (silence->pair_count == SILENCE_PAIRS)
        return;
    silence->pairs[silence->pair_count][0] = low;
    silence->pairs[silence->pair_count++][1] = high;
}

/* Lost ranks explain every report about them; only if none is lost is the network between hosts the cause. */
static struct silence conclude(const struct coordinator *c)
{
    const struct topology *topology = c->config.tree.topology;
    struct silence silence = {.cut_off = is_cut_off(c)};
    for (int host = 0; host < topology->hosts; host++)
        add_lost(c, host, &silence.lost);
    for (int place = 0; !silence.lost.count && place < topology->size; place++) {
        if (c->silent_places[place].reporter)
            add_pair(&silence, host_of(c, place), host_of(c, c->silent_places[place].reporter - 1));
    }
    return silence;
}

/* Several ranks may have lost the same parent: the lowest place acts first; its cause stops the others. */
int64_t silence_next(const struct coordinator *c)
{
    if (!c->silent_since || has_ended(c))
        return INT64_MAX;
    const struct tree_node *tree = &c->config.tree;
    int64_t time = c->config.settling_time, later = time * tree->place / tree->topology->size;
    bool top = is_root(c) || is_lost(c, tree->parent);
    return c->silent_since + time * (top ? 1 : 2) + later;
}

void silence_check(struct coordinator *c, int64_t now)
{
    const struct coordinator_output *output = &c->config.output;
    if (has_silent(c) && !c->silent_since)
        c->silent_since = now;
    if (now < silence_next(c))
        return;
    hvd_status cause = c->broken; /* a text, which would take longer than the rest of most calls */
    if (c->any_silent) {
        struct silence silence = conclude(c);
        output->silent(output->owner, &silence, &cause);
    }
    fail(c, -1, &cause);
}
