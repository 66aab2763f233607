/* subset.c - see subset.h. Pure arithmetic on the settings. */
#include "engine/subset.h"

#include "base/crypto.h"
#include "base/status.h"
#include "coordinate/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 12 /* of a rank or a count, with a comma */

struct subset {
    const struct settings *settings;
    int *host_sizes, hosts; /* of the world */
    int *ranks, count;      /* of the subset: ranks of the world */
    int *host_of;           /* [count] */
    int own;                /* index of this rank */
};

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the list of the job's ranks");
}

static int host_of_rank(const struct subset *subset, int rank)
{
    int host = 0;
    for (int first = 0; rank >= first + subset->host_sizes[host]; host++)
        first += subset->host_sizes[host];
    return host;
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
    subset->host_of[subset->count] = host_of_rank(subset, rank);
    subset->ranks[subset->count++] = rank;
    return HVD_OK;
}

static hvd_code read_ranks(struct subset *subset, hvd_status *status)
{
    size_t size = (size_t)subset->settings->size;
    bool *listed = calloc(size, sizeof *listed);
    subset->ranks = calloc(size, sizeof *subset->ranks);
    subset->host_of = calloc(size, sizeof *subset->host_of);
    const char *text = subset->settings->ranks;
    hvd_code code = listed && subset->ranks && subset->host_of ? HVD_OK : out_of_memory(status);
    while (!code && *text)
        code = add_rank(subset, take_rank(&text, subset->settings->size), listed, status);
    free(listed);
    if (!code && subset->own < 0)
        code = status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %lld of the world is not in the list of ranks '%s' that it passed to init",
                          (long long)subset->settings->rank, subset->settings->ranks);
    return code;
}

/* The tree of reports wants the ranks of a host side by side. */
static hvd_code check_hosts(const struct subset *subset, hvd_status *status)
{
    bool *left = calloc((size_t)subset->hosts, sizeof *left);
    if (!left)
        return out_of_memory(status);
    hvd_code code = HVD_OK;
    for (int i = 1; !code && i < subset->count; i++) {
        if (subset->host_of[i] == subset->host_of[i - 1])
            continue;
        left[subset->host_of[i - 1]] = true;
        if (left[subset->host_of[i]])
            code = status_set(status, HVD_INVALID_ARGUMENT,
                              "the list of ranks '%s' returns to the host of rank %d; list the ranks of a "
                              "host one after the other",
                              subset->settings->ranks, subset->ranks[i]);
    }
    free(left);
    return code;
}

/* Ranks of the subset on the same host as rank `index`, up to and without `limit`. */
static int count_on_host(const struct subset *subset, int index, int limit)
{
    int count = 0;
    for (int i = 0; i < limit; i++)
        count += subset->host_of[i] == subset->host_of[index];
    return count;
}

static void put_place(const struct subset *subset, struct settings *settings)
{
    settings->local_rank = count_on_host(subset, subset->own, subset->own);
    settings->local_size = count_on_host(subset, subset->own, subset->count);
    settings->cross_rank = settings->cross_size = 0;
    for (int first = 0, size; first < subset->count; first += size) {
        size = count_on_host(subset, first, subset->count);
        /* Only hosts with so many ranks have one of this local rank; cross_rank counts those before this
         * host. */
        bool has_equal = size > settings->local_rank;
        settings->cross_size += has_equal;
        settings->cross_rank += has_equal && first + size <= subset->own;
    }
    settings->rank = subset->own;
    settings->size = subset->count;
}

static hvd_code put_hosts(const struct subset *subset, struct settings *settings, hvd_status *status)
{
    char *text = malloc((size_t)subset->count * DIGITS + 1);
    if (!text)
        return out_of_memory(status);
    size_t used = 0;
    for (int first = 0, size; first < subset->count; first += size) {
        size = count_on_host(subset, first, subset->count);
        used += (size_t)sprintf(text + used, "%s%d", first ? "," : "", size);
    }
    hvd_code code = settings_set(settings, setting_by_key("host_sizes"), text, "HOROVOD_HOST_SIZES", status);
    free(text);
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
    hvd_code code = host_sizes_parse(settings->host_sizes, (int)settings->size, &subset.host_sizes,
                                     &subset.hosts, status);
    if (!code)
        code = read_ranks(&subset, status);
    if (!code)
        code = check_hosts(&subset, status);
    if (!code) {
        put_place(&subset, settings);
        code = put_hosts(&subset, settings, status);
    }
    if (!code)
        code = put_job(&subset, settings, status);
    free(subset.host_sizes);
    free(subset.ranks);
    free(subset.host_of);
    return code;
}
