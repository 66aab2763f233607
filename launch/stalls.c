/* stalls.c - see stalls.h. */
#include "stalls.h"

#include "base/clock.h"
#include "watch/page_read.h"

#define LOOK_MILLISECONDS 5000

/* A stall that began before the last event is the one that the event was for. */
static bool has_new_stall(const struct stalls *stalls)
{
    const struct table *table = stalls->table;
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        struct page_glance glance;
        if (process->running && process->page >= 0 && !page_glance(process->page, &glance, NULL) &&
            glance.stalled > stalls->noticed)
            return true;
    }
    return false;
}

static void on_timer(uv_timer_t *timer)
{
    struct stalls *stalls = timer->data;
    if (!has_new_stall(stalls))
        return;
    stalls->noticed = clock_now();
    stalls->table->happened(stalls->table, &(struct event){.kind = EVENT_STALLED});
}

void stalls_watch(struct stalls *stalls, struct table *table)
{
    *stalls = (struct stalls){.table = table};
    uv_timer_init(&table->loop, &stalls->timer);
    stalls->timer.data = stalls;
    uv_timer_start(&stalls->timer, on_timer, LOOK_MILLISECONDS, LOOK_MILLISECONDS);
}
