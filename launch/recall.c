/* recall.c - see recall.h. */
#include "recall.h"
#include "starter.h"

#include "base/status.h"

#include <stdlib.h>

static bool waits_for_hosts(const struct recall *recall)
{
    for (int i = 0; i < recall->table->hosts->count; i++) {
        if (recall->waits[i])
            return true;
    }
    return false;
}

/* Ends the question. */
static void stop(struct recall *recall)
{
    uv_timer_stop(&recall->deadline);
    free(recall->waits);
    recall->waits = NULL;
    recall->done = NULL;
}

static void finish(struct recall *recall)
{
    struct collected collected;
    collected_take(&collected, recall->table, &recall->window);
    recall->done(&collected, recall->argument);
    collected_free(&collected);
    stop(recall);
}

static void on_deadline(uv_timer_t *timer)
{
    finish(timer->data);
}

void recall_host_done(struct recall *recall, uint32_t number, int host)
{
    if (!recall->done || number != recall->number || !recall->waits[host])
        return;
    recall->waits[host] = false;
    if (!waits_for_hosts(recall))
        finish(recall);
}

hvd_code recall_start(struct recall *recall, const struct history_window *window, recall_done_fn *done,
                      void *argument, hvd_status *status)
{
    const struct table *table = recall->table;
    if (recall->done)
        return status_set(status, HVD_REFUSED, "somebody else asks for a timeline at this moment");
    recall->waits = calloc((size_t)table->hosts->count + 1, sizeof *recall->waits);
    if (!recall->waits)
        return status_no_memory(status);
    recall->number++;
    recall->window = *window;
    recall->done = done;
    recall->argument = argument;
    for (int i = 0; table->starter->recall && i < table->count; i++) {
        int host = table->list[i]->place.host;
        if (!recall->waits[host] && !table->list[i]->gone)
            recall->waits[host] = table->starter->recall(table, host, recall->number, window);
    }
    uint64_t milliseconds = waits_for_hosts(recall) ? (uint64_t)(RECALL_SECONDS * 1000) : 0;
    uv_timer_start(&recall->deadline, on_deadline, milliseconds, 0);
    return HVD_OK;
}

void recall_forget(struct recall *recall, const void *argument)
{
    if (recall->done && recall->argument == argument)
        stop(recall);
}

void recall_init(struct recall *recall, struct table *table)
{
    *recall = (struct recall){.table = table};
    uv_timer_init(&table->loop, &recall->deadline);
    recall->deadline.data = recall;
    table->recall = recall;
}

void recall_free(struct recall *recall)
{
    free(recall->waits);
    recall->waits = NULL;
}
