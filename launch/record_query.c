/* record_query.c - see record_query.h. */
#include "record_query.h"
#include "starter.h"

#include "base/status.h"

#include <stdlib.h>

static bool waits_for_hosts(const struct record_query *record_query)
{
    for (int i = 0; i < record_query->host_count; i++) {
        if (record_query->waits[i])
            return true;
    }
    return false;
}

/* Ends the question. */
static void stop(struct record_query *record_query)
{
    uv_timer_stop(&record_query->deadline);
    free(record_query->waits);
    record_query->waits = NULL;
    record_query->done = NULL;
}

static void finish(struct record_query *record_query)
{
    struct collected collected;
    collected_take(&collected, record_query->table, &record_query->window);
    record_query->done(&collected, record_query->argument);
    collected_free(&collected);
    stop(record_query);
}

static void on_deadline(uv_timer_t *timer)
{
    finish(timer->data);
}

void record_query_host_done(struct record_query *record_query, uint32_t number, int host)
{
    if (!record_query->done || number != record_query->number || host >= record_query->host_count ||
        !record_query->waits[host])
        return;
    record_query->waits[host] = false;
    if (!waits_for_hosts(record_query))
        finish(record_query);
}

hvd_code record_query_start(struct record_query *record_query, const struct history_window *window,
                            record_query_done_fn *done, void *argument, hvd_status *status)
{
    const struct table *table = record_query->table;
    if (record_query->done)
        return status_set(status, HVD_REFUSED, "somebody else asks for a timeline at this moment");
    record_query->waits = calloc((size_t)table->hosts->count + 1, sizeof *record_query->waits);
    if (!record_query->waits)
        return status_no_memory(status);
    record_query->number++;
    record_query->host_count = table->hosts->count;
    record_query->window = *window;
    record_query->done = done;
    record_query->argument = argument;
    for (int i = 0; table->starter->record_query && i < table->count; i++) {
        int host = table->list[i]->place.host;
        if (!record_query->waits[host] && !table->list[i]->gone)
            record_query->waits[host] =
                table->starter->record_query(table, host, record_query->number, window);
    }
    uint64_t milliseconds = waits_for_hosts(record_query) ? (uint64_t)(RECORD_QUERY_SECONDS * 1000) : 0;
    uv_timer_start(&record_query->deadline, on_deadline, milliseconds, 0);
    return HVD_OK;
}

void record_query_forget(struct record_query *record_query, const void *argument)
{
    if (record_query->done && record_query->argument == argument)
        stop(record_query);
}

void record_query_init(struct record_query *record_query, struct table *table)
{
    *record_query = (struct record_query){.table = table};
    uv_timer_init(&table->loop, &record_query->deadline);
    record_query->deadline.data = record_query;
    table->record_query = record_query;
}

void record_query_free(struct record_query *record_query)
{
    free(record_query->waits);
    record_query->waits = NULL;
}
