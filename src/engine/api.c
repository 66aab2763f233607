/* api.c - the public functions of contexts, operations, counters and the timeline, in the order of
 * include/horovod.h. Any thread.
 *
 * The queue of submissions is a stack, pushed by one compare-and-swap; the thread that makes progress pops
 * the whole stack and reverses it. */
#include "engine/api.h"

#include "backend/backend.h"
#include "base/clock.h"
#include "base/platform_cores.h"
#include "base/status.h"
#include "base/types.h"
#include "bootstrap/bootstrap.h"
#include "device/memory.h"
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
    memory_trim();
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
    /* Polling pays only if each rank of the host has a core of its own, which a quota also takes away. */
    if (platform_processors() >= context->placement.local_size)
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
    atomic_init(&opened->device_id, -1);
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

hvd_code api_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle, hvd_status *status)
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
    return api_submit(context, request, handle, status);
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
        TRY(timeline_start(context->timeline, path, mark_cycles != 0, 0, status));
    return status_ok(status);
}

hvd_code hvd_timeline_mark(hvd_context *context, const char *text, hvd_status *status)
{
    TRY(context_check_process(context, status));
    if (!text || !*text)
        return status_set(status, HVD_INVALID_ARGUMENT, "an event of the timeline needs a text");
    if (context->timeline)
        timeline_notice(context->timeline,
                        &(struct event){.kind = EVENT_MARKED, .time = clock_now(), .name = text});
    return status_ok(status);
}

hvd_code hvd_timeline_stop(hvd_context *context, hvd_status *status)
{
    TRY(check_timeline(context, status));
    if (context->timeline)
        timeline_stop(context->timeline);
    return status_ok(status);
}
