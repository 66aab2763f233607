/* lane.c - see lane.h. */
#include "engine/lane.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/progress.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTROL_CHANNEL 0

/* ---- what the coordinator asks for ----------------------------------------------------------------- */

static struct edge *find_edge(const struct lane *lane, int rank)
{
    for (int i = 0; i < lane->edge_count; i++) {
        if (lane->edges[i].peer == rank)
            return &lane->edges[i];
    }
    return NULL; /* not reached: the mesh connects to all neighbours in the tree */
}

static void send_message(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    edge_put(find_edge(owner, rank), bytes, length);
}

static void flood_message(void *owner, int except, const uint8_t *bytes, size_t length)
{
    struct lane *lane = owner;
    for (int i = 0; i < lane->edge_count; i++) {
        if (lane->edges[i].peer != except)
            edge_put(&lane->edges[i], bytes, length);
    }
}

static void run_batch(void *owner, const struct batch *batch)
{
    batch_start(owner, batch);
}

static void finish_request(void *owner, struct pending *request, const hvd_status *status)
{
    (void)owner;
    handle_finish(request->owner, status);
}

static uint16_t choose_algorithm(void *owner, hvd_operation operation, uint64_t bytes)
{
    const struct lane *lane = owner;
    const struct settings *settings = &lane->context->settings;
    return algorithm_choose(operation, bytes, lane->context->placement.size, settings->allreduce_algorithm,
                            (uint64_t)settings->latency_threshold);
}

static void all_said_goodbye(void *owner)
{
    const struct lane *lane = owner;
    struct mesh *mesh = lane->context->mesh;
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        mesh_expect_end(mesh, peer);
    progress_closed(lane->context);
}

/* ---- life ------------------------------------------------------------------------------------------ */

/* To every peer: the tree needs some of them, the flood of a failure all. */
static hvd_code open_edges(struct lane *lane, hvd_status *status)
{
    struct mesh *mesh = lane->context->mesh;
    int peers = 0;
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        peers++;
    lane->edges = calloc((size_t)peers + 1, sizeof *lane->edges);
    if (!lane->edges)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the edges of a process set");
    for (int peer = mesh_next_peer(mesh, -1); peer >= 0; peer = mesh_next_peer(mesh, peer))
        edge_init(&lane->edges[lane->edge_count++], peer, mesh_link(mesh, peer, CONTROL_CHANNEL));
    return HVD_OK;
}

hvd_code lane_open(struct lane *lane, struct hvd_context *context, struct tree_node *tree, hvd_status *status)
{
    const struct settings *settings = &context->settings;
    *lane = (struct lane){.context = context, .channel = CONTROL_CHANNEL + 1, .next_flush = CLOCK_NEVER};
    hvd_code code = open_edges(lane, status);
    if (code)
        return code;
    struct coordinator_config config = {
        .rank = context->placement.rank,
        .size = context->placement.size,
        .tree = *tree,
        .fusion_threshold = (uint64_t)settings->fusion_threshold,
        .cycle_time = (int64_t)(settings->cycle_time_ms * 1e6),
        .cache_capacity = (uint32_t)settings->cache_capacity,
        .output = {lane, send_message, flood_message, run_batch, finish_request, choose_algorithm,
                   all_said_goodbye},
    };
    code = coordinator_create(&config, &lane->coordinator, status);
    if (!code)
        *tree = (struct tree_node){0}; /* the coordinator's now */
    return code;
}

void lane_close(struct lane *lane)
{
    coordinator_destroy(lane->coordinator);
    for (int i = 0; i < lane->edge_count; i++)
        edge_fini(&lane->edges[i]);
    free(lane->edges);
    *lane = (struct lane){0};
}

/* ---- work ------------------------------------------------------------------------------------------ */

void lane_take(struct lane *lane, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    lane->active = true;
    bool unnamed = !request->name;
    if (unnamed)
        snprintf((char *)handle->pending.name, REQUEST_NAME_LIMIT, "%s%s.noname.%llu",
                 request->grouped ? "grouped_" : "", operation_name(request->operation),
                 (unsigned long long)lane->unnamed[request->operation]);
    hvd_status refusal;
    if (coordinator_submit(lane->coordinator, &handle->pending, &refusal))
        handle_finish(handle, &refusal);
    else if (unnamed)
        lane->unnamed[request->operation]++;
}

bool lane_flush(struct lane *lane)
{
    bool moved = false;
    for (int i = 0; i < lane->edge_count; i++)
        moved |= edge_flush(&lane->edges[i]);
    return moved;
}

static bool receive_messages(struct lane *lane, struct edge *edge)
{
    const uint8_t *bytes;
    size_t length;
    bool any = false;
    for (;;) {
        enum edge_event event = edge_next(edge, &bytes, &length);
        if (event == EDGE_NOTHING)
            return any;
        any = true;
        if (event == EDGE_MESSAGE) {
            coordinator_receive(lane->coordinator, edge->peer, bytes, length);
            continue;
        }
        hvd_status cause;
        status_set(&cause, HVD_REFUSED,
                   "rank %d sent rank %d bytes that are no message; is it another program or version?",
                   edge->peer, lane->context->placement.rank);
        progress_fail(lane->context, edge->peer, &cause);
        return true;
    }
}

bool lane_progress(struct lane *lane)
{
    bool moved = false;
    for (int i = 0; i < lane->edge_count; i++)
        moved |= receive_messages(lane, &lane->edges[i]);
    int64_t now = lane->next_flush == CLOCK_NEVER ? 0 : clock_now();
    if (moved || lane->active || now >= lane->next_flush) {
        lane->active = false;
        coordinator_flush(lane->coordinator, now ? now : clock_now());
        lane->next_flush = coordinator_next_flush(lane->coordinator);
    }
    return lane_flush(lane) | moved;
}
