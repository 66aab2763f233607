/* lane_open.c - how the members of a process set connect, and how a lane ends. lane_open runs in the thread
 * of a user, beside the driver, and touches only the lane in the making. */
#include "engine/lane.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "coll/pattern.h"
#include "engine/context.h"
#include "engine/sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is connected to whom ---------------------------------------------------------------------- */

/* Members on each host, without the hosts that have none. Returns how many hosts there are. */
static int count_members(const int *ranks, int size, const int *host_sizes, int hosts, int *members)
{
    int used = 0, next = 0, end = 0;
    for (int host = 0; host < hosts; host++) {
        int first = next;
        end += host_sizes[host];
        while (next < size && ranks[next] < end)
            next++;
        if (next > first)
            members[used++] = next - first;
    }
    return used;
}

static hvd_code plan_tree(const struct lane *lane, struct tree_node *tree, hvd_status *status)
{
    const struct settings *settings = &lane->context->settings;
    int *host_sizes;
    int hosts;
    hvd_code code =
        host_sizes_parse(settings->host_sizes, lane->context->placement.size, &host_sizes, &hosts, status);
    if (code)
        return code;
    int *members = malloc((size_t)hosts * sizeof *members);
    if (members) {
        hosts = count_members(lane->ranks, lane->size, host_sizes, hosts, members);
        code = tree_node_init(tree, lane->rank, members, hosts, (int)settings->tree_fanout, status);
    } else {
        code = status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the sizes of %d hosts", hosts);
    }
    free(members);
    free(host_sizes);
    return code;
}

/* Those that algorithms talk to, and the neighbours in the tree: ranks of the job, ascending, each once. NULL
 * when memory is out. */
static int *list_peers(const struct lane *lane, const struct tree_node *tree, int *count)
{
    int *peers = malloc((PATTERN_PEER_LIMIT + (size_t)tree->child_count + 1) * sizeof *peers);
    if (!peers)
        return NULL;
    int n = pattern_peers(lane->rank, lane->size, peers);
    if (tree->parent >= 0)
        peers[n++] = tree->parent;
    for (int i = 0; i < tree->child_count; i++)
        peers[n++] = tree->children[i];
    ranks_sort(peers, n);
    *count = 0;
    for (int i = 0; i < n; i++) {
        /* In place: never more are written than were read. Ranks of a set ascend as those of the job do. */
        int rank = lane->ranks[peers[i]];
        if (!*count || peers[*count - 1] != rank)
            peers[(*count)++] = rank;
    }
    return peers;
}

/* ---- connecting ------------------------------------------------------------------------------------ */

/* The job's settings under a name of the set's own, so that its connections never meet those of another. */
static hvd_code name_set(const struct lane *lane, struct settings *settings, hvd_status *status)
{
    const struct settings *job = &lane->context->settings;
    hvd_code code = settings_copy(settings, job, status);
    if (code || lane->id == 0)
        return code;
    size_t capacity = strlen(job->job) + 32;
    char *name = malloc(capacity);
    if (!name)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for process set %d", lane->id);
    snprintf(name, capacity, "%s#%u.%d", job->job, lane->context->generation, lane->id);
    code = settings_set(settings, setting_by_key("job"), name, "the process set", status);
    free(name);
    return code;
}

static hvd_code connect_to_rendezvous(struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    return rendezvous_connect(settings->rendezvous, settings->secret, config->deadline, config->interrupt,
                              &config->rendezvous, status);
}

/* Without a descriptor for it: the spare one serves to say so to the other members, who would wait. */
static void report_failure(struct lane *lane, struct mesh_config *config, const hvd_status *cause)
{
    hvd_status unused;
    int spare = atomic_exchange(&lane->context->spare, -1);
    socket_close(&spare);
    if (!connect_to_rendezvous(config, &unused))
        mesh_open_failed(config, cause);
    rendezvous_close(config->rendezvous);
    config->rendezvous = NULL;
    atomic_store(&lane->context->spare, platform_event_create());
}

static hvd_code meet(struct lane *lane, struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    if (lane->size == 1)
        return HVD_OK;
    hvd_code code = connect_to_rendezvous(config, status);
    if (code == HVD_SYSTEM && lane->id)
        report_failure(lane, config, status);
    if (code || lane->id) /* the name of a set is used once */
        return code;
    code =
        rendezvous_join(config->rendezvous, settings->job, (int)settings->rank, &config->generation, status);
    lane->context->generation = config->generation;
    return code;
}

static hvd_code open_mesh(struct lane *lane, const struct tree_node *tree, int64_t deadline,
                          const struct interrupt *interrupt, hvd_status *status)
{
    struct settings settings = {0};
    struct mesh_config config = {.hub = lane->id ? lane->context->world->mesh : NULL,
                                 .number = (unsigned)lane->id,
                                 .owner = lane,
                                 .settings = &settings,
                                 .channels = CHANNELS,
                                 .deadline = deadline,
                                 .interrupt = interrupt};
    int *peers = list_peers(lane, tree, &config.peer_count);
    if (!peers)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while connecting");
    config.peers = peers;
    hvd_code code = name_set(lane, &settings, status);
    if (!code)
        code = meet(lane, &config, status);
    if (!code)
        code = mesh_open(&config, &lane->mesh, status);
    rendezvous_close(config.rendezvous);
    settings_free(&settings);
    free(peers);
    return code;
}

/* ---- the parts of a lane --------------------------------------------------------------------------- */

static hvd_code open_edges(struct lane *lane, hvd_status *status)
{
    struct mesh *mesh = lane->mesh;
    int peers = 0;
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        peers++;
    lane->edges = calloc((size_t)peers + 1, sizeof *lane->edges);
    if (!lane->edges)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the edges of a process set");
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        edge_init(&lane->edges[lane->edge_count++], ranks_find(lane->ranks, lane->size, peer),
                  mesh_link(mesh, peer, CHANNEL_CONTROL));
    return HVD_OK;
}

/* Takes the tree over when it succeeds. */
static hvd_code open_coordinator(struct lane *lane, struct tree_node *tree, hvd_status *status)
{
    const struct settings *settings = &lane->context->settings;
    struct coordinator_config config = {
        .rank = lane->rank,
        .size = lane->size,
        .process_set = lane->id,
        .names = lane->ranks,
        .tree = *tree,
        .fusion_threshold = (uint64_t)settings->fusion_threshold,
        .groups_alone = settings->disable_group_fusion,
        .adasum_alone = settings->deterministic,
        .cycle_time = (int64_t)(settings->cycle_time_ms * 1e6),
        .cache_capacity = (uint32_t)settings->cache_capacity,
        .stall_time = (int64_t)(settings->stall_warning_seconds * CLOCK_SECOND),
        .stall_shutdown_time = (int64_t)(settings->stall_shutdown_seconds * CLOCK_SECOND),
        .join_all = strcmp(settings->join, "all") == 0,
        .output = lane_output(lane),
    };
    hvd_code code = coordinator_create(&config, &lane->coordinator, status);
    if (!code)
        *tree = (struct tree_node){0};
    return code;
}

static struct link *find_link(void *owner, int rank, int channel)
{
    const struct lane *lane = owner;
    return mesh_link(lane->mesh, lane->ranks[rank], channel);
}

static void let_go_in_child(void *owner)
{
    const struct lane *lane = owner;
    mesh_abandon(lane->mesh);
}

static hvd_code open_parts(struct lane *lane, int64_t deadline, const struct interrupt *interrupt,
                           hvd_status *status)
{
    struct tree_node tree = {0};
    hvd_code code = plan_tree(lane, &tree, status);
    if (!code)
        code = open_mesh(lane, &tree, deadline, interrupt, status);
    if (!code) {
        /* First thing: from here on a child of fork() would keep these connections open. */
        lane->watch = (struct forked_watch){.in_child = let_go_in_child, .owner = lane};
        forked_watch_add(&lane->watch);
        code = open_edges(lane, status);
    }
    if (!code)
        code = executor_create(find_link, lane, &lane->executor, status);
    if (!code)
        code = open_coordinator(lane, &tree, status);
    tree_node_free(&tree);
    return code;
}

hvd_code lane_open(struct hvd_context *context, int id, const int *ranks, int size, int64_t deadline,
                   const struct interrupt *interrupt, struct lane **lane, hvd_status *status)
{
    struct lane *opened = calloc(1, sizeof *opened);
    int *own_ranks = malloc((size_t)size * sizeof *own_ranks);
    if (!opened || !own_ranks) {
        free(opened);
        free(own_ranks);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for process set %d", id);
    }
    memcpy(own_ranks, ranks, (size_t)size * sizeof *own_ranks);
    *opened = (struct lane){.context = context,
                            .id = id,
                            .rank = ranks_find(ranks, size, context->placement.rank),
                            .size = size,
                            .ranks = own_ranks,
                            .latency_threshold = (uint64_t)context->settings.latency_threshold,
                            .ring_piece_bytes = (uint64_t)context->settings.ring_piece_bytes,
                            .tuning = id == 0 ? context->tuning : NULL,
                            .counters = counters_of(&context->counters, id),
                            .next_flush = CLOCK_NEVER};
    hvd_code code = opened->counters ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (code)
        status_set(status, code, "out of memory for process set %d", id);
    else
        code = open_parts(opened, deadline, interrupt, status);
    if (code)
        lane_close(opened);
    else
        *lane = opened;
    return code;
}

void lane_close(struct lane *lane)
{
    if (!lane)
        return;
    /* First, since a child looks at the mesh; then users before what they use. */
    forked_watch_remove(&lane->watch);
    coordinator_destroy(lane->coordinator);
    for (int i = 0; i < lane->edge_count; i++)
        edge_fini(&lane->edges[i]);
    free(lane->edges);
    executor_destroy(lane->executor);
    mesh_close(lane->mesh);
    free(lane->ranks);
    free(lane);
}
