/* comm.c - one process set: the functions that its coordinator calls, connecting its members, and its turn.
 * comm_open runs in the thread of a user, while another thread makes progress, and touches only the
 * communicator that it opens; all other functions run under the progress lock. */
#include "engine/comm.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/types.h"
#include "coll/pattern.h"
#include "coordinate/name.h"
#include "engine/batch.h"
#include "engine/context.h"
#include "engine/explain.h"
#include "engine/fault.h"
#include "engine/handle.h"
#include "engine/heartbeat.h"
#include "engine/identity.h"
#include "engine/observe.h"
#include "engine/placement.h"
#include "engine/sets.h"
#include "engine/tuning.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a failing rank waits until the peers' hosts have the cause. */
#define DELIVERY_TIME (CLOCK_SECOND / 10)

/* ---- the coordinator's output ----------------------------------------------------------------- */

static int compare_peer(const void *rank, const void *edge)
{
    return *(const int *)rank - ((const struct edge *)edge)->peer;
}

/* Returns NULL if this rank has no connection to the other one. */
static struct edge *find_edge(const struct comm *comm, int rank)
{
    return bsearch(&rank, comm->edges, (size_t)comm->edge_count, sizeof *comm->edges, compare_peer);
}

static void send_message(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    edge_put(find_edge(owner, rank), bytes, length);
}

static void put_on_edges(struct comm *comm, int except, const uint8_t *bytes, size_t length)
{
    comm_resume(comm);
    for (int i = 0; i < comm->edge_count; i++) {
        if (comm->edges[i].peer != except)
            edge_put(&comm->edges[i], bytes, length);
    }
    comm_flush(comm);
}

static bool is_delivered(struct comm *comm)
{
    bool delivered = true;
    comm_flush(comm);
    for (int i = 0; i < comm->edge_count; i++)
        delivered &= edge_is_delivered(&comm->edges[i]);
    return delivered;
}

/* Sends the cause in all sets at once, and waits until the peers' hosts have it before this rank's callers
 * do: a process that ends with unread bytes resets its connections, which may discard bytes that it has sent.
 * Peers that notice such an end read the cause first, in whichever set they notice it. */
static void flood_cause(struct comm *comm, int except, const uint8_t *bytes, size_t length)
{
    struct hvd_context *context = comm->context;
    int64_t deadline = clock_now() + DELIVERY_TIME;
    bool delivered = context->cause_sent;
    for (struct comm *each = context->world; !context->cause_sent && each; each = each->next)
        put_on_edges(each, each == comm ? except : -1, bytes, length);
    if (!context->cause_sent) {
        hvd_fault fault = {0};
        coordinator_health(comm->coordinator, &fault.status);
        context_fail(context, &fault.status);
        fault_publish(context, &fault, deadline, NULL);
    }
    context->cause_sent = true;
    while (!delivered && clock_now() < deadline) {
        delivered = true;
        for (struct comm *each = context->world; each; each = each->next)
            delivered &= is_delivered(each);
        if (!delivered)
            sched_yield();
    }
}

static void flood_message(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    if (fatal)
        flood_cause(owner, except, bytes, length);
    else
        put_on_edges(owner, except, bytes, length);
}

/* The names of these requests are free now: requests that waited for them are handed over in this turn,
 * before later submissions. */
static void run_batch(void *owner, const struct batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        if (batch->requests[i])
            handle_let_go(batch->requests[i]->owner);
    }
    batch_start(owner, batch);
}

/* Once a caller knows from here that a rank has left, hvd_health returns the same. */
static void finish_request(void *owner, struct pending *request, const hvd_status *status)
{
    const struct comm *comm = owner;
    if (status->code == HVD_SHUT_DOWN && comm->id == 0)
        context_fail(comm->context, status);
    handle_finish(request->owner, status);
}

static void note_ready(void *owner, const char *name, const struct signature_summary *what, int rank)
{
    char title[REQUEST_NAME_LIMIT];
    observe_ready(owner, name_text(what->operation, what->grouped, name, title, sizeof title), what, rank);
}

/* Stalls are collected until the flush has ended; report_stalls then writes one warning. */
static void note_stall(void *owner, const char *title, int64_t waited, const struct rank_set *missing)
{
    struct comm *comm = owner;
    char ranks[sizeof comm->stalls.groups[0].ranks];
    stall_add(&comm->stalls, rank_set_text(missing, ranks, sizeof ranks), title,
              (double)waited / CLOCK_SECOND);
}

static void write_silence(void *owner, const struct silence *silence, hvd_status *cause)
{
    explain_silence(owner, silence, cause);
}

static void report_stalls(struct comm *comm)
{
    const struct settings *settings = &comm->context->settings;
    char text[STALL_TEXT];
    stall_text(&comm->stalls, comm->id,
               &(struct stall_limits){settings->stall_warning_seconds, settings->stall_shutdown_seconds},
               text, sizeof text);
    log_warning(comm->context->placement.rank, "%s", text);
}

static void end_join(void *owner, struct pending *request, int last_rank)
{
    (void)owner;
    struct hvd_handle *handle = request->owner;
    handle->value = last_rank;
    handle_finish(handle, &(hvd_status){.code = HVD_OK});
}

static struct choice choose(void *owner, const struct signature_summary *what, uint64_t bytes)
{
    struct comm *comm = owner;
    /* The first batch of this flush: the timeline marks the cycle. */
    if (observed(comm->context) && !comm->decides)
        observe_deciding(comm);
    comm->decides = true;
    struct backend_query query = {.operation = what->operation,
                                  .reduction = what->reduction,
                                  .types = what->types,
                                  .device_type = what->device_type,
                                  .bytes = bytes,
                                  .latency_threshold = comm->latency_threshold,
                                  .piece_bytes = comm->ring_piece_bytes};
    return backends_choose(&comm->backends, &query);
}

static void shutdown_is_done(void *owner)
{
    struct comm *comm = owner;
    for (int peer = mesh_next_peer(comm->mesh, -1); peer >= 0; peer = mesh_next_peer(comm->mesh, peer))
        mesh_expect_end(comm->mesh, peer);
    comm->closed = true;
    comm->context->closings = true;
}

/* ---- turns (turns.h) ----------------------------------------------------------------------------------- */

static void add_turn(struct hvd_context *context, int set)
{
    hvd_status problem;
    if (turns_add(&context->order, set))
        return;
    context_no_memory(context, &problem);
    context_fault(context, &problem);
}

static void give_turn(void *owner, int set)
{
    const struct comm *world = owner;
    struct comm *comm = mesh_find(world->mesh, (unsigned)set);
    if (!comm) /* this rank is not a member */
        return;
    add_turn(world->context, set);
    comm_resume(comm);
}

static void ask_turn(void *owner)
{
    const struct comm *comm = owner;
    struct comm *world = comm->context->world;
    if (comm == world) {
        add_turn(comm->context, 0);
    } else if (comm->topology.place_of[comm->rank] == 0) {
        coordinator_ask_turn(world->coordinator, comm->id);
        world->active = world->asks = true;
    }
}

static bool may_start_more(const struct comm *comm)
{
    return !coordinator_health(comm->coordinator, NULL) || comm->backends.started.head;
}

static bool has_turn(const void *owner)
{
    const struct comm *comm = owner, *world = comm->context->world;
    if (comm->context->order.count || !coordinator_health(world->coordinator, NULL))
        return turns_has(&comm->context->order, comm->id);
    /* No more turns are given: run set by set. */
    const struct comm *other = world->next;
    while (other && (other->id >= comm->id || !may_start_more(other)))
        other = other->next;
    return !other;
}

static void use_turn(void *owner)
{
    struct turns *turns = &((struct comm *)owner)->context->order;
    if (turns->count)
        turns_use(turns);
}

static struct coordinator_output comm_output(struct comm *comm)
{
    return (struct coordinator_output){
        .owner = comm,
        .send = send_message,
        .flood = flood_message,
        .contribute = eager_contribute,
        .combine = eager_combine,
        .run = run_batch,
        .finish = finish_request,
        .joined = end_join,
        .choose = choose,
        .closed = shutdown_is_done,
        .stalled = note_stall,
        .silent = write_silence,
        .turn = give_turn,
        .ready = observed(comm->context) ? note_ready : NULL,
    };
}

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
static hvd_code meet_set(struct comm *comm, struct mesh_config *config, hvd_status *status)
{
    const struct hvd_context *context = comm->context;
    TRY(connect_to_rendezvous(config, &config->rendezvous, status));
    const struct rendezvous_place place = {context->settings.job, (uint32_t)context->settings.epoch,
                                           context->placement.rank, 0};
    TRY(rendezvous_enter(config->rendezvous, &place, NULL, status));
    rendezvous_scope(config->rendezvous, context->generation, comm->id);
    return HVD_OK;
}

/* Reports a failure of meet_set to the other members, which would otherwise wait. It uses the job's client,
 * which is open: this rank may have no descriptor left, and the acceptor may take any that it closes. */
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

static hvd_code meet(struct comm *comm, struct mesh_config *config, hvd_status *status)
{
    if (comm->size == 1 && (comm->id || !comm->context->rendezvous))
        return HVD_OK;
    hvd_code code = comm->id ? meet_set(comm, config, status) : join_epoch(comm, config, status);
    if ((code == HVD_SYSTEM || code == HVD_OUT_OF_MEMORY) && comm->id)
        report_failure(comm, config, status);
    config->generation = comm->context->generation;
    return code;
}

static void let_go_in_child(void *owner)
{
    const struct comm *comm = owner;
    mesh_abandon(comm->mesh);
}

/* All ranks exchange the topology of the job; the topology of a process set is derived from it. */
static hvd_code find_topology(struct comm *comm, const struct mesh_config *config, hvd_status *status)
{
    if (comm->id)
        return topology_subset(&comm->topology, &comm->context->world->topology, comm->ranks, comm->size,
                               status);
    return placement_agree(config->rendezvous, config->settings, config->deadline, &comm->topology, status);
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
    TRY(meet(comm, config, status));
    TRY(find_topology(comm, config, status));
    TRY(connect_peers(comm, config, tree, status));
    /* Do this first: from here on a child of fork() would keep these connections open. */
    comm->watch = (struct atfork_handler){.in_child = let_go_in_child, .owner = comm};
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
        .settling_time = heartbeat_settling(settings),
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
                                      .turns = {ask_turn, has_turn, use_turn, comm},
                                      .rendezvous = config->rendezvous,
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

static void close_backends(struct comm *comm)
{
    for (int i = 0; i < comm->backends.count; i++) {
        if (comm->backends.rows[i].descriptor >= 0)
            mesh_unwatch(comm->mesh, comm->backends.rows[i].descriptor);
    }
    backends_close(&comm->backends);
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
                            .counters = counters_of(&context->counters, id),
                            .next_flush = CLOCK_NEVER};
    hvd_code code =
        opened->counters ? open_parts(opened, deadline, interrupt, status) : status_no_memory(status);
    if (code)
        comm_close(opened);
    else
        *comm = opened;
    return code;
}

void comm_close(struct comm *comm)
{
    if (!comm)
        return;
    /* First, since a forked child reads the mesh; then each part before the parts that it uses. */
    atfork_remove(&comm->watch);
    coordinator_destroy(comm->coordinator);
    for (int i = 0; i < comm->edge_count; i++)
        edge_fini(&comm->edges[i]);
    free(comm->edges);
    close_backends(comm);
    mesh_close(comm->mesh);
    topology_free(&comm->topology);
    free(comm->ranks);
    free(comm);
}

/* ---- work ------------------------------------------------------------------------------------------ */

static void name_request(struct comm *comm, struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    handle->counters = &comm->counters->operations[request->operation];
    counter_add(&handle->counters->submitted, 1);
    handle->pending.unnamed = !request->name;
    /* handle_create has left room for a name. */
    if (handle->pending.unnamed)
        name_write_counted(request->operation, request->grouped,
                           coordinator_unnamed(comm->coordinator, request->operation) +
                               comm->held_unnamed[unnamed_kind(request->operation)],
                           handle->name);
}

void comm_hold(struct comm *comm, struct hvd_handle *handle)
{
    assert(context_is_held(comm->context));
    if (handle->touched.held)
        return;
    name_request(comm, handle);
    handle->touched.held = true;
    comm->held++;
    comm->held_unnamed[unnamed_kind(handle->request.operation)] += handle->pending.unnamed;
}

void comm_take(struct comm *comm, struct hvd_handle *handle)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    comm->active = true;
    if (handle->touched.held) {
        handle->touched.held = false;
        comm->held--;
        comm->held_unnamed[unnamed_kind(handle->request.operation)] -= handle->pending.unnamed;
    } else {
        name_request(comm, handle);
    }
    /* Marking the later one of two suffices: it is alone in its batch. */
    handle->pending.apart = handle->parts.of || overlaps_any(&comm->context->overlaps, &handle->touched);
    hvd_status refusal;
    if (coordinator_submit(comm->coordinator, &handle->pending, &refusal)) {
        handle_finish(handle, &refusal);
        return;
    }
    observe_submitted(handle);
}

bool comm_suspend(struct comm *comm)
{
    assert(context_is_held(comm->context));
    comm->suspended = comm->id && !comm->remover && comm->next_flush == CLOCK_NEVER && comm_is_quiet(comm) &&
                      !comm_is_ready(comm) && mesh_suspend(comm->mesh);
    return comm->suspended;
}

void comm_resume(struct comm *comm)
{
    assert(context_is_held(comm->context));
    struct comm *world = comm->context->world;
    if (!comm->suspended)
        return;
    comm->suspended = false;
    comm->idle_turns = 0;
    comm->next_running = world->next_running;
    world->next_running = comm;
    mesh_resume(comm->mesh);
    for (int i = 0; i < comm->edge_count; i++)
        comm->edges[i].alive = true; /* earlier silence does not count */
}

void comm_leave(struct comm *comm)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    coordinator_leave(comm->coordinator);
    comm->active = true;
}

void comm_abort(struct comm *comm, int lost_rank, const hvd_status *cause)
{
    assert(context_is_held(comm->context));
    comm_resume(comm);
    coordinator_abort(comm->coordinator, lost_rank < 0 ? -1 : ranks_find(comm->ranks, comm->size, lost_rank),
                      cause);
    comm->active = true;
}

void comm_end(struct comm *comm, const hvd_status *cause)
{
    assert(context_is_held(comm->context));
    comm_abort(comm, -1, cause);
    /* This health has been acted on: check_health must not do so again. */
    comm->health = coordinator_health(comm->coordinator, NULL);
    comm_flush(comm); /* peers receive the cause before they miss the data */
    backends_abort(&comm->backends, cause);
    if (comm->remover)
        handle_finish(comm->remover, cause);
    comm->remover = NULL;
}

bool comm_flush(struct comm *comm)
{
    assert(context_is_held(comm->context));
    return edges_flush(&comm->unsent);
}

bool comm_is_flushed(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    return !comm->unsent;
}

bool comm_is_quiet(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    return !coordinator_pending_count(comm->coordinator) && backends_idle(&comm->backends) &&
           comm_is_flushed(comm);
}

bool comm_is_ready(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    /* While the set is open and this rank has no requests, it has nothing to report or decide. */
    bool open = coordinator_health(comm->coordinator, NULL) == HVD_OK;
    return (comm->active && (comm->asks || !(open && comm_is_quiet(comm)))) ||
           backends_are_ready(&comm->backends);
}

int64_t comm_deadline(const struct comm *comm)
{
    assert(context_is_held(comm->context));
    if (!backends_poll(&comm->backends))
        return comm->next_flush;
    return clock_earlier(comm->next_flush, clock_now() + BACKEND_POLL_PERIOD);
}

/* A message that is lost, or never received, would leave other ranks waiting forever. */
static bool check_memory(struct comm *comm, struct edge *edge)
{
    hvd_status cause;
    if (!edge_starved(edge))
        return true;
    context_no_memory(comm->context, &cause);
    comm_abort(comm, -1, &cause);
    return false;
}

static bool receive_messages(struct comm *comm, struct edge *edge)
{
    const uint8_t *bytes;
    size_t length;
    bool any = false;
    for (;;) {
        enum edge_event event = edge_next(edge, &bytes, &length);
        if (event == EDGE_NOTHING) {
            if (!check_memory(comm, edge))
                mesh_report(comm->mesh, edge->peer); /* the message is still unread */
            return any;
        }
        any = true;
        if (event == EDGE_MESSAGE) {
            coordinator_receive(comm->coordinator, edge->peer, bytes, length);
            continue;
        }
        hvd_status cause;
        status_set(&cause, HVD_REFUSED,
                   "rank %d sent rank %d bytes that are no message; is it another program or version?",
                   comm->ranks[edge->peer], comm->context->placement.rank);
        comm_abort(comm, comm->ranks[edge->peer], &cause);
        return true;
    }
}

static bool receive_reported(struct comm *comm)
{
    bool any = false;
    uint64_t news[MESH_NEWS_BITS / 64];
    mesh_collect_news(comm->mesh, news);
    for (int word = 0; word < MESH_NEWS_BITS / 64; word++) {
        for (uint64_t bits = news[word]; bits; bits &= bits - 1) {
            for (int peer = word * 64 + __builtin_ctzll(bits); peer < comm->size; peer += MESH_NEWS_BITS) {
                struct edge *edge = find_edge(comm, peer);
                any |= edge && receive_messages(comm, edge);
            }
        }
    }
    return any;
}

static bool receive_all(struct comm *comm)
{
    bool any = false;
    if (mesh_reports(comm->mesh))
        return receive_reported(comm);
    for (int i = 0; i < comm->edge_count; i++)
        any |= receive_messages(comm, &comm->edges[i]);
    return any;
}

static bool is_flush_due(const struct comm *comm, int64_t now)
{
    /* Most turns have no flush to wait for, so they do not read the clock. */
    return comm->next_flush != CLOCK_NEVER && (now ? now : clock_now()) >= comm->next_flush;
}

bool comm_progress(struct comm *comm, int64_t now)
{
    assert(context_is_held(comm->context));
    bool moved = receive_all(comm);
    if (moved || comm->active || is_flush_due(comm, now)) {
        comm->active = comm->decides = comm->asks = false;
        if (comm->tuning)
            tuning_apply(comm);
        coordinator_flush(comm->coordinator, clock_now());
        comm->next_flush = coordinator_next_flush(comm->coordinator);
        if (comm->stalls.count)
            report_stalls(comm);
    }
    for (struct edge *edge = comm->unsent; edge; edge = edge->next_unsent)
        check_memory(comm, edge);
    moved |= comm_flush(comm);
    /* Last, so that a batch decided in this turn starts in this turn. */
    return backends_progress(&comm->backends) || moved;
}
