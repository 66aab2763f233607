/* look.c - see look.h. */
#include "look.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* Adds the pages that this process has made. Returns false if a rank may write another one: it found no
 * room for one here, or runs in a container. */
static bool add_own_pages(struct look *look)
{
    const struct table *table = look->table;
    bool all = true;
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        all = (process->page >= 0 && host_pages_add(look->pages, process->page)) && all;
    }
    return all;
}

/* Drops the views of other jobs. */
static int keep_own(const struct table *table, struct rank_view *views, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (table_has_job(table, views[i].page.identity.job))
            views[kept++] = views[i];
        else
            rank_view_free(&views[i]);
    }
    return kept;
}

static void on_timer(uv_timer_t *timer)
{
    struct look *look = timer->data;
    int count;
    if (!look->requested) {
        host_pages_read(look->pages);
        host_pages_request(look->pages, look->stacks,
                           look->table->attached ? look->table->attached : look->table->id);
        look->patience = patience_of(PAGES_ANSWER_MILLISECONDS * CLOCK_SECOND / 1000);
        look->requested = true;
    }
    bool last = patience_ends(&look->patience);
    if (!host_pages_answers(look->pages, last) && !last) {
        uv_timer_start(timer, on_timer, PAGES_TICK_MILLISECONDS, 0);
        return;
    }
    struct rank_view *views = host_pages_views(look->pages, &count);
    host_pages_free(look->pages);
    look->pages = NULL;
    look->done(look, views, keep_own(look->table, views, count));
}

void look_init(struct look *look, struct table *table,
               void (*done)(struct look *look, struct rank_view *views, int count))
{
    *look = (struct look){.table = table, .done = done};
    uv_timer_init(&table->loop, &look->timer);
    look->timer.data = look;
}

hvd_code look_start(struct look *look, enum stacks stacks, hvd_status *status)
{
    if (!look->pages || stacks > look->stacks)
        look->stacks = stacks;
    if (look->pages)
        return HVD_OK;
    look->requested = false;
    look->pages = host_pages_create();
    if (!look->pages)
        return status_no_memory(status);
    bool all = add_own_pages(look);
    /* The rank has not joined, or uses a page of its own; or this process has started none. */
    if (!host_pages_glance(look->pages) || !all || !look->table->count) {
        host_pages_find(look->pages);
        host_pages_glance(look->pages);
    }
    uv_timer_start(&look->timer, on_timer, PAGES_PAUSE_MILLISECONDS, 0);
    return HVD_OK;
}

void look_free(struct look *look)
{
    host_pages_free(look->pages);
}
