/* comm_open.c - connects the members of a process set and opens the parts of its communicator: mesh, edges,
 * back ends, coordinator. In the thread of a user that may block; comm_open.h says what it may touch. */
#include "engine/comm_open.h"

#include "base/clock.h"
#include "base/status.h"
#include "coll/pattern.h"
#include "engine/comm_callbacks.h"
#include "engine/context.h"
#include "engine/eager_data.h"
#include "engine/heartbeat.h"
#include "engine/identity.h"
#include "engine/placement.h"
#include "engine/sets.h"
#include "transport/mesh_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which ranks are connected ---------------------------------------------------------------------- */

static void add_rank(const struct comm *comm, int place, int *ranks, int *count)
{
    int rank = comm->ranks[comm->topology.rank_at[place]];
    if (rank != comm->ranks[comm->rank] && ranks_find(ranks, *count, rank) < 0) {
        ranks[(*count)++] = rank;
        ranks_sort(ranks, *count);
    }
}

/* Returns the neighbours in the tree and on the ring: ranks of the job, ascending. NULL: out of memory. */
static int *list_neighbours(const struct comm *comm, const struct tree_node *tree, int *count)
{
    int place = comm->topology.place_of[comm->rank];
    int *ranks = malloc(((size_t)tree->child_count + 3) * sizeof *ranks);
    *count = 0;
    if (!ranks)
        return NULL;
    add_rank(comm, pattern_shift(place, 1, comm->size), ranks, count);
    add_rank(comm, pattern_shift(place, -1, comm->size), ranks, count);
    if (tree->parent >= 0)
        add_rank(comm, tree->parent, ranks, count);
    for (int i = 0; i < tree->child_count; i++)
        add_rank(comm, tree->children[i], ranks, count);
    return ranks;
}

/* ---- connecting ------------------------------------------------------------------------------------ */

/* Copies the job's settings under a name of the set's own, for its keys at the rendezvous. */
static hvd_code name_set(const struct comm *comm, struct settings *settings, hvd_status *status)
{
    const struct settings *job = &comm->context->settings;
    if (comm->id == 0)
        return HVD_OK;
    TRY(settings_copy(settings, job, status));
    size_t capacity = strlen(job->job) + 32;
    char *name = malloc(capacity);
    if (!name)
        return status_no_memory(status);
    snprintf(name, capacity, "%s#%u.%d", job->job, comm->context->generation, comm->id);
    hvd_code code = settings_set(settings, setting_by_key("job"), name, "the process set", status);
    free(name);
    return code;
}

static hvd_code connect_to_rendezvous(const struct mesh_config *config, struct rendezvous_client **client,
                                      hvd_status *status)
{
    const struct settings *settings = config->settings;
    return rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption, config->deadline,
                              config->interrupt, client, status);
}

static hvd_code join_epoch(struct comm *comm, struct mesh_config *config, hvd_status *status)
{
    struct hvd_context *context = comm->context;
    if (!context->rendezvous) /* otherwise it is open since the place was looked up */
        TRY(connect_to_rendezvous(config, &context->rendezvous, status));
    TRY(identity_enter(context, status));
    rendezvous_scope(context->rendezvous, context->generation, 0);
    config->rendezvous = comm->size > 1 ? context->rendezvous : NULL;
    return HVD_OK;
}

/* Uses a client of its own: several threads may add sets at once. */
static hvd_code enter_as_set(struct comm *comm, struct mesh_config *config, hvd_status *status)
{
    const struct hvd_context *context = comm->context;
    TRY(connect_to_rendezvous(config, &config->rendezvous, status));
    const struct rendezvous_place place = {context->settings.job, (uint32_t)context->settings.epoch,
                                           context->placement.rank, 0};
    TRY(rendezvous_enter(config->rendezvous, &place, NULL, status));
    rendezvous_scope(config->rendezvous, context->generation, comm->id);
    return HVD_OK;
}

/* Reports a failure of enter_as_set to the other members, which would otherwise wait. It uses the job's
 * client, which is open: this rank may have no descriptor left, and the acceptor may take any that it closes.
 */
static void report_failure(struct comm *comm, const struct mesh_config *config, const hvd_status *cause)
{
    struct hvd_context *context = comm->context;
    struct mesh_config by_job = *config;
    by_job.rendezvous = context->rendezvous;
    pthread_mutex_lock(&context->rendezvous_lock);
    rendezvous_scope(by_job.rendezvous, context->generation, comm->id);
    mesh_open_failed(&by_job, cause);
    pthread_mutex_unlock(&context->rendezvous_lock);
}

static hvd_code enter_rendezvous(struct comm *comm, struct mesh_config *config, hvd_status *status)
{
    if (comm->size == 1 && (comm->id || !comm->context->rendezvous))
        return HVD_OK;
    hvd_code code = comm->id ? enter_as_set(comm, config, status) : join_epoch(comm, config, status);
    if ((code == HVD_SYSTEM || code == HVD_OUT_OF_MEMORY) && comm->id)
        report_failure(comm, config, status);
    config->generation = comm->context->generation;
    return code;
}

static void abandon_in_child(void *owner)
{
    const struct comm *comm = owner;
    mesh_abandon(comm->mesh);
}

static hvd_code connect_peers(struct comm *comm, struct mesh_config *config, struct tree_node *tree,
                              hvd_status *status)
{
    TRY(tree_node_init(tree, &comm->topology, comm->rank, (int)comm->context->settings.tree_fanout, status));
    int *neighbours = list_neighbours(comm, tree, &config->neighbour_count);
    int *peers = malloc((size_t)comm->size * sizeof *peers);
    hvd_code code;
    if (!neighbours || !peers) {
        code = status_no_memory(status);
        goto free_lists;
    }
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank)
            peers[config->peer_count++] = comm->ranks[rank];
    config->peers = peers;
    config->neighbours = neighbours;
    code = mesh_open(config, &comm->mesh, status);
free_lists:
    free(neighbours);
    free(peers);
    return code;
}

static hvd_code open_mesh(struct comm *comm, struct tree_node *tree, struct mesh_config *config,
                          hvd_status *status)
{
    TRY(enter_rendezvous(comm, config, status));
    /* All ranks exchange the topology of the job; the topology of a process set is derived from it. */
    TRY(comm->id ? topology_subset(&comm->topology, &comm->context->world->topology, comm->ranks, comm->size,
                                   status)
                 : placement_agree(config->rendezvous, config->settings, config->deadline, &comm->topology,
                                   status));
    TRY(connect_peers(comm, config, tree, status));
    /* Do this first: from here on a child of fork() would keep these connections open. */
    comm->watch = (struct atfork_handler){.in_child = abandon_in_child, .owner = comm};
    atfork_add(&comm->watch);
    return HVD_OK;
}

/* ---- the parts of a communicator ---------------------------------------------------------------------- */

static hvd_code open_edges(struct comm *comm, hvd_status *status)
{
    struct mesh *mesh = comm->mesh;
    int peers = 0;
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        peers++;
    comm->edges = calloc((size_t)peers + 1, sizeof *comm->edges);
    if (!comm->edges)
        return status_no_memory(status);
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer)) {
        struct link *link = mesh_link(mesh, peer, CHANNEL_CONTROL);
        edge_init(&comm->edges[comm->edge_count++], ranks_find(comm->ranks, comm->size, peer), link,
                  &comm->unsent);
        link->want_read = !mesh_reports(mesh);
        link_await(link);
    }
    return HVD_OK;
}

/* Takes ownership of the tree if it succeeds. */
static hvd_code open_coordinator(struct comm *comm, struct tree_node *tree, hvd_status *status)
{
    const struct settings *settings = &comm->context->settings;
    struct coordinator_config config = {
        .process_set = comm->id,
        .names = comm->ranks,
        .tree = *tree,
        .fusion_threshold = (uint64_t)settings->fusion_threshold,
        .groups_alone = settings->disable_group_fusion,
        .adasum_alone = settings->deterministic,
        .cycle_time = (int64_t)(settings->cycle_time_ms * 1e6),
        .cache_capacity = (uint32_t)settings->cache_capacity,
        .eager_threshold = eager_threshold(comm),
        .stall_time = (int64_t)(settings->stall_warning_seconds * CLOCK_SECOND),
        .stall_shutdown_time = (int64_t)(settings->stall_shutdown_seconds * CLOCK_SECOND),
        .settling_time = heartbeat_collecting_time(settings),
        .join_all = strcmp(settings->join, "all") == 0,
        .output = comm_output(comm),
    };
    TRY(coordinator_create(&config, &comm->coordinator, status));
    *tree = (struct tree_node){0};
    return HVD_OK;
}

static struct link *find_link(void *owner, int rank, int channel)
{
    const struct comm *comm = owner;
    return mesh_link(comm->mesh, comm->ranks[rank], channel);
}

/* Called while the rendezvous is still open: some back ends exchange addresses there. */
static hvd_code open_backends(struct comm *comm, const struct mesh_config *config, hvd_status *status)
{
    struct backend_opening opening = {.set = comm->id,
                                      .rank = comm->rank,
                                      .size = comm->size,
                                      .ranks = comm->ranks,
                                      .topology = &comm->topology,
                                      .settings = &comm->context->settings,
                                      .lookup = find_link,
                                      .owner = comm,
                                      .turns = comm_turns(comm),
                                      .rendezvous = config->rendezvous,
                                      .generation = comm->context->generation,
                                      .deadline = config->deadline,
                                      .interrupt = config->interrupt};
    TRY(backends_open(&comm->backends, comm->context->backends, &opening, status));
    for (int i = 0; i < comm->backends.count; i++) {
        int descriptor = comm->backends.rows[i].descriptor;
        if (descriptor >= 0 && !mesh_watch(comm->mesh, descriptor))
            return status_set_errno(status, errno, "rank %d can't wait for its back ends",
                                    comm->context->placement.rank);
    }
    return HVD_OK;
}

static hvd_code open_in_order(struct comm *comm, struct mesh_config *config, struct settings *settings,
                              struct tree_node *tree, hvd_status *status)
{
    TRY(name_set(comm, settings, status));
    TRY(open_mesh(comm, tree, config, status));
    TRY(open_edges(comm, status));
    TRY(open_backends(comm, config, status));
    return open_coordinator(comm, tree, status);
}

static hvd_code open_parts(struct comm *comm, int64_t deadline, const struct interrupt *interrupt,
                           hvd_status *status)
{
    struct settings settings = {0};
    struct mesh_config config = {.hub = comm->id ? comm->context->world->mesh : NULL,
                                 .number = (unsigned)comm->id,
                                 .owner = comm,
                                 .settings = comm->id ? &settings : &comm->context->settings,
                                 .channels = CHANNELS,
                                 .striped_channel = CHANNEL_LONG,
                                 .deadline = deadline,
                                 .interrupt = interrupt};
    struct tree_node tree = {0};
    hvd_code code = open_in_order(comm, &config, &settings, &tree, status);
    if (comm->id)
        rendezvous_close(config.rendezvous);
    settings_free(&settings);
    tree_node_free(&tree);
    return code;
}

hvd_code comm_open(struct hvd_context *context, int id, const int *ranks, int size, int64_t deadline,
                   const struct interrupt *interrupt, struct comm **comm, hvd_status *status)
{
    struct comm *opened = calloc(1, sizeof *opened);
    int *own_ranks = malloc((size_t)size * sizeof *own_ranks);
    if (!opened || !own_ranks) {
        free(opened);
        free(own_ranks);
        return status_no_memory(status);
    }
    memcpy(own_ranks, ranks, (size_t)size * sizeof *own_ranks);
    *opened = (struct comm){.context = context,
                            .id = id,
                            .rank = ranks_find(ranks, size, context->placement.rank),
                            .size = size,
                            .ranks = own_ranks,
                            .latency_threshold = (uint64_t)context->settings.latency_threshold,
                            .ring_piece_bytes = (uint64_t)context->settings.ring_piece_bytes,
                            .tuning = id == 0 ? context->tuning : NULL,
                            .counters = counters_of(context, id),
                            .next_flush = CLOCK_NEVER};
    hvd_code code =
        opened->counters ? open_parts(opened, deadline, interrupt, status) : status_no_memory(status);
    if (code) {
        comm_close(opened);
    } else {
        counters_set_size(opened->counters, size);
        *comm = opened;
    }
    return code;
}

void comm_close(struct comm *comm)
{
    if (!comm)
        return;
    /* First, since a forked child reads the mesh; then each part before the parts that it uses. */
    atfork_remove(&comm->watch);
    if (comm->counters)
        counters_set_size(comm->counters, 0);
    coordinator_destroy(comm->coordinator);
    for (int i = 0; i < comm->edge_count; i++)
        edge_fini(&comm->edges[i]);
    free(comm->edges);
    for (int i = 0; i < comm->backends.count; i++) {
        if (comm->backends.rows[i].descriptor >= 0)
            mesh_unwatch(comm->mesh, comm->backends.rows[i].descriptor);
    }
    backends_close(&comm->backends);
    mesh_close(comm->mesh);
    topology_free(&comm->topology);
    free(comm->ranks);
    free(comm);
}
