/* init.c - a rank joins a job, and leaves it. */
#include "backend/mpi.h"
#include "base/clock.h"
#include "base/misspelt.h"
#include "base/platform.h"
#include "base/socket.h"
#include "base/status.h"
#include "engine/batch.h"
#include "engine/comm.h"
#include "engine/config.h"
#include "engine/context.h"
#include "engine/progress.h"
#include "rendezvous/claim.h"
#include "rendezvous/meeting.h"
#include "rendezvous/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* How long shutdown waits for the handshake, beyond the time in which silent ranks are named. */
#define SHUTDOWN_SECONDS 30
#define SILENCE_SHARE    1.5 /* that time, of the limit; see heartbeat.c */

/* Some 200 requests in flight need no system call. Both are multiples of every page size. */
#define HANDLES      ((size_t)1 << 20)
#define HANDLES_KEPT ((size_t)128 << 10)

void context_retain(struct hvd_context *context)
{
    atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void context_release(struct hvd_context *context)
{
    if (atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) > 1)
        return;
    if (!atomic_load(&context->forked))
        pool_fini(&context->pool);
    map_free(&context->names);
    pthread_mutex_destroy(&context->handles_lock);
    pthread_mutex_destroy(&context->rendezvous_lock);
    counters_fini(&context->counters);
    free(context);
}

hvd_code context_check_process(const struct hvd_context *context, hvd_status *status)
{
    if (!context)
        return status_set(status, HVD_INVALID_ARGUMENT, "the context is NULL: call hvd_init first");
    if (atomic_load_explicit(&context->forked, memory_order_relaxed))
        return status_set(
            status, HVD_FORKED,
            "init was called in the parent process; a forked child can't use its connections: call init "
            "in the child, or start it without fork");
    return HVD_OK;
}

/* ---- settings that need more than a range ----------------------------------------------------------- */

static hvd_code check_placement(const struct settings *settings, hvd_status *status)
{
    if (settings->rank >= settings->size)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %lld is outside a job of size %lld (HOROVOD_RANK, HOROVOD_SIZE)",
                          (long long)settings->rank, (long long)settings->size);
    if ((settings->size > 1 || *settings->slot) && !*settings->rendezvous)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %lld of %lld has no rendezvous; start the job with horovodrun, or set "
                          "HOROVOD_RENDEZVOUS=host:port and HOROVOD_SECRET",
                          (long long)settings->rank, (long long)settings->size);
    return HVD_OK;
}

static hvd_code check_secret(struct settings *settings, hvd_status *status)
{
    return settings->size == 1 && !*settings->slot ? HVD_OK : meeting_take_secret(settings, status);
}

static void settle_stall_check(struct settings *settings)
{
    if (settings->stall_check_disable)
        settings->stall_warning_seconds = settings->stall_shutdown_seconds = 0;
    if (!settings->stall_shutdown_seconds ||
        settings->stall_shutdown_seconds >= settings->stall_warning_seconds)
        return;
    if (settings->rank == 0)
        log_warning(0,
                    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=%.15g is ignored: it is shorter than "
                    "HOROVOD_STALL_CHECK_TIME_SECONDS=%.15g",
                    settings->stall_shutdown_seconds, settings->stall_warning_seconds);
    settings->stall_shutdown_seconds = 0;
}

/* In place of the rank, size and host of the settings: what the starter has decided for this epoch. */
static hvd_code look_up_assignment(struct hvd_context *context, int64_t deadline, hvd_status *status)
{
    struct settings *settings = &context->settings;
    struct assignment assignment;
    settings_place(settings, 0, 1);
    hvd_code code = check_placement(settings, status);
    if (!code)
        code = check_secret(settings, status);
    if (!code)
        code = rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption, deadline,
                                  &context->interrupt, &context->rendezvous, status);
    if (!code)
        code = rendezvous_enter(context->rendezvous, settings->job, (uint32_t)settings->epoch, -1, 0, NULL,
                                status);
    if (!code)
        code = assignments_look_up(context->rendezvous, settings->slot, deadline, &assignment, status);
    if (!code)
        settings_place(settings, assignment.rank, assignment.size);
    if (!code && *assignment.host)
        code = settings_set(settings, setting_by_key("host_id"), assignment.host,
                            "the assignments of the epoch", status);
    return code;
}

/* Before MPI is opened. */
static hvd_code check_encryption(const struct settings *settings, hvd_status *status)
{
    if (!settings->encryption || !mpi_is_chosen(settings))
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "HOROVOD_ENCRYPTION=1 with HOROVOD_CPU_OPERATIONS=mpi: MPI would send the tensors in "
                      "clear; unset HOROVOD_CPU_OPERATIONS (or leave out --mpi), so that the engine sends "
                      "them, or set HOROVOD_ENCRYPTION=0");
}

static hvd_code check_cpu_operations(const struct settings *settings, hvd_status *status)
{
    static const char *const words[] = {"", "mpi", "gloo", "ccl"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(settings->cpu_operations, words[i]) == 0)
            return HVD_OK;
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "HOROVOD_CPU_OPERATIONS=%s: it is 'mpi', or 'gloo', 'ccl' or empty for the engine itself",
        settings->cpu_operations);
}

static hvd_code load_settings(struct settings *settings, const hvd_config *config, hvd_status *status)
{
    hvd_code code =
        config ? settings_copy(settings, &config->settings, status) : settings_init(settings, status);
    if (!code && !config)
        code = settings_load_environment(settings, status);
    return code ? code : log_configure(settings, status);
}

/* What has started this process says which rank it is, unless the program does. */
static hvd_code ask_starter(struct hvd_context *context, const struct starter *starter, int64_t deadline,
                            hvd_status *status)
{
    struct settings *settings = &context->settings;
    if (!starter->name || starter->launched)
        return HVD_OK;
    if (setting_is_given(settings, setting_by_key("rank")) && !starter->by_hand)
        return HVD_OK;
    settings->rank = starter->rank;
    settings->size = starter->size;
    return starter->size > 1 ? meeting_arrange(starter, settings, deadline, &context->interrupt, status)
                             : HVD_OK;
}

/* Holds the rank that the environment gives to this process, so that no child which inherits it joins. */
static hvd_code read_starter(struct hvd_context *context, struct starter *starter, hvd_status *status)
{
    int descriptor;
    *starter = (struct starter){.size = 1, .pmi = -1};
    if (!context->settings.from_environment)
        return HVD_OK;
    hvd_code code = *context->settings.slot ? HVD_OK : starter_read(starter, &variables_of_process, status);
    if (code)
        return code;
    if (starter->name)
        log_debug((int)starter->rank, "rank %lld of %lld, as %s says", (long long)starter->rank,
                  (long long)starter->size, starter->name);
    code = claim_rank(&context->settings, starter, &descriptor, status);
    atomic_store(&context->claim, descriptor);
    return code;
}

/* Who this rank is: by an MPI communicator that the program gives, or where nothing but MPI says it; by the
 * assignments of the epoch; by what has started the process. */
static hvd_code find_place(struct hvd_context *context, const void *mpi_comm, int64_t deadline,
                           hvd_status *status)
{
    struct settings *settings = &context->settings;
    struct starter starter;
    bool placed = *settings->rendezvous || *settings->slot;
    hvd_code code = read_starter(context, &starter, status);
    if (code)
        return code;
    if (mpi_comm || (mpi_is_chosen(settings) && !placed))
        return mpi_meet(settings, mpi_comm, deadline, &context->interrupt, status);
    return *settings->slot ? look_up_assignment(context, deadline, status)
                           : ask_starter(context, &starter, deadline, status);
}

static void warn_of_misspelt(void *owner, const char *name, const char *right)
{
    (void)owner;
    log_warning(0, MISSPELT_TEXT, name, right);
}

/* Once in a job, and in a process: horovodrun, which names the job, has done it for its ranks. */
static void check_names(const struct settings *settings, bool launched)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (settings->from_environment && settings->rank == 0 && !launched && !atomic_flag_test_and_set(&done))
        misspelt_variables(environ, warn_of_misspelt, NULL);
}

/* In this order: HOROVOD_RANKS counts in ranks of the world, which have to make sense; rank, size and so the
 * need of a secret are then the subset's. */
static hvd_code take_settings(struct hvd_context *context, const void *mpi_comm, int64_t deadline,
                              hvd_status *status)
{
    struct settings *settings = &context->settings;
    bool launched = *settings->job != '\0'; /* MPI names the job, too, once the ranks have met */
    hvd_code code = check_encryption(settings, status);
    if (!code)
        code = find_place(context, mpi_comm, deadline, status);
    if (!code)
        check_names(settings, launched);
    if (!code)
        code = check_placement(settings, status);
    if (!code)
        code = subset_apply(settings, status);
    if (!code)
        code = check_secret(settings, status);
    if (!code && strcmp(settings->join, "all") != 0 && strcmp(settings->join, "reduce") != 0)
        code =
            status_set(status, HVD_INVALID_ARGUMENT,
                       "HOROVOD_JOIN=%s: it is 'reduce' (allreduce and barrier run without ranks that have "
                       "joined) or 'all' (every operation does)",
                       settings->join);
    if (!code)
        code = check_cpu_operations(settings, status);
    if (!code)
        code = algorithm_check_settings(settings, status);
    if (!code)
        settle_stall_check(settings);
    context->placement.rank = (int32_t)settings->rank;
    context->placement.size = (int32_t)settings->size;
    return code;
}

/* ---- joining ---------------------------------------------------------------------------------------- */

/* Polling pays only where each rank of the host has a core for itself. */
static int64_t spin_time(const struct hvd_context *context)
{
    bool own_core = platform_cores() >= context->placement.local_size;
    return own_core ? (int64_t)(context->settings.spin_microseconds * 1000) : 0;
}

static void place(struct hvd_context *context)
{
    const struct topology *topology = &context->world->topology;
    hvd_placement *placement = &context->placement;
    placement->local_rank = topology_local_rank(topology, placement->rank);
    placement->local_size = topology_local_size(topology, placement->rank);
    placement->cross_rank = topology_cross_rank(topology, placement->rank);
    placement->cross_size = topology_cross_size(topology, placement->rank);
    placement->homogeneous = topology_is_homogeneous(topology);
}

static hvd_code join(struct hvd_context *context, int64_t deadline, hvd_status *status)
{
    int size = context->placement.size;
    int *everybody = malloc((size_t)size * sizeof *everybody);
    if (!everybody)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    for (int rank = 0; rank < size; rank++)
        everybody[rank] = rank;
    hvd_code code =
        comm_open(context, 0, everybody, size, deadline, &context->interrupt, &context->world, status);
    free(everybody);
    if (!code)
        place(context);
    return code;
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
    atomic_store(&context->forked, true);
}

/* Also of a context that could be opened in part only. No thread makes progress any more before communicators
 * are closed. */
static void close_context(struct hvd_context *context)
{
    atfork_remove(&context->watch);
    drive_stop_thread(context);
    membership_close(context);
    rendezvous_close(context->rendezvous);
    observe_close(context);
    tuning_close(context);
    close_descriptor(&context->claim);
    sets_fini(&context->sets);
    settings_free(&context->settings);
    context_release(context);
}

hvd_code hvd_init(const hvd_config *config, hvd_context **context, hvd_status *status)
{
    struct hvd_context *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    atomic_init(&opened->references, 1);
    pool_init(&opened->pool, HANDLES, HANDLES_KEPT);
    overlaps_init(&opened->overlaps);
    pthread_mutex_init(&opened->handles_lock, NULL);
    pthread_mutex_init(&opened->rendezvous_lock, NULL);
    atomic_init(&opened->deadline, CLOCK_NEVER);
    atomic_init(&opened->claim, -1);
    opened->watch = (struct atfork_handler){.in_child = note_fork, .owner = opened};
    atfork_add(&opened->watch);
    sets_init(&opened->sets);
    counters_init(&opened->counters);
    if (config)
        opened->interrupt = config->interrupt;
    opened->backends = config && config->backends ? config->backends : backend_table;
    hvd_code code = load_settings(&opened->settings, config, status);
    int64_t deadline = code ? 0 : clock_after(opened->settings.start_timeout_seconds);
    if (!code)
        code = take_settings(opened, config ? config->mpi_comm : NULL, deadline, status);
    if (!code)
        code = observe_open(opened, status);
    if (!code)
        code = tuning_open(opened, status);
    if (!code)
        code = join(opened, deadline, status);
    if (code) {
        close_context(opened);
        return code;
    }
    opened->caller_spin = spin_time(opened);
    /* The progress lock is free from the start, so the mesh has to be armed, as by a release. */
    mesh_arm(opened->world->mesh);
    code = drive_start_thread(opened, status);
    if (code) {
        close_context(opened);
        return code;
    }
    mesh_wake(opened->world->mesh); /* messages may have come before it was armed */
    *context = opened;
    return status_ok(status);
}

/* ---- leaving ---------------------------------------------------------------------------------------- */

/* What is still queued was never seen by the coordinator. */
static void refuse_queued(struct hvd_context *context)
{
    hvd_status status;
    status_set(&status, HVD_SHUT_DOWN, "rank %d has shut down", context->placement.rank);
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
    if (context->settings.from_environment && !*context->settings.ranks) /* all have met */
        meeting_withdraw_offer();
    atomic_store(&context->leaving, true);
    drive_notify(context);
    /* Ranks that do not answer end the wait before, as any other (heartbeat.c). */
    double seconds = SILENCE_SHARE * context->settings.timeout_seconds + SHUTDOWN_SECONDS;
    if (!drive_until(context, &context->closed, HANDLE_DONE, clock_after(seconds), NULL))
        log_warning(context->placement.rank,
                    "the other ranks did not complete the shutdown handshake within %g s; leaving without it",
                    seconds);
    atfork_remove(&context->watch);
    drive_stop_thread(context);
    /* Only this thread makes progress from here on. Sets that were handed over late are taken in, to be ended
     * with the others. */
    hvd_status cause;
    status_set(&cause, HVD_SHUT_DOWN, "rank %d has shut down", context->placement.rank);
    membership_adopt(context);
    progress_end(context, &cause);
    refuse_queued(context);
    progress_resume(context); /* to be refused */
    /* The `done` functions of what just ended. */
    drive_finish_calls(context);
    close_context(context);
}

hvd_placement hvd_get_placement(const hvd_context *context)
{
    return context->placement;
}

hvd_code hvd_health(const hvd_context *context, hvd_status *status)
{
    hvd_code code = context_check_process(context, status);
    if (!code && atomic_load_explicit(&context->failed, memory_order_acquire))
        code = status_copy(status, &context->failure);
    return code ? code : status_ok(status);
}
