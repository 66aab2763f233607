/* host.c - the back end `host`: the engine's own algorithms (coll/algorithms.def) over its own links, run by
 * the executor. It supports every batch. Threads and locks: see backend.h. */
#include "backend/backend.h"

#include "base/status.h"

#include <stdlib.h>

struct host {
    struct executor *executor;
    const struct settings *settings;
    const struct topology *topology;
};

static void host_close(void *state)
{
    struct host *host = state;
    executor_destroy(host->executor);
    free(host);
}

static hvd_code host_open(const struct backend_opening *opening, void **state, int *descriptor,
                          hvd_status *status)
{
    (void)descriptor; /* links have their own */
    struct host *host = calloc(1, sizeof *host);
    if (!host)
        return status_no_memory(status);
    host->settings = opening->settings;
    host->topology = opening->topology;
    if (opening->set == 0 && host->settings->rank == 0) { /* rank 0 chooses for all ranks */
        char text[1024];
        algorithm_describe(host->topology, host->settings, text, sizeof text);
        log_debug(0, "algorithms for %d ranks on %d hosts: %s", host->topology->size, host->topology->hosts,
                  text);
    }
    hvd_code code = executor_create(opening->lookup, opening->owner, &host->executor, status);
    if (code)
        free(host);
    else
        *state = host;
    return code;
}

static bool host_supports(const void *state, const struct backend_query *query, struct choice *choice)
{
    const struct host *host = state;
    choice->algorithm = (uint8_t)algorithm_choose(query->operation, query->reduction, query->bytes,
                                                  host->topology, query->latency_threshold, host->settings);
    choice->piece_exponent = (uint8_t)piece_exponent_of(query->piece_bytes);
    return true;
}

static hvd_code host_start(void *state, struct collective *collective, hvd_status *status)
{
    struct host *host = state;
    int row = collective->choice.algorithm, exponent = collective->choice.piece_exponent;
    if (!algorithm_does(row, collective->operation, collective->reduction) ||
        exponent < PIECE_EXPONENT_LEAST || exponent > PIECE_EXPONENT_MOST)
        return status_set(status, HVD_REFUSED,
                          "rank %lld can't run the %s that was decided, by algorithm %d in pieces of 2^%d "
                          "bytes; do the ranks run different versions?",
                          (long long)host->settings->rank, hvd_operation_name(collective->operation), row,
                          exponent);
    collective->algorithm = algorithm_table[row];
    collective->piece_bytes = (size_t)1 << exponent;
    executor_start(host->executor, collective);
    return HVD_OK;
}

static enum backend_progress host_progress(void *state, bool *moved)
{
    struct host *host = state;
    *moved |= executor_progress(host->executor);
    if (executor_idle(host->executor))
        return BACKEND_DONE;
    return executor_is_ready(host->executor) ? BACKEND_READY : BACKEND_PENDING;
}

static void host_abort(void *state, const hvd_status *cause)
{
    struct host *host = state;
    executor_abort(host->executor, cause);
}

static const char *host_algorithm_name(unsigned algorithm)
{
    return (int)algorithm < algorithm_count ? algorithm_table[algorithm]->name : "unknown";
}

const struct backend backend_host = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .supports = host_supports,
    .start = host_start,
    .progress = host_progress,
    .abort = host_abort,
    .algorithm_name = host_algorithm_name,
};
