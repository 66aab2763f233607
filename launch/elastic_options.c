/* elastic_options.c - see elastic_options.h. */
#include "elastic_options.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREPARE_SECONDS  5.0
#define SETTLE_SECONDS   0.05
#define SILENT_SECONDS   5.0
#define GATHER_SECONDS   1.0
#define DEFAULT_TIMEOUT  600 /* seconds, as Horovod's */
#define DEFAULT_REJOIN   120 /* seconds: a step, a commit or a validation may take that long */
#define DEFAULT_RESTARTS 3
#define MOST_RANKS       1024

bool elastic_requested(const struct options *options)
{
    return options->min_num_proc || options->discovery_script;
}

/* Parses "restart", "restart:5" or "drop-host". */
static hvd_code parse_failed_slot(struct membership_config *config, const char *text, hvd_status *status)
{
    char *end = NULL;
    long restarts = strncmp(text, "restart:", 8) == 0 ? strtol(text + 8, &end, 10) : DEFAULT_RESTARTS;
    bool numbered = end && end != text + 8 && !*end && restarts >= 1 && restarts <= 1000000;
    config->restart = numbered || strcmp(text, "restart") == 0;
    config->restarts = (int)restarts;
    config->drop_last = strcmp(text, "drop-host") == 0;
    if (config->restart || config->drop_last)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "--failed-slot=%s must be drop-host, restart, or restart:N with N from 1 on", text);
}

/* The variable takes effect without the option. */
static hvd_code read_timeout(const struct options *options, int64_t *seconds, hvd_status *status)
{
    const char *text = getenv("HOROVOD_ELASTIC_TIMEOUT");
    char *end;
    *seconds = options->elastic_timeout ? options->elastic_timeout : DEFAULT_TIMEOUT;
    if (options->elastic_timeout || !text || !*text)
        return HVD_OK;
    errno = 0;
    *seconds = strtoll(text, &end, 10);
    if (!errno && end != text && !*end && *seconds >= 1 && *seconds <= (int64_t)1e9)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "HOROVOD_ELASTIC_TIMEOUT=%s must be a whole number of seconds from 1 to 1e9", text);
}

/* Horovod asks the ranks to wait for a newcomer as soon as it is started, and its tests expect that. */
static hvd_code read_growth(bool *now, hvd_status *status)
{
    const char *text = getenv("HOROVOD_ELASTIC_GROW");
    *now = text && strcmp(text, "now") == 0;
    if (!text || !*text || *now || strcmp(text, "ready") == 0)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT, "HOROVOD_ELASTIC_GROW=%s must be ready or now", text);
}

static hvd_code check_sizes(const struct membership_config *config, hvd_status *status)
{
    if (config->min > config->start)
        return status_set(status, HVD_INVALID_ARGUMENT, "--min-np %d is more than -np %d", config->min,
                          config->start);
    if (config->start > config->max)
        return status_set(status, HVD_INVALID_ARGUMENT, "-np %d is more than --max-np %d", config->start,
                          config->max);
    return HVD_OK;
}

hvd_code elastic_configure(struct membership_config *config, const struct options *options,
                           const struct hosts *hosts, hvd_status *status)
{
    int64_t timeout;
    int64_t start = options->num_proc           ? options->num_proc
                    : options->discovery_script ? options->min_num_proc
                                                : hosts->size;
    bool grow_now;
    TRY(read_timeout(options, &timeout, status));
    TRY(read_growth(&grow_now, status));
    if (!start)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "how many ranks? Say -np N or --min-np N beside --host-discovery-script");
    *config = (struct membership_config){
        .listed = !options->discovery_script,
        .start = (int)start,
        .min = (int)(options->min_num_proc ? options->min_num_proc : start),
        .max = (int)(options->max_num_proc ? options->max_num_proc : start),
        .spares = (int)options->spares,
        .prepare = (int64_t)(PREPARE_SECONDS * CLOCK_SECOND),
        .settle = (int64_t)(SETTLE_SECONDS * CLOCK_SECOND),
        .rejoin = (options->rejoin_seconds ? options->rejoin_seconds : DEFAULT_REJOIN) * CLOCK_SECOND,
        .silent = (int64_t)(SILENT_SECONDS * CLOCK_SECOND),
        .gather = (int64_t)(GATHER_SECONDS * CLOCK_SECOND),
        .timeout = timeout * CLOCK_SECOND,
        .reset_limit = options->reset_limit ? (int)(options->reset_limit - 1) : -1,
        .restarts = DEFAULT_RESTARTS,
        .grow_now = grow_now,
        .pause = {options->cooldown[0] * CLOCK_SECOND, options->cooldown[1] * CLOCK_SECOND},
        .seed = (uint64_t)clock_now()};
    if (options->failed_slot)
        TRY(parse_failed_slot(config, options->failed_slot, status));
    return check_sizes(config, status);
}

int elastic_most(const struct membership_config *config)
{
    int most = config->start > MOST_RANKS ? config->start : MOST_RANKS;
    return config->max < most ? config->max : most;
}
