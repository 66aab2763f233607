/* heartbeat.c - see progress.h. Time is counted in looks of this process: those that it misses because it
 * was stopped itself do not count. */
#include "engine/progress.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/handle.h"

#include <stdio.h>
#include <unistd.h>

#define LOOKS_PER_PERIOD  32
#define CHECKS_UNTIL_PING 1 /* in a row without bytes: silence is counted from just before an outage */

/* An outage that is shorter than the limit ends nothing: a peer is reported after the limit and some looks
 * more, one for the time before the outage and three for the next retransmission after it
 * (transport/lanes.c). Once a rank has reported one, the others report every peer that has been silent for
 * half of the limit. */
#define LOOKS_UNTIL_REPORT 36
#define LOOKS_FOR_SETTLING 3

/* Of a connection without acknowledgements: later, since a silent peer is the better cause. */
#define LOOKS_UNTIL_BROKEN 37

static const char *limiting_setting(const struct settings *settings)
{
    return settings_silence_limit(settings) == settings->timeout_seconds
               ? "HOROVOD_TIMEOUT_SECONDS"
               : "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";
}

/* The time between two looks; 0: none are wanted. */
static int64_t interval(const struct settings *settings)
{
    double limit = settings_silence_limit(settings), warning = settings->stall_warning_seconds;
    double period = !limit || (warning && warning < limit) ? warning : limit;
    return (int64_t)(period * CLOCK_SECOND) / LOOKS_PER_PERIOD;
}

int64_t heartbeat_settling(const struct settings *settings)
{
    return (int64_t)(settings_silence_limit(settings) * CLOCK_SECOND) / LOOKS_PER_PERIOD * LOOKS_FOR_SETTLING;
}

/* For a result, or for the end of the shutdown handshake. */
static bool waits(const struct comm *comm)
{
    return !comm_is_quiet(comm) || (comm->context->leave_said && !comm->closed);
}

int64_t heartbeat_deadline(struct hvd_context *context, bool quiet)
{
    bool leaves = context->leave_said && atomic_load(&context->closed) != HANDLE_DONE;
    if ((quiet && !leaves) || !interval(&context->settings))
        context->next_heartbeat = 0;
    else if (!context->next_heartbeat) {
        /* The wait begins: time before it does not count. */
        context->next_heartbeat = clock_now() + interval(&context->settings);
        for (struct comm *comm = context->world; comm; comm = comm->next_running)
            for (int i = 0; i < comm->edge_count; i++)
                comm->edges[i].alive = true;
    }
    return context->next_heartbeat ? context->next_heartbeat : CLOCK_NEVER;
}

/* ---- texts -------------------------------------------------------------------------------------------- */

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

/* "host b (ranks 2-3)" */
static void append_host(const struct comm *comm, int host, char *text, size_t capacity)
{
    const struct topology *topology = &comm->topology;
    char ranks[128], name[MESH_PEER_TEXT] = "";
    struct rank_set set = {0};
    for (int place = topology->first[host]; place < topology->first[host + 1]; place++)
        rank_set_add(&set, topology->rank_at[place], topology->rank_at[place]);
    const char *known = mesh_peer_host(comm->mesh, topology_leader(topology, host));
    if (!known)
        gethostname(name, sizeof name - 1);
    append_text(text, capacity, "host %s (%s)", known ? known : name,
                rank_set_text(&set, ranks, sizeof ranks));
}

static const char *explain_lost(int entries, bool hosts, char state)
{
    if (hosts)
        return "it is down, the network to it is cut, or its processes are stopped";
    return entries > 1 ? "their processes are stopped, or their hosts or the network are down"
                       : explain(state);
}

/* "host b (ranks 2-3), rank 5 (pid 12, host c)" */
static void explain_silent(const struct comm *comm, const struct rank_set *lost, hvd_status *cause)
{
    const struct topology *topology = &comm->topology;
    const struct settings *settings = &comm->context->settings;
    char text[512] = "", state = '\0';
    int own = topology->host_of[comm->rank], entries = 0;
    bool hosts = false;
    for (int host = 0; host < topology->hosts; host++) {
        int first = topology->first[host], end = topology->first[host + 1];
        bool whole = host != own;
        for (int place = first; place < end; place++)
            whole = whole && rank_set_has(lost, place);
        if (whole) {
            append_text(text, sizeof text, entries++ ? ", " : "");
            append_host(comm, host, text, sizeof text);
            hosts = true;
        }
        for (int place = first; place < end && !whole; place++) {
            char who[MESH_PEER_TEXT];
            if (!rank_set_has(lost, place))
                continue;
            char seen = mesh_peer_state(comm->mesh, topology->rank_at[place], who, sizeof who);
            /* Ranks of other hosts do not see it, and several may write the cause. */
            state = topology->hosts > 1 ? '\0' : seen;
            append_text(text, sizeof text, entries++ ? ", %s" : "%s", who);
        }
    }
    status_set(cause, HVD_TIMED_OUT, "%s %s not answered for %g s (%s): %s", text,
               entries > 1 ? "have" : "has", settings_silence_limit(settings), limiting_setting(settings),
               explain_lost(entries, hosts, state));
}

/* "host b (rank 1) and host c (rank 2), host b (rank 1) and host d (rank 3)" */
static void explain_pairs(const struct comm *comm, const struct silence *silence, hvd_status *cause)
{
    const struct settings *settings = &comm->context->settings;
    char text[512] = "";
    for (int i = 0; i < silence->pair_count; i++) {
        append_text(text, sizeof text, i ? ", " : "");
        append_host(comm, silence->pairs[i][0], text, sizeof text);
        append_text(text, sizeof text, " and ");
        append_host(comm, silence->pairs[i][1], text, sizeof text);
    }
    status_set(cause, HVD_TIMED_OUT,
               "%s have not heard each other for %g s (%s)%s: the network between them is cut, in one "
               "direction or both; look for a firewall, a route or a cable",
               text, settings_silence_limit(settings), limiting_setting(settings),
               comm->topology.hosts > 2 ? ", though both answer through other hosts" : "");
}

/* Hosts are connected to a few others only, and another one may be there all the same: so these are named. */
static void explain_cut_off(const struct comm *comm, const struct rank_set *lost, hvd_status *cause)
{
    const struct topology *topology = &comm->topology;
    const struct settings *settings = &comm->context->settings;
    char text[256] = "", peers[512] = "";
    append_host(comm, topology->host_of[comm->rank], text, sizeof text);
    for (int host = 0; host < topology->hosts; host++) {
        if (!rank_set_has(lost, topology->first[host]))
            continue;
        append_text(peers, sizeof peers, *peers ? ", " : "");
        append_host(comm, host, peers, sizeof peers);
    }
    status_set(
        cause, HVD_TIMED_OUT,
        "%s is cut off: no other host has answered for %g s (%s) of those that it is connected to, %s; "
        "is its network up?",
        text, settings_silence_limit(settings), limiting_setting(settings), peers);
}

void heartbeat_explain(const struct comm *comm, const struct silence *silence, hvd_status *cause)
{
    if (silence->cut_off) {
        explain_cut_off(comm, &silence->lost, cause);
    } else if (silence->lost.count) {
        explain_silent(comm, &silence->lost, cause);
    } else {
        explain_pairs(comm, silence, cause);
    }
}

/* ---- looks -------------------------------------------------------------------------------------------- */

static void warn(const struct comm *comm, const struct edge *edge, double seconds)
{
    char who[MESH_PEER_TEXT];
    const struct pending *oldest = coordinator_oldest(comm->coordinator);
    const char *name = oldest ? ((const struct hvd_handle *)oldest->owner)->name : NULL;
    char state = mesh_peer_state(comm->mesh, comm->ranks[edge->peer], who, sizeof who);
    log_warning(comm->context->placement.rank, "%.200s waits, and %s has not answered for %.3g s: %s",
                name ? name : "an operation under way", who, seconds, explain(state));
}

/* One of the ranks that wait warns of a silent host: the next one on the ring of places. */
static bool warns(const struct comm *comm, const struct edge *edge)
{
    const struct topology *topology = &comm->topology;
    int next = (topology->place_of[edge->peer] + 1) % comm->size;
    return topology->rank_at[next] == comm->rank;
}

/* Once set 0 has closed nobody settles on a cause: what this rank finds is one. */
static void report_silent(struct comm *comm, int peer)
{
    struct comm *world = comm->context->world;
    struct rank_set lost = {0};
    hvd_status cause;
    if (world->closed) {
        rank_set_add(&lost, world->topology.place_of[peer], world->topology.place_of[peer]);
        explain_silent(world, &lost, &cause);
        progress_fail(comm, peer, &cause);
    } else {
        coordinator_silent(world->coordinator, peer);
        world->next_flush = clock_now();
    }
}

/* Any wait looks at all peers of set 0: once a silent rank was reported, those that nobody waits for tell
 * what is cut off. */
static void look_at(struct comm *comm, struct edge *edge)
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
    double report = others ? limit / 2 : limit * LOOKS_UNTIL_REPORT / LOOKS_PER_PERIOD;
    if (!others && !waits(comm))
        return;
    if (limit > 0 && silent >= report) {
        report_silent(comm, comm->ranks[edge->peer]);
    } else if (warning > 0 && warns(comm, edge) &&
               (long)(silent / warning) > (long)((silent - each) / warning)) {
        warn(comm, edge, silent);
    }
}

bool heartbeat_attribute_loss(struct comm *comm, int peer)
{
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
    const struct settings *settings = &comm->context->settings;
    char host[MESH_PEER_TEXT] = "", who[MESH_PEER_TEXT];
    hvd_status cause;
    gethostname(host, sizeof host - 1);
    mesh_peer_state(comm->mesh, peer, who, sizeof who);
    status_set(
        &cause, HVD_TIMED_OUT,
        "the network path from rank %d (host %s) to %s, %s, is broken: nothing was acknowledged for %g s "
        "(%s); is that network up?",
        comm->context->placement.rank, host, who, path, settings_silence_limit(settings),
        limiting_setting(settings));
    if (world->closed) {
        progress_fail(comm, -1, &cause);
    } else {
        coordinator_broken(world->coordinator, cause.text);
        world->next_flush = clock_now();
    }
}

void heartbeat_check(struct hvd_context *context)
{
    int64_t now = context->next_heartbeat ? clock_now() : 0;
    double limit = settings_silence_limit(&context->settings);
    if (!context->next_heartbeat || now < context->next_heartbeat)
        return;
    context->next_heartbeat += interval(&context->settings);
    if (context->next_heartbeat < now)
        context->next_heartbeat = now + interval(&context->settings);
    double each = (double)interval(&context->settings) / CLOCK_SECOND;
    unsigned broken = (unsigned)(limit / each * LOOKS_UNTIL_BROKEN / LOOKS_PER_PERIOD);
    char path[2 * SOCKET_TEXT];
    for (struct comm *comm = context->world; comm; comm = comm->next_running) {
        for (int i = 0; i < comm->edge_count; i++) {
            if (!waits(comm) && (comm->id || comm->closed))
                comm->edges[i].alive = true;
            look_at(comm, &comm->edges[i]);
        }
        int peer = limit > 0 ? mesh_find_broken(comm->mesh, broken, path, sizeof path) : -1;
        if (peer >= 0)
            report_broken(comm, peer, path);
        comm_flush(comm);
    }
}
