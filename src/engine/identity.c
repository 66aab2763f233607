/* identity.c - finds out which rank this process is, and checks the settings that depend on it. One thread,
 * inside hvd_init. */
#include "engine/identity.h"

#include "backend/backend.h"
#include "backend/mpi_library.h"
#include "backend/mpi_meet.h"
#include "base/misspelt.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/claim.h"
#include "engine/context.h"
#include "net/crypto.h"
#include "rendezvous/assignments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- a list of ranks --------------------------------------------------------------------------------- */

struct subset {
    const struct settings *settings;
    int *ranks, count; /* of the subset: ranks of the world */
    int own;           /* index of this rank */
};

/* Parses one rank at *text, and the comma after it; returns -1 if there is none. */
static int parse_rank(const char **text, int64_t size)
{
    char *end;
    errno = 0;
    long rank = strtol(*text, &end, 10);
    bool found = end != *text && (*end == ',' || *end == '\0') && !errno && rank >= 0 && rank < size;
    *text = *end == ',' ? end + 1 : end;
    return found ? (int)rank : -1;
}

static hvd_code add_rank(struct subset *subset, int rank, bool *listed, hvd_status *status)
{
    if (rank < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "'%s' is no list of ranks of a world of %lld, such as 0,2 (init's comm, "
                          "HOROVOD_RANKS)",
                          subset->settings->ranks, (long long)subset->settings->size);
    if (listed[rank])
        return status_set(status, HVD_INVALID_ARGUMENT, "rank %d stands twice in the list of ranks '%s'",
                          rank, subset->settings->ranks);
    listed[rank] = true;
    if (rank == subset->settings->rank)
        subset->own = subset->count;
    subset->ranks[subset->count++] = rank;
    return HVD_OK;
}

static hvd_code read_ranks(struct subset *subset, hvd_status *status)
{
    size_t size = (size_t)subset->settings->size;
    bool *listed = calloc(size, sizeof *listed);
    subset->ranks = calloc(size, sizeof *subset->ranks);
    const char *text = subset->settings->ranks;
    hvd_code code = listed && subset->ranks ? HVD_OK : status_no_memory(status);
    while (!code && *text)
        code = add_rank(subset, parse_rank(&text, subset->settings->size), listed, status);
    free(listed);
    TRY(code);
    if (subset->own < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %lld of the world is not in the list of ranks '%s' that it passed to init",
                          (long long)subset->settings->rank, subset->settings->ranks);
    return HVD_OK;
}

/* Other subsets of the same world meet at the same rendezvous. */
static hvd_code put_job(const struct subset *subset, struct settings *settings, hvd_status *status)
{
    /* A MAC serves as a hash of the list: ranks with equal lists meet, others do not. */
    static const char key[] = "ranks of the job";
    uint8_t mac[CRYPTO_MAC_BYTES];
    char job[512];
    crypto_mac(key, sizeof key, subset->ranks, (size_t)subset->count * sizeof *subset->ranks, mac);
    int length = snprintf(job, sizeof job, "%s-%02x%02x%02x%02x%02x%02x", settings->job, mac[0], mac[1],
                          mac[2], mac[3], mac[4], mac[5]);
    if ((size_t)length >= sizeof job)
        return status_set(status, HVD_INVALID_ARGUMENT, "the name of the job, HOROVOD_JOB, is too long");
    return settings_set(settings, setting_by_key("job"), job, "HOROVOD_JOB", status);
}

hvd_code subset_apply(struct settings *settings, hvd_status *status)
{
    if (!*settings->ranks)
        return HVD_OK;
    struct subset subset = {.settings = settings, .own = -1};
    hvd_code code = read_ranks(&subset, status);
    if (code)
        goto free_ranks;
    code = put_job(&subset, settings, status);
    if (code)
        goto free_ranks;
    settings_place(settings, subset.own, subset.count);
free_ranks:
    free(subset.ranks);
    return code;
}

/* ---- settings that need more than a range ------------------------------------------------------------ */

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
    return settings->size == 1 && !*settings->slot ? HVD_OK : bootstrap_read_secret(settings, status);
}

static void apply_stall_check(struct settings *settings)
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

/* The variables of a planned process name its place as well, and the table was published before it was
 * started: if they differ, or there is no table, the program has changed the variables to make a job of its
 * own, so the variables count. The local ranks of the variables are checked by placement_agree. */
static hvd_code apply_host(struct settings *settings, const struct assignment *assignment, hvd_status *status)
{
    if (assignment->rank != settings->rank || assignment->size != settings->size || !*assignment->host)
        return HVD_OK;
    return settings_set(settings, setting_by_key("host_id"), assignment->host, "the assignments of the epoch",
                        status);
}

/* Replaces rank, size and host of the settings by the starter's assignment for this epoch. In the first epoch
 * the variables of a launched process name its rank (`planned`), so the assignment is found when the process
 * enters the epoch. */
static hvd_code look_up_assignment(struct hvd_context *context, bool planned, int64_t deadline,
                                   hvd_status *status)
{
    struct settings *settings = &context->settings;
    struct assignment assignment;
    if (!planned)
        settings_place(settings, 0, 1);
    TRY(check_placement(settings, status));
    TRY(check_secret(settings, status));
    context->planned = planned && !*settings->ranks; /* the job of a list of ranks has no table */
    if (context->planned)
        return HVD_OK; /* identity_enter does it */
    TRY(rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption, deadline,
                           &context->interrupt, &context->rendezvous, status));
    const struct rendezvous_place nobody = {settings->job, (uint32_t)settings->epoch, -1, 0};
    TRY(assignments_enter(context->rendezvous, &nobody, settings->slot, !planned, NULL, &assignment, status));
    if (!planned)
        settings_place(settings, assignment.rank, assignment.size);
    return apply_host(settings, &assignment, status);
}

/* Called before MPI is opened. */
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

static hvd_code check_gpu_operations(const struct settings *settings, hvd_status *status)
{
    static const char *const words[] = {"", "nccl", "host"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(settings->gpu_operations, words[i]) == 0)
            return HVD_OK;
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "HOROVOD_GPU_OPERATIONS=%s: it is 'nccl', 'host' for the memory of the host, or empty for "
        "the best of the two that works; MPI is not used for tensors on GPUs",
        settings->gpu_operations);
}

/* ---- which rank this is ------------------------------------------------------------------------------ */

/* The starter of this process says which rank it is, unless the program does. */
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
    return starter->size > 1 ? bootstrap_arrange(starter, settings, deadline, &context->interrupt, status)
                             : HVD_OK;
}

/* Returns true if the variables of the process are the place of its slot in the first epoch. */
static bool is_planned(const struct settings *settings, const struct starter *starter)
{
    return *settings->slot && starter->launched && settings->epoch == 0;
}

/* Claims the rank that the environment gives to this process, so that no child which inherits it joins. */
static hvd_code read_starter(struct hvd_context *context, struct starter *starter, hvd_status *status)
{
    struct settings *settings = &context->settings;
    int descriptor;
    *starter = (struct starter){.size = 1, .pmi = -1};
    if (!settings->from_environment)
        return HVD_OK;
    if (!*settings->slot || setting_is_given(settings, setting_by_key("rank")))
        TRY(starter_read(starter, &variables_of_process, status));
    /* A single rank needs no assignment. */
    if (is_planned(settings, starter) && settings->size == 1)
        TRY(settings_set(settings, setting_by_key("slot"), "", "a job of one rank", status));
    if (starter->name)
        log_debug((int)starter->rank, "rank %lld of %lld, as %s says", (long long)starter->rank,
                  (long long)starter->size, starter->name);
    hvd_code code = claim_rank(settings, starter, &descriptor, status);
    atomic_store(&context->claim, descriptor);
    return code;
}

/* Finds the rank of this process: from an MPI communicator if the program passes one, or if only MPI knows
 * it; from the assignments of the epoch; from the starter of the process. */
static hvd_code find_place(struct hvd_context *context, const void *mpi_comm, int64_t deadline,
                           hvd_status *status)
{
    struct settings *settings = &context->settings;
    struct starter starter;
    bool placed = *settings->rendezvous || *settings->slot;
    TRY(read_starter(context, &starter, status));
    if (mpi_comm || (mpi_is_chosen(settings) && !placed))
        return mpi_meet(settings, mpi_comm, deadline, &context->interrupt, status);
    return *settings->slot ? look_up_assignment(context, is_planned(settings, &starter), deadline, status)
                           : ask_starter(context, &starter, deadline, status);
}

static void warn_of_misspelt(void *owner, const char *name, const char *right)
{
    (void)owner;
    log_warning(0, MISSPELT_TEXT, name, right);
}

/* ---- entering the epoch -------------------------------------------------------------------------------- */

hvd_code identity_enter(struct hvd_context *context, hvd_status *status)
{
    struct settings *settings = &context->settings;
    struct assignment assignment;
    const struct rendezvous_place place = {settings->job, (uint32_t)settings->epoch, context->placement.rank,
                                           context->placement.size};
    if (!context->planned)
        return rendezvous_enter(context->rendezvous, &place, &context->generation, status);
    TRY(assignments_enter(context->rendezvous, &place, settings->slot, false, &context->generation,
                          &assignment, status));
    return apply_host(settings, &assignment, status);
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

/* The order matters: HOROVOD_RANKS lists ranks of the world, which must be valid; afterwards rank and size,
 * and so the need of a secret, are those of the subset. */
hvd_code identity_find(hvd_context *context, const void *mpi_comm, int64_t deadline, hvd_status *status)
{
    static atomic_flag names_checked = ATOMIC_FLAG_INIT;
    struct settings *settings = &context->settings;
    bool launched =
        *settings->job != '\0'; /* read first: MPI names the job as well, once the ranks have met */
    TRY(check_encryption(settings, status));
    TRY(find_place(context, mpi_comm, deadline, status));
    /* Once in a job, and once in a process: horovodrun, which names the job, has done it for its ranks. */
    if (settings->from_environment && settings->rank == 0 && !launched &&
        !atomic_flag_test_and_set(&names_checked))
        misspelt_variables(environ, warn_of_misspelt, NULL);
    TRY(check_placement(settings, status));
    TRY(subset_apply(settings, status));
    TRY(check_secret(settings, status));
    if (strcmp(settings->join, "all") != 0 && strcmp(settings->join, "reduce") != 0)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "HOROVOD_JOIN=%s: it is 'reduce' (allreduce and barrier run without ranks that have "
            "joined) or 'all' (every operation does)",
            settings->join);
    if (strcmp(settings->on_divergence, "warn") != 0 && strcmp(settings->on_divergence, "abort") != 0)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "HOROVOD_ON_DIVERGENCE=%s: it is 'warn' (one line) or 'abort' (every rank raises an "
            "error as well)",
            settings->on_divergence);
    TRY(check_cpu_operations(settings, status));
    TRY(check_gpu_operations(settings, status));
    TRY(algorithm_check_settings(settings, status));
    apply_stall_check(settings);
    context->placement.rank = (int32_t)settings->rank;
    context->placement.size = (int32_t)settings->size;
    return HVD_OK;
}
