/* heartbeat.c - see progress.h. Time is counted in looks of this process: those that it misses because it
 * was stopped itself do not count. */
#include "engine/progress.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

#define LOOKS_PER_PERIOD  8
#define CHECKS_UNTIL_PING 2 /* in a row without bytes: a quarter of the period */

/* The time between two looks; 0: none are wanted. */
static int64_t interval(const struct hvd_context *context)
{
    const struct settings *settings = &context->settings;
    double period = settings->stall_warning_seconds > 0 ? settings->stall_warning_seconds
                                                        : settings->stall_shutdown_seconds;
    return (int64_t)(period * CLOCK_SECOND) / LOOKS_PER_PERIOD;
}

int64_t heartbeat_deadline(struct hvd_context *context, bool waits)
{
    if (!waits || !interval(context))
        context->next_heartbeat = 0;
    else if (!context->next_heartbeat) {
        /* The wait begins: time before it does not count. */
        context->next_heartbeat = clock_now() + interval(context);
        for (struct comm *comm = context->world; comm; comm = comm->next_running)
            for (int i = 0; i < comm->edge_count; i++)
                comm->edges[i].alive = true;
    }
    return context->next_heartbeat ? context->next_heartbeat : CLOCK_NEVER;
}

static const char *explain(char state)
{
    switch (state) {
    case 'T':
    case 't':
        return "its process is stopped (state T), by a signal or a debugger; kill -CONT lets it go on";
    case 'D':
        return "its process waits for a disk or a device (state D)";
    case '\0':
        return "its process is stopped, or its host or the network is down: look at it there, e.g. with ps";
    default:
        return "its process is there, but its Horovod does not run: look at it, e.g. with gdb";
    }
}

static void describe(const struct comm *comm, const struct edge *edge, double seconds, hvd_status *status)
{
    char who[MESH_PEER_TEXT];
    const char *name = coordinator_oldest(comm->coordinator);
    char state = mesh_peer_state(comm->mesh, comm->ranks[edge->peer], who, sizeof who);
    status_set(status, HVD_TIMED_OUT, "%.200s waits, and %s has not answered for %.3g s: %s",
               name ? name : "an operation under way", who, seconds, explain(state));
}

static void give_up(struct comm *comm, const struct edge *edge, const hvd_status *found)
{
    hvd_status cause;
    status_set(&cause, HVD_TIMED_OUT, "%s. The job ends now, as HOROVOD_STALL_SHUTDOWN_TIME_SECONDS says",
               found->text);
    progress_fail(comm, comm->ranks[edge->peer], &cause);
}

static void look_at(struct comm *comm, struct edge *edge)
{
    const struct settings *settings = &comm->context->settings;
    hvd_status found;
    /* Of a deaf edge the mesh reports the loss; it is not pinged. */
    edge->missed_heartbeats = edge->alive || edge->deaf ? 0 : edge->missed_heartbeats + 1;
    edge->alive = false;
    if (edge->missed_heartbeats == CHECKS_UNTIL_PING)
        edge_ping(edge);
    double silent = (double)edge->missed_heartbeats * (double)interval(comm->context) / CLOCK_SECOND;
    bool over = settings->stall_shutdown_seconds > 0 && silent >= settings->stall_shutdown_seconds;
    if (!over && (!edge->missed_heartbeats || edge->missed_heartbeats % LOOKS_PER_PERIOD))
        return;
    describe(comm, edge, silent, &found);
    if (over)
        give_up(comm, edge, &found);
    else
        log_warning(comm->context->placement.rank, "%s", found.text);
}

void heartbeat_check(struct hvd_context *context)
{
    int64_t now = context->next_heartbeat ? clock_now() : 0;
    if (!context->next_heartbeat || now < context->next_heartbeat)
        return;
    context->next_heartbeat = now + interval(context);
    for (struct comm *comm = context->world; comm; comm = comm->next_running) {
        for (int i = 0; i < comm->edge_count; i++) {
            /* This rank waits for nothing in this set. */
            if (comm_is_quiet(comm))
                comm->edges[i].alive = true;
            look_at(comm, &comm->edges[i]);
        }
        comm_flush(comm);
    }
}
