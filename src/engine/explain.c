/* explain.c - texts about ranks that do not answer: which ranks or hosts, for how long, which setting ended
 * the wait, and what to try. Under the progress lock. */
#include "engine/explain.h"

#include "base/clock.h"
#include "base/status.h"
#include "engine/comm.h"
#include "engine/context.h"
#include "engine/handle.h"

#include <stdio.h>
#include <unistd.h>

static const char *limiting_setting(const struct settings *settings)
{
    return settings_silence_limit(settings) == settings->timeout_seconds
               ? "HOROVOD_TIMEOUT_SECONDS"
               : "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS";
}

static const char *explain_state(char state)
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

/* Returns the name of a rank's host. */
static const char *host_name(const struct comm *comm, int rank, char *own, size_t capacity)
{
    const char *known = mesh_peer_host(comm->mesh, rank);
    if (!known)
        gethostname(own, capacity - 1);
    return known ? known : own;
}

/* Appends "host b (ranks 2-3)". */
static void append_host(const struct comm *comm, int host, char *text, size_t capacity)
{
    const struct topology *topology = &comm->topology;
    char ranks[128], name[MESH_PEER_TEXT] = "";
    struct rank_set set = {0};
    for (int place = topology->first[host]; place < topology->first[host + 1]; place++)
        rank_set_add(&set, topology->rank_at[place], topology->rank_at[place]);
    append_text(text, capacity, "host %s (%s)",
                host_name(comm, topology_leader(topology, host), name, sizeof name),
                rank_set_text(&set, ranks, sizeof ranks));
}

/* Writes "host b (ranks 2-3), rank 5 (pid 12, host c) have not answered ...". */
void explain_silent(const struct comm *comm, const struct rank_set *lost, hvd_status *cause)
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
    const char *reason = hosts         ? "it is down, the network to it is cut, or its processes are stopped"
                         : entries > 1 ? "their processes are stopped, or their hosts or the network are down"
                                       : explain_state(state);
    status_set(cause, HVD_TIMED_OUT, "%s %s not answered for %g s (%s): %s", text,
               entries > 1 ? "have" : "has", settings_silence_limit(settings), limiting_setting(settings),
               reason);
    char name[MESH_PEER_TEXT] = "";
    int first = topology->rank_at[lost->ranges[0].first];
    status_blame(cause, hosts ? HVD_CAUSE_HOST : HVD_CAUSE_SILENCE, comm->ranks[first],
                 host_name(comm, first, name, sizeof name));
}

/* Writes "host b (rank 1) and host c (rank 2), host b (rank 1) and host d (rank 3) have received ...". */
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
    status_set(
        cause, HVD_TIMED_OUT,
        "%s have received nothing from each other for %g s (%s)%s: the network between them is cut, in one "
        "direction or both; look for a firewall, a route or a cable",
        text, settings_silence_limit(settings), limiting_setting(settings),
        comm->topology.hosts > 2 ? ", though both answer through other hosts" : "");
    status_blame(cause, HVD_CAUSE_NETWORK, -1, NULL);
}

/* A host is connected to only a few others, and one beyond them may still be alive: the text names them. */
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
    char name[MESH_PEER_TEXT] = "";
    status_blame(cause, HVD_CAUSE_NETWORK, -1, host_name(comm, comm->rank, name, sizeof name));
}

void explain_silence(const struct comm *comm, const struct silence *silence, hvd_status *cause)
{
    if (silence->cut_off) {
        explain_cut_off(comm, &silence->lost, cause);
    } else if (silence->lost.count) {
        explain_silent(comm, &silence->lost, cause);
    } else {
        explain_pairs(comm, silence, cause);
    }
}

void explain_wait(const struct comm *comm, const struct edge *edge, double seconds)
{
    char who[MESH_PEER_TEXT];
    const struct pending *oldest = coordinator_oldest(comm->coordinator);
    const char *name = oldest ? ((const struct hvd_handle *)oldest->owner)->name : NULL;
    char state = mesh_peer_state(comm->mesh, comm->ranks[edge->peer], who, sizeof who);
    log_warning(comm->context->placement.rank, "%.200s waits, and %s has not answered for %.3g s: %s",
                name ? name : "an operation under way", who, seconds, explain_state(state));
}

void explain_broken(const struct comm *comm, int peer, const char *path, hvd_status *cause)
{
    const struct settings *settings = &comm->context->settings;
    char host[MESH_PEER_TEXT] = "", who[MESH_PEER_TEXT];
    gethostname(host, sizeof host - 1);
    mesh_peer_state(comm->mesh, peer, who, sizeof who);
    status_set(
        cause, HVD_TIMED_OUT,
        "the network path from rank %d (host %s) to %s, %s, is broken: nothing was acknowledged for %g s "
        "(%s); is that network up?",
        comm->context->placement.rank, host, who, path, settings_silence_limit(settings),
        limiting_setting(settings));
    status_blame(cause, HVD_CAUSE_NETWORK, -1, NULL);
}
