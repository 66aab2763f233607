/* api.c - the public functions of contexts, operations, process sets, counters and the timeline, in the order
 * of include/horovod.h. Any thread.
 *
 * The queue of submissions is a stack, pushed by one compare-and-swap; the thread that makes progress pops
 * the whole stack and reverses it. Process sets are added and removed by requests of all ranks, so all ranks
 * see the changes in one order; sets that only their members open are outside this order. Connecting the
 * members of a new set blocks: the calling thread does it, while the progress thread continues. */
#include "engine/api.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/types.h"
#include "bootstrap/bootstrap.h"
#include "engine/comm_list.h"
#include "engine/comm_open.h"
#include "engine/context.h"
#include "engine/drive.h"
#include "engine/fault.h"
#include "engine/handle.h"
#include "engine/identity.h"
#include "engine/observe.h"
#include "engine/progress.h"
#include "engine/recorder.h"
#include "engine/result.h"
#include "engine/tuning.h"
#include "net/socket.h"
#include "rendezvous/client.h"
#include "watch/timeline.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shutdown waits for the handshake for the time in which silent ranks are reported, and this long after. */
#define SHUTDOWN_SECONDS 30
#define SILENCE_SHARE    1.5 /* multiple of the limit after which they are reported; see heartbeat.c */

/* About 200 requests in flight need no system call. Both are multiples of every page size. */
#define HANDLES      ((size_t)1 << 20)
#define HANDLES_KEPT ((size_t)128 << 10)

/* ---- config ------------------------------------------------------------------------------------------ */

hvd_config *hvd_config_create(void)
{
    hvd_config *config = calloc(1, sizeof *config);
    if (config && settings_init(&config->settings, NULL)) {
        free(config);
        return NULL;
    }
    return config;
}

void hvd_config_free(hvd_config *config)
{
    if (config)
        settings_free(&config->settings);
    free(config);
}

hvd_code hvd_config_set(hvd_config *config, const char *key, const char *value, hvd_status *status)
{
    const struct setting *setting = key ? setting_by_key(key) : NULL;
    if (!config || !setting || !value)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "there is no setting '%s'; docs/settings.md lists them", key ? key : "(null)");
    hvd_code code = settings_set(&config->settings, setting, value, key, status);
    return code ? code : status_ok(status);
}

hvd_code hvd_config_load_environment(hvd_config *config, hvd_status *status)
{
    hvd_code code = settings_load_environment(&config->settings, status);
    return code ? code : status_ok(status);
}

void hvd_config_set_interrupt(hvd_config *config, hvd_interrupt_fn ask, void *argument)
{
    config->interrupt = (struct interrupt){ask, argument};
}

void hvd_config_set_mpi_comm(hvd_config *config, const void *comm)
{
    config->mpi_comm = comm;
}

/* ---- joining ----------------------------------------------------------------------------------------- */

static hvd_code join(struct hvd_context *context, int64_t deadline, hvd_status *status)
{
    int size = context->placement.size;
    int *everybody = malloc((size_t)size * sizeof *everybody);
    if (!everybody)
        return status_no_memory(status);
    for (int rank = 0; rank < size; rank++)
        everybody[rank] = rank;
    hvd_code code =
        comm_open(context, 0, everybody, size, deadline, &context->interrupt, &context->world, status);
    free(everybody);
    TRY(code);
    const struct topology *topology = &context->world->topology;
    hvd_placement *placement = &context->placement;
    placement->local_rank = topology_local_rank(topology, placement->rank);
    placement->local_size = topology_local_size(topology, placement->rank);
    placement->cross_rank = topology_cross_rank(topology, placement->rank);
    placement->cross_size = topology_cross_size(topology, placement->rank);
    placement->homogeneous = topology_is_homogeneous(topology);
    return HVD_OK;
}

static void close_descriptor(atomic_int *descriptor)
{
    int fd = atomic_exchange(descriptor, -1);
    socket_close(&fd);
}

static void note_fork(void *owner)
{
    struct hvd_context *context = owner;
    close_descriptor(&context->claim);
    page_forget(&context->page);
    stacks_forget();
    atomic_store(&context->forked, true);
}

/* Also closes a context that was opened only in part. The progress thread ends before communicators are
 * closed. */
static void close_context(struct hvd_context *context)
{
    drive_stop_thread(context);
    comm_list_close(context);
    rendezvous_close(context->rendezvous);
    observe_close(context);
    stacks_close(&context->stacks);
    page_leave(&context->page);
    tuning_close(context);
    close_descriptor(&context->claim);
    atfork_remove(&context->watch); /* so far a child closes the descriptors */
    sets_fini(&context->sets);
    settings_free(&context->settings);
    context_release(context);
}

/* A descriptor of the engine must not become a standard file that this process has closed: output of the
 * program or the log would reach a peer. */
static void open_standard_files(void)
{
    int file;
    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

static hvd_code open_context(struct hvd_context *context, const hvd_config *config, hvd_status *status)
{
    struct settings *settings = &context->settings;
    if (config) {
        TRY(settings_copy(settings, &config->settings, status));
    } else {
        TRY(settings_init(settings, status));
        TRY(settings_load_environment(settings, status));
    }
    TRY(log_configure(settings, status));
    int64_t deadline = clock_after(settings->start_timeout_seconds);
    TRY(identity_find(context, config ? config->mpi_comm : NULL, deadline, status));
    TRY(recorder_open(context, status));
    TRY(nonfinite_open(context, status));
    TRY(observe_open(context, status));
    TRY(tuning_open(context, status));
    TRY(join(context, deadline, status));
    page_joined(&context->page, context->placement.local_rank, context->placement.local_size);
    /* Polling pays only if each rank of the host has a core of its own. */
    if (platform_cores() >= context->placement.local_size)
        context->drive.caller_spin = (int64_t)(settings->spin_microseconds * 1000);
    /* The progress lock is free from the start, so the mesh must be armed, as by a release. */
    mesh_arm(context->world->mesh);
    TRY(drive_start_thread(context, status));
    TRY(stacks_open(&context->stacks, settings, &context->page, status));
    mesh_wake(context->world->mesh); /* messages may have arrived before it was armed */
    return HVD_OK;
}

hvd_code hvd_init(const hvd_config *config, hvd_context **context, hvd_status *status)
{
    struct hvd_context *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    open_standard_files();
    atomic_init(&opened->references, 1);
    pool_init(&opened->pool, HANDLES, HANDLES_KEPT);
    overlaps_init(&opened->overlaps);
    pthread_mutex_init(&opened->handles_lock, NULL);
    pthread_mutex_init(&opened->rendezvous_lock, NULL);
    atomic_init(&opened->drive.deadline, CLOCK_NEVER);
    atomic_init(&opened->claim, -1);
    opened->watch = (struct atfork_handler){.in_child = note_fork, .owner = opened};
    atfork_add(&opened->watch);
    sets_init(&opened->sets);
    counters_init(&opened->counters);
    pthread_mutex_init(&opened->steps.lock, NULL);
    if (config)
        opened->interrupt = config->interrupt;
    opened->backends = config && config->backends ? config->backends : backend_table;
    hvd_code code = open_context(opened, config, status);
    if (code) {
        page_fail(&opened->page, status->text);
        close_context(opened);
        return code;
    }
    *context = opened;
    return status_ok(status);
}

/* ---- leaving ----------------------------------------------------------------------------------------- */

/* The coordinator has never seen the requests that are still queued. */
static void refuse_queued(struct hvd_context *context)
{
    hvd_status status;
    status_set(&status, HVD_SHUT_DOWN, "rank %d has shut down", context->placement.rank);
    status_blame(&status, HVD_CAUSE_LEFT, context->placement.rank, NULL);
    struct hvd_handle *handle = atomic_exchange(&context->queue, NULL);
    while (handle) {
        struct hvd_handle *next = handle->next;
        handle_finish(handle, &status);
        handle = next;
    }
}

void hvd_shutdown(hvd_context *context)
{
    if (!context || atomic_load(&context->forked))
        return; /* a child's copy is left as it is: its memory goes with the child */
    if (context->settings.from_environment && !*context->settings.ranks) /* all ranks have connected */
        bootstrap_withdraw_offer();
    atomic_store(&context->leaving, true);
    drive_notify(context);
    /* Ranks that do not answer end this wait earlier, as they end any wait (heartbeat.c). */
    double seconds = SILENCE_SHARE * context->settings.timeout_seconds + SHUTDOWN_SECONDS;
    if (!drive_until(context, &context->closed, HANDLE_DONE, clock_after(seconds), NULL))
        log_warning(context->placement.rank,
                    "the other ranks did not complete the shutdown handshake within %g s; leaving without it",
                    seconds);
    drive_stop_thread(context);
    /* Only this thread makes progress from here on. It adopts sets that were handed over late, to end them
     * with the others. */
    hvd_status cause;
    status_set(&cause, HVD_SHUT_DOWN, "rank %d has shut down", context->placement.rank);
    status_blame(&cause, HVD_CAUSE_LEFT, context->placement.rank, NULL);
    comm_list_adopt(context);
    progress_end(context, &cause);
    refuse_queued(context);
    progress_resume(context);    /* requests that were held back are refused */
    drive_finish_calls(context); /* the `done` functions of the operations that just ended */
    nonfinite_end(context);
    close_context(context);
}

hvd_placement hvd_get_placement(const hvd_context *context)
{
    return context->placement;
}

hvd_code hvd_health(const hvd_context *context, hvd_status *status)
{
    TRY(context_check_process(context, status));
    return atomic_load_explicit(&context->failed, memory_order_acquire)
               ? status_copy(status, &context->failure)
               : status_ok(status);
}

/* ---- faults ----------------------------------------------------------------------------------------- */

static void copy_text(char *to, size_t capacity, const char *from, bool keep_end)
{
    size_t length = strlen(from);
    const char *start = keep_end && length >= capacity ? from + length - capacity + 1 : from;
    to[0] = '\0';
    append_text(to, capacity, "%s", start);
}

hvd_code hvd_publish_fault(hvd_context *context, const hvd_fault *fault, double seconds, hvd_status *status)
{
    TRY(context_check_process(context, status));
    hvd_fault whole = {.struct_size = sizeof whole, .line = fault->line};
    if (fault->struct_size < sizeof whole)
        return status_set(status, HVD_INVALID_ARGUMENT, "struct_size of the fault is %zu, not %zu",
                          fault->struct_size, sizeof whole);
    copy_text(whole.exception, sizeof whole.exception, fault->exception, false);
    copy_text(whole.file, sizeof whole.file, fault->file, true);
    copy_text(whole.function, sizeof whole.function, fault->function, false);
    if (hvd_health(context, &whole.status) == HVD_OK && !*whole.exception)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "a fault needs an exception, or a context that failed");
    TRY(fault_publish(context, &whole, clock_after(seconds), status));
    return status_ok(status);
}

/* ---- submitting ------------------------------------------------------------------------------------- */

/* Copies the caller's struct, which may be an older, shorter one. */
static hvd_code copy_request(const hvd_request *request, hvd_request *own, hvd_status *status)
{
    if (!request || request->struct_size < offsetof(hvd_request, done) || request->struct_size > sizeof *own)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "hvd_request.struct_size must be sizeof(hvd_request) of this or an older version (%zu)",
            sizeof *own);
    memset(own, 0, sizeof *own);
    memcpy(own, request, request->struct_size);
    return HVD_OK;
}

/* Finds the size of the request's set, and turns its root into a rank of the set. */
static hvd_code resolve_set(hvd_context *context, hvd_request *request, int *size, hvd_status *status)
{
    int none = -1;
    *size = context->placement.size;
    if (request->process_set == 0)
        return HVD_OK;
    bool rooted =
        operation_known((int)request->operation) && operation_takes(request->operation, ARGUMENT_root);
    int *root = rooted ? &request->root : &none;
    return sets_resolve(&context->sets, request->process_set, context->placement.rank, root, size, status);
}

/* Outputs are mostly fresh memory, in which the first write to each page is a page fault; large pages make
 * these few. */
static void expect_writes(const struct hvd_handle *handle)
{
    const hvd_request *request = &handle->request;
    if (!request->outputs || !handle->memory->expect_writes)
        return;
    for (int32_t i = 0; i < request->count; i++)
        if (request->outputs[i].data != request->inputs[i].data)
            handle->memory->expect_writes(request->outputs[i].data, tensor_bytes(&request->outputs[i]));
}

/* Sets `*handle` before any other thread can finish the operation: a `done` function may read it. */
static hvd_code queue_request(hvd_context *context, const hvd_request *request, struct hvd_handle **handle,
                              hvd_status *status)
{
    hvd_request own;
    int size;
    struct hvd_handle *created;
    TRY(context_check_process(context, status));
    TRY(copy_request(request, &own, status));
    TRY(hvd_health(context, status));
    TRY(resolve_set(context, &own, &size, status));
    TRY(handle_create(context, &own, size, true, &created, status));
    expect_writes(created);
    *handle = created;
    if (observed(context))
        created->submitted = clock_now();
    created->next = atomic_load_explicit(&context->queue, memory_order_relaxed);
    /* Sequentially consistent: the load of the lock in drive_notify must not precede it (drive.c). */
    while (!atomic_compare_exchange_weak(&context->queue, &created->next, created))
        ;
    return HVD_OK;
}

static hvd_code submit(hvd_context *context, const hvd_request *request, hvd_handle **handle,
                       hvd_status *status)
{
    struct hvd_handle *unwanted;
    TRY(queue_request(context, request, handle ? handle : &unwanted, status));
    /* A caller that waits next makes progress itself: another thread would only contend for the lock. */
    if (!request->waits)
        drive_notify(context);
    if (!handle)
        handle_release(unwanted);
    return status_ok(status);
}

/* Refuses requests that change process sets: the ranks agree on them as on any other, but the change needs
 * more than an agreement. */
static hvd_code check_public(const hvd_request *request, hvd_status *status)
{
    bool changes =
        request && operation_known((int)request->operation) && operation_changes_sets(request->operation);
    return changes ? status_set(status, HVD_INVALID_ARGUMENT,
                                "%s is no request: call hvd_process_set_add or hvd_process_set_remove",
                                hvd_operation_name(request->operation))
                   : HVD_OK;
}

hvd_code hvd_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle, hvd_status *status)
{
    TRY(check_public(request, status));
    return submit(context, request, handle, status);
}

hvd_code hvd_run(hvd_context *context, const hvd_request *request, hvd_tensor *outputs, hvd_status *status)
{
    struct hvd_handle *handle;
    TRY(check_public(request, status));
    TRY(queue_request(context, request, &handle, status));
    hvd_code code = hvd_wait(handle, -1, status);
    int first = handle->request.outputs ? handle->request.count : 0;
    for (int i = first; !code && outputs && i < handle->result_count; i++)
        code = hvd_output_take(handle, i, &outputs[i], status);
    handle_release(handle);
    return code;
}

/* ---- waiting ----------------------------------------------------------------------------------------- */

static void count_wait(struct hvd_handle *handle, bool done, int64_t time)
{
    const hvd_request *request = &handle->request;
    struct operation_counters *counters = NULL;
    if (done) {
        counters = handle->counters;
    } else { /* it may still be in the queue */
        struct set_counters *set = counters_of(handle->context, request->process_set);
        counters = set ? &set->operations[request->operation] : NULL;
    }
    if (counters)
        atomic_fetch_add_explicit(&counters->wait_ns, (uint64_t)time, memory_order_relaxed);
}

hvd_code hvd_wait(hvd_handle *handle, double seconds, hvd_status *status)
{
    if (!handle)
        return status_set(status, HVD_INVALID_ARGUMENT, "the handle is NULL");
    if (handle_is_done(handle))
        return hvd_test(handle, status);
    TRY(context_check_process(handle->context, status));
    int64_t deadline = clock_after(seconds);
    /* Reading the clock takes time, so counting starts at the first reading, which the deadline may need. */
    int64_t start = deadline == CLOCK_NEVER ? 0 : deadline - (int64_t)(seconds * CLOCK_SECOND);
    bool done = drive_until(handle->context, &handle->state, HANDLE_DONE, deadline, &start);
    if (start)
        count_wait(handle, done, clock_now() - start);
    return hvd_test(handle, status);
}

void hvd_help(hvd_handle *handle, double seconds)
{
    if (!handle_is_done(handle))
        drive_once(handle->context, &handle->state, HANDLE_DONE, clock_after(seconds));
}

hvd_code hvd_on_done(hvd_handle *handle, hvd_done_fn done, void *argument, hvd_status *status)
{
    if (!handle || !done)
        return status_set(status, HVD_INVALID_ARGUMENT, "the %s is NULL", handle ? "function" : "handle");
    if (!handle_is_done(handle))
        TRY(context_check_process(handle->context, status));
    if (handle->request.done)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s has a done function already",
                          handle_name(handle));
    handle->request.done_argument = argument;
    handle->request.done = done;
    atomic_fetch_add_explicit(&handle->references, 1,
                              memory_order_relaxed); /* `done` may release the other */
    atomic_store(&handle->calls, true);
    if (atomic_load(&handle->state) == HANDLE_DONE && handle_claim_call(handle)) {
        hvd_status own;
        handle_outcome(handle, &own);
        done(argument, &own);
    }
    handle_release(handle);
    return status_ok(status);
}

hvd_code hvd_test(hvd_handle *handle, hvd_status *status)
{
    if (!handle)
        return status_set(status, HVD_INVALID_ARGUMENT, "the handle is NULL");
    if (handle_is_done(handle))
        return handle_outcome(handle, status);
    TRY(context_check_process(handle->context, status));
    return status_set(status, HVD_IN_PROGRESS, "%s is in progress", handle_name(handle));
}

/* ---- results ----------------------------------------------------------------------------------------- */

static hvd_code find_result(hvd_handle *handle, int32_t index, hvd_tensor **result, hvd_status *status)
{
    TRY(hvd_test(handle, status));
    if (index < 0 || (handle->results && index >= handle->result_count))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s has %d results; there is no index %d",
                          handle->name, handle->result_count, index);
    if (!handle->results || (handle->request.outputs && index < handle->request.count))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s has no result %d of its own: it is in its output tensor", handle->name, index);
    *result = &handle->results[index];
    if (!(*result)->data)
        return status_set(status, HVD_INVALID_ARGUMENT, "result %d of %s was taken before", index,
                          handle->name);
    return HVD_OK;
}

hvd_code hvd_output(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status)
{
    hvd_tensor *result = NULL;
    TRY(find_result(handle, index, &result, status));
    *output = *result;
    return HVD_OK;
}

hvd_code hvd_output_take(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status)
{
    hvd_tensor *result = NULL;
    TRY(find_result(handle, index, &result, status));
    *output = *result;
    result->data = NULL;
    return HVD_OK;
}

hvd_code hvd_joined_last(hvd_handle *handle, int32_t *rank, hvd_status *status)
{
    TRY(hvd_test(handle, status));
    if (handle->request.operation != HVD_JOIN)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s is no join", handle->name);
    *rank = handle->value;
    return HVD_OK;
}

void hvd_free(void *data)
{
    result_free(data);
}

void hvd_release(hvd_handle *handle)
{
    if (handle)
        handle_release(handle);
}

/* ---- process sets ------------------------------------------------------------------------------------ */

static hvd_code check_ranks(const struct hvd_context *context, const int *ranks, int count,
                            hvd_status *status)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= context->placement.size)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "process set: there is no rank %d in a job of size %d", ranks[i],
                              (int)context->placement.size);
        if (i && ranks[i] == ranks[i - 1])
            return status_set(status, HVD_INVALID_ARGUMENT, "process set: rank %d is given twice", ranks[i]);
    }
    return HVD_OK;
}

/* Returns early when the context's interrupt is set; the operation then continues without its caller. */
static hvd_code wait_or_give_up(struct hvd_handle *handle, hvd_status *status)
{
    struct hvd_context *context = handle->context;
    while (!drive_until(context, &handle->state, HANDLE_DONE,
                        interrupt_slice(&context->interrupt, CLOCK_NEVER), NULL)) {
        if (interrupt_is_set(&context->interrupt))
            return status_set(status, HVD_INTERRUPTED,
                              "interrupted while waiting for the other ranks to add or remove a process set");
    }
    return hvd_test(handle, status);
}

/* Returns HVD_OK on all ranks if all members could connect; otherwise the error names the lowest rank that
 * could not. */
static hvd_code agree_on_success(struct hvd_context *context, int id, const hvd_status *own,
                                 hvd_status *status)
{
    char name[64];
    int32_t *failed = malloc(sizeof *failed);
    if (!failed)
        return status_no_memory(status);
    *failed = own->code ? context->placement.rank : INT32_MAX;
    hvd_handle *handle;
    hvd_tensor tensor = {.data = failed, .dtype = HVD_INT32, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = name,
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_MIN};
    snprintf(name, sizeof name, "process_set.%d.connected", id);
    hvd_code code = submit(context, &request, &handle, status);
    if (code) {
        free(failed);
        return code;
    }
    handle->own_data = failed; /* it may outlive this call */
    /* The submission announces an interrupted call to the others; it does not wait for their part. */
    code = own->code == HVD_INTERRUPTED ? status_copy(status, own) : wait_or_give_up(handle, status);
    int32_t lowest = code ? INT32_MAX : *failed;
    hvd_release(handle);
    if (code || lowest == INT32_MAX)
        return code;
    if (own->code)
        return status_copy(status, own);
    return status_set(status, HVD_SYSTEM,
                      "process set %d can't be used: rank %d could not connect to the other members; its own "
                      "error says why",
                      id, (int)lowest);
}

/* Connects this rank, if it is a member, and puts the set into the table. */
static hvd_code open_set(struct hvd_context *context, int id, const int *ranks, int count, struct comm **comm,
                         hvd_status *status)
{
    if (ranks_find(ranks, count, context->placement.rank) >= 0)
        TRY(comm_open(context, id, ranks, count, clock_after(context->settings.start_timeout_seconds),
                      &context->interrupt, comm, status));
    TRY(sets_add(&context->sets, id, ranks, count, context->placement.rank, status));
    return status_ok(status); /* attempts that were repeated may have left their fault */
}

/* Hands the communicator to the thread that makes progress, or undoes open_set if that or a later step
 * failed. */
static void finish_opening(struct hvd_context *context, int id, struct comm *comm, hvd_code code)
{
    if (code) {
        sets_remove(&context->sets, id);
        comm_close(comm);
    } else if (comm) {
        comm->next = atomic_load(&context->added);
        while (!atomic_compare_exchange_weak(&context->added, &comm->next, comm))
            ;
        drive_notify(context);
    }
}

static hvd_code connect_set(struct hvd_context *context, int id, const int *ranks, int count,
                            hvd_status *status)
{
    struct comm *comm = NULL;
    hvd_status own;
    /* The set is in the table before the ranks agree, so lack of memory here fails it on all of them. */
    open_set(context, id, ranks, count, &comm, &own);
    hvd_code code = agree_on_success(context, id, &own, status);
    finish_opening(context, id, comm, code);
    return code;
}

/* Runs a request that all ranks of the job must make, and returns its value. */
static hvd_code run_decision(struct hvd_context *context, hvd_request *request, int *value,
                             hvd_status *status)
{
    hvd_handle *handle;
    request->struct_size = sizeof *request;
    request->waits = 1;
    TRY(submit(context, request, &handle, status));
    hvd_code code = wait_or_give_up(handle, status);
    *value = code ? 0 : handle->value;
    hvd_release(handle);
    return code;
}

/* Returns a copy of the ranks, checked and ascending, which the caller frees. */
static hvd_code sort_ranks(const struct hvd_context *context, const int32_t *ranks, int32_t count,
                           int **sorted, hvd_status *status)
{
    *sorted = NULL;
    TRY(context_check_process(context, status));
    if (count < 1 || !ranks)
        return status_set(status, HVD_INVALID_ARGUMENT, "a process set needs one rank at least");
    *sorted = malloc((size_t)count * sizeof **sorted);
    if (!*sorted)
        return status_no_memory(status);
    memcpy(*sorted, ranks, (size_t)count * sizeof **sorted);
    ranks_sort(*sorted, count);
    return check_ranks(context, *sorted, count, status);
}

hvd_code hvd_process_set_add(hvd_context *context, const int32_t *ranks, int32_t count, int32_t *id,
                             hvd_status *status)
{
    int *sorted, value = 0;
    hvd_code code = sort_ranks(context, ranks, count, &sorted, status);
    if (code)
        goto free_ranks;
    hvd_request request = {.operation = HVD_ADD_PROCESS_SET, .ranks = sorted, .rank_count = count};
    code = run_decision(context, &request, &value, status);
    if (code)
        goto free_ranks;
    code = connect_set(context, value, sorted, count, status);
    if (code)
        goto free_ranks;
    *id = value;
    status_ok(status);
free_ranks:
    free(sorted);
    return code;
}

static hvd_code check_opening(struct hvd_context *context, int id, const int *ranks, int count,
                              hvd_status *status)
{
    int own = context->placement.rank;
    if (ranks_find(ranks, count, own) < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d can't open process set %d, of which it is not a member", own, id);
    if (id < HVD_OPENED_SETS || sets_ranks(&context->sets, id, NULL, 0) >= 0)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "process set %d can't be opened: ids of such sets begin at %d, and each is used once", id,
            HVD_OPENED_SETS);
    return hvd_health(context, status);
}

hvd_code hvd_process_set_open(hvd_context *context, int32_t id, const int32_t *ranks, int32_t count,
                              hvd_status *status)
{
    int *sorted;
    struct comm *comm = NULL;
    hvd_code code = sort_ranks(context, ranks, count, &sorted, status);
    if (code)
        goto free_ranks;
    code = check_opening(context, id, sorted, count, status);
    if (code)
        goto free_ranks;
    code = open_set(context, id, sorted, count, &comm, status);
    finish_opening(context, id, comm, code);
free_ranks:
    free(sorted);
    return code;
}

hvd_code hvd_process_set_remove(hvd_context *context, int32_t id, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (sets_ranks(&context->sets, id, NULL, 0) < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          id ? "there is no process set %d: it was removed, or never added"
                             : "process set %d, all ranks of the job, can't be removed",
                          (int)id);
    char name[64];
    int value;
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_REMOVE_PROCESS_SET, .root = id};
    if (id >= HVD_OPENED_SETS) {
        /* No other rank takes part, so it needs a name of its own: unnamed requests are counted on all ranks.
         */
        snprintf(name, sizeof name, "process_set.%d.closed", (int)id);
        request.name = name;
        return submit(context, &request, NULL, status);
    }
    return run_decision(context, &request, &value, status);
}

int32_t hvd_process_set_ids(hvd_context *context, int32_t *ids, int32_t capacity)
{
    if (capacity > 0)
        ids[0] = 0;
    return 1 + sets_ids(&context->sets, ids ? ids + 1 : NULL, capacity - 1);
}

int32_t hvd_process_set_ranks(hvd_context *context, int32_t id, int32_t *ranks, int32_t capacity)
{
    if (id)
        return sets_ranks(&context->sets, id, ranks, capacity);
    for (int rank = 0; rank < context->placement.size && rank < capacity; rank++)
        ranks[rank] = rank;
    return context->placement.size;
}

/* ---- counters ---------------------------------------------------------------------------------------- */

static uint64_t load(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static hvd_counters read_counters(const struct set_counters *set, int operation)
{
    const struct operation_counters *from = &set->operations[operation];
    return (hvd_counters){.process_set = set->process_set,
                          .operation = (hvd_operation)operation,
                          .submitted = load(&from->submitted),
                          .succeeded = load(&from->succeeded),
                          .failed = load(&from->failed),
                          .batches = load(&from->batches),
                          .bytes = load(&from->bytes),
                          .wait_seconds = (double)load(&from->wait_ns) / CLOCK_SECOND,
                          .nonfinite = load(&from->nonfinite)};
}

int32_t hvd_get_counters(hvd_context *context, hvd_counters *rows, int32_t capacity)
{
    struct counters *counters = &context->counters;
    int32_t count = 0;
    if (atomic_load_explicit(&context->forked, memory_order_relaxed))
        return 0; /* the lock may be held by a thread that the child does not have */
    pthread_mutex_lock(&counters->lock);
    for (const struct set_counters *set = counters->first; set; set = set->next) {
        for (int operation = 0; operation < OPERATION_NUMBERS; operation++) {
            hvd_counters row = read_counters(set, operation);
            if (!row.submitted && !row.batches)
                continue;
            if (count < capacity)
                rows[count] = row;
            count++;
        }
    }
    pthread_mutex_unlock(&counters->lock);
    return count;
}

int32_t hvd_get_lateness(hvd_context *context, hvd_lateness *rows, int32_t capacity)
{
    int32_t count = 0;
    for (int i = 0; i < PAGE_REPORTERS && !atomic_load_explicit(&context->forked, memory_order_relaxed);
         i++) {
        const struct page_late *late = &context->page.page->late[i];
        int32_t rank = atomic_load_explicit(&late->rank, memory_order_relaxed) - 1;
        int64_t total = atomic_load_explicit(&late->total, memory_order_relaxed);
        if (rank < 0)
            continue;
        if (total < 0) /* it waits; the clock is read after the total */
            total += clock_now();
        if (count < capacity)
            rows[count] = (hvd_lateness){.rank = rank,
                                         .count = load(&late->count),
                                         .seconds = (double)(total < 0 ? 0 : total) / CLOCK_SECOND};
        count++;
    }
    return count;
}

/* ---- parameters -------------------------------------------------------------------------------------- */

int32_t hvd_get_setting(const hvd_context *context, const char *key, char *text, int32_t capacity)
{
    const struct setting *setting = setting_by_key(key ? key : "");
    return setting ? setting_write(&context->settings, setting, text, capacity > 0 ? (size_t)capacity : 0)
                   : -1;
}

hvd_code hvd_parameters_checked(hvd_context *context, const char *difference, int32_t warns,
                                hvd_status *status)
{
    TRY(context_check_process(context, status));
    page_set_check(&context->page, difference);
    if (difference && warns)
        log_warning(context->placement.rank, "%s", difference);
    return status_ok(status);
}

/* ---- timeline ---------------------------------------------------------------------------------------- */

static hvd_code check_timeline(const struct hvd_context *context, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (!*context->settings.timeline)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the timeline is not enabled: set HOROVOD_TIMELINE=DYNAMIC for all ranks (or "
                          "horovodrun --timeline-filename DYNAMIC) before init");
    return HVD_OK;
}

hvd_code hvd_timeline_start(hvd_context *context, const char *path, int32_t mark_cycles, hvd_status *status)
{
    TRY(check_timeline(context, status));
    if (!path || !*path)
        return status_set(status, HVD_INVALID_ARGUMENT, "the timeline needs the name of a file");
    if (context->timeline)
        TRY(timeline_start(context->timeline, path, mark_cycles != 0, status));
    return status_ok(status);
}

hvd_code hvd_timeline_stop(hvd_context *context, hvd_status *status)
{
    TRY(check_timeline(context, status));
    if (context->timeline)
        timeline_stop(context->timeline);
    return status_ok(status);
}
