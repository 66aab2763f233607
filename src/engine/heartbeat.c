/* heartbeat.c - checks each peer 32 times in a period and counts those checks in a row in which nothing was
 * received. Time is measured in checks of this process, so time during which it was stopped does not count.
 * Under the progress lock. */
#include "engine/heartbeat.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/explain.h"
#include "engine/handle.h"

#include <assert.h>

#define CHECKS_UNTIL_PING 1 /* in a row without bytes: silence is counted from just before an outage */

/* An outage shorter than the limit ends no job: a peer is reported after the limit and four more checks, one
 * for the time before the outage and three for the next retransmission after it (transport/lanes.c). Once a
 * rank has reported a peer, the others report every peer that has been silent for half of the limit. */
#define CHECKS_UNTIL_REPORT 36

/* A connection without acknowledgements is reported later, since a silent peer is the better cause. */
#define CHECKS_UNTIL_BROKEN 37

/* Returns the time between two checks, in ns; 0: peers are not checked. */
static int64_t interval(const struct settings *settings)
{
    double limit = settings_silence_limit(settings), warning = settings->stall_warning_seconds;
    double period = !limit || (warning && warning < limit) ? warning : limit;
    return (int64_t)(period * CLOCK_SECOND) / CHECKS_PER_PERIOD;
}

/* Returns true if this rank waits for a result, or for the end of the shutdown handshake. */
static bool waits(const struct comm *comm)
{
    return !comm_is_quiet(comm) || (comm->context->leave_said && !comm->closed);
}

int64_t heartbeat_deadline(struct hvd_context *context, bool quiet)
{
    assert(context_is_held(context));
    bool leaves = context->leave_said && atomic_load(&context->closed) != HANDLE_DONE;
    if ((quiet && !leaves) || !interval(&context->settings))
        context->next_heartbeat = 0;
    else if (!context->next_heartbeat) {
        /* The wait starts now: earlier silence does not count. */
        context->next_heartbeat = clock_now() + interval(&context->settings);
        for (struct comm *comm = context->world; comm; comm = comm->next_running)
            for (int i = 0; i < comm->edge_count; i++)
                comm->edges[i].alive = true;
    }
    return context->next_heartbeat ? context->next_heartbeat : CLOCK_NEVER;
}

/* Once set 0 has closed, the ranks no longer agree on a cause: this rank's own finding is one. */
static void report_silent(struct comm *comm, int peer)
{
    struct comm *world = comm->context->world;
    struct rank_set lost = {0};
    hvd_status cause;
    if (world->closed) {
        rank_set_add(&lost, world->topology.place_of[peer], world->topology.place_of[peer]);
        explain_silent(world, &lost, &cause);
        comm_abort(comm, peer, &cause);
    } else {
        coordinator_silent(world->coordinator, peer);
        world->next_flush = clock_now();
    }
}

/* Any wait checks all peers of set 0: once a silent rank was reported, silent peers for which no rank waits
 * show which part of the job is cut off. */
static void check_peer(struct comm *comm, struct edge *edge)
{
    const struct settings *settings = &comm->context->settings;
    struct comm *world = comm->context->world;
    double limit = settings_silence_limit(settings), each = (double)interval(settings) / CLOCK_SECOND;
    double warning = settings->stall_warning_seconds;
    if (edge->deaf) /* the mesh reports the loss */
        return;
    edge->missed_heartbeats = edge->alive ? 0 : edge->missed_heartbeats + 1;
    edge->alive = false;
    if (!edge->missed_heartbeats)
        return;
    if (edge->missed_heartbeats == CHECKS_UNTIL_PING)
        edge_ping(edge);
    double silent = edge->missed_heartbeats * each;
    bool others = coordinator_has_silent(world->coordinator);
    double report = others ? limit / 2 : limit * CHECKS_UNTIL_REPORT / CHECKS_PER_PERIOD;
    if (!others && !waits(comm))
        return;
    /* Of all waiting ranks only the next one on the ring of places warns. */
    const struct topology *topology = &comm->topology;
    int next = topology->rank_at[(topology->place_of[edge->peer] + 1) % comm->size];
    if (limit > 0 && silent >= report) {
        report_silent(comm, comm->ranks[edge->peer]);
    } else if (warning > 0 && next == comm->rank &&
               (long)(silent / warning) > (long)((silent - each) / warning)) {
        explain_wait(comm, edge, silent);
    }
}

bool heartbeat_attribute_loss(struct comm *comm, int peer)
{
    assert(context_is_held(comm->context));
    const struct comm *world = comm->context->world;
    const struct settings *settings = &comm->context->settings;
    double limit = settings_silence_limit(settings), each = (double)interval(settings) / CLOCK_SECOND;
    int rank = ranks_find(comm->ranks, comm->size, peer);
    if (rank < 0 || limit == 0 || topology_share_host(&comm->topology, rank, comm->rank))
        return false;
    if (!world->closed && coordinator_has_silent(world->coordinator))
        return true;
    for (int i = 0; i < comm->edge_count; i++) {
        const struct edge *edge = &comm->edges[i];
        if (edge->peer == rank && edge->missed_heartbeats * each >= limit) {
            report_silent(comm, peer);
            return true;
        }
    }
    return false;
}

/* Either end may find it: the text names both. */
static void report_broken(struct comm *comm, int peer, const char *path)
{
    struct comm *world = comm->context->world;
    hvd_status cause;
    explain_broken(comm, peer, path, &cause);
    if (world->closed) {
        comm_abort(comm, -1, &cause);
    } else {
        coordinator_broken(world->coordinator, cause.text);
        world->next_flush = clock_now();
    }
}

void heartbeat_check(struct hvd_context *context)
{
    assert(context_is_held(context));
    int64_t now = context->next_heartbeat ? clock_now() : 0;
    double limit = settings_silence_limit(&context->settings);
    if (!context->next_heartbeat || now < context->next_heartbeat)
        return;
    context->next_heartbeat += interval(&context->settings);
    if (context->next_heartbeat < now)
        context->next_heartbeat = now + interval(&context->settings);
    double each = (double)interval(&context->settings) / CLOCK_SECOND;
    unsigned broken = (unsigned)(limit / each * CHECKS_UNTIL_BROKEN / CHECKS_PER_PERIOD);
    char path[2 * SOCKET_TEXT];
    for (struct comm *comm = context->world; comm; comm = comm->next_running) {
        for (int i = 0; i < comm->edge_count; i++) {
            if (!waits(comm) && (comm->id || comm->closed))
                comm->edges[i].alive = true;
            check_peer(comm, &comm->edges[i]);
        }
        int peer = limit > 0 ? mesh_find_broken(comm->mesh, broken, path, sizeof path) : -1;
        if (peer >= 0)
            report_broken(comm, peer, path);
        comm_flush(comm);
    }
}
