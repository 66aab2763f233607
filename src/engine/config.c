/* config.c - the public interface of the settings, and the version that CMakeLists.txt states. */
#include "engine/config.h"

#include "base/crypto.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void hvd_config_set_interrupt(hvd_config *config, hvd_interrupt_fn ask, void *argument)
{
    config->interrupt = (struct interrupt){ask, argument};
}

void hvd_config_set_mpi_comm(hvd_config *config, const void *comm)
{
    config->mpi_comm = comm;
}

hvd_code hvd_config_load_environment(hvd_config *config, hvd_status *status)
{
    hvd_code code = settings_load_environment(&config->settings, status);
    return code ? code : status_ok(status);
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}

/* ---- subset ---------------------------------------------------------------------------------------- */

struct subset {
    const struct settings *settings;
    int *ranks, count; /* of the subset: ranks of the world */
    int own;           /* index of this rank */
};

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the list of the job's ranks");
}

/* Takes one rank from *text, and the comma after it; -1 when there is none. */
static int take_rank(const char **text, int64_t size)
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
    hvd_code code = listed && subset->ranks ? HVD_OK : out_of_memory(status);
    while (!code && *text)
        code = add_rank(subset, take_rank(&text, subset->settings->size), listed, status);
    free(listed);
    if (!code && subset->own < 0)
        code = status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %lld of the world is not in the list of ranks '%s' that it passed to init",
                          (long long)subset->settings->rank, subset->settings->ranks);
    return code;
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
    if (!code)
        code = put_job(&subset, settings, status);
    if (!code)
        settings_place(settings, subset.own, subset.count);
    free(subset.ranks);
    return code;
}
