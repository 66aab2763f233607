/* attached.c - see attached.h. An agent that is asked before it has processes of its own looks at the pages
 * of all processes of its user. */
#include "attached.h"
#include "agents.h"
#include "agents_look.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>

#define TICK_MILLISECONDS 50
#define HOST_SECONDS      15.0 /* within which a host answers, ssh included */

static void receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    if (kind == FRAME_READY && remote->state == REMOTE_CALLED && remote_get_release(remote, body))
        remote->state = REMOTE_STARTED;
    else if (kind == FRAME_RANK_VIEW || kind == FRAME_LOOKED)
        agents_look_receive(remote, kind, body);
}

/* Only wakes the loop. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

static hvd_code call_hosts(struct table *table, hvd_status *status)
{
    size_t count = (size_t)table->hosts->count;
    struct agents *agents = table->agents = calloc(1, sizeof *agents);
    if (!agents)
        return status_no_memory(status);
    agents->started = true; /* there is nothing to prepare */
    agents->list = calloc(count, sizeof *agents->list);
    agents->of_host = calloc(count, sizeof(struct remote *));
    if (!agents->list || !agents->of_host)
        return status_no_memory(status);
    uv_timer_init(&table->loop, &agents->timer);
    uv_timer_start(&agents->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (size_t i = 0; i < count; i++) {
        struct remote *remote = agents->of_host[i] = &agents->list[agents->count++];
        *remote = (struct remote){.table = table, .host = &table->hosts->list[i], .errors.file = -1};
        remote_call(remote, receive);
    }
    return HVD_OK;
}

/* Returns true if it is not known yet whether the host can be asked. */
static bool waits(struct remote *remote, bool late)
{
    if (remote->state == REMOTE_CALLED && late)
        remote_fail(remote, 1, "it does not answer within %g s", HOST_SECONDS);
    return remote->state == REMOTE_CALLED && !*remote->fault;
}

static void wait_for_hosts(struct attached *attached)
{
    struct agents *agents = attached->table.agents;
    const int64_t deadline = clock_after(HOST_SECONDS);
    for (bool any = true; any;) {
        attached_turn(attached);
        any = false;
        for (int i = 0; i < agents->count; i++)
            any = waits(&agents->list[i], clock_now() > deadline) || any;
    }
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = &agents->list[i];
        if (*remote->fault) {
            say(&attached->table, "host %s: %s", remote->host->name, remote->fault);
            remote_end(remote);
        }
    }
}

hvd_code attached_open(struct attached *attached, hvd_status *status)
{
    struct table *table = &attached->table;
    if (uv_loop_init(&table->loop))
        return status_set(status, HVD_SYSTEM, "can't make an event loop: too many open files?");
    attached->open = true;
    attached->host = (struct host){.name = "localhost", .local = true};
    attached->here = (struct hosts){.list = &attached->host, .count = 1};
    attached->starter = table->hosts ? agents_starter : local_starter;
    table->starter = &attached->starter;
    table->attached = table->options->job ? table->options->job : "";
    table->function = -1;
    monitor_init(&attached->monitor, table);
    TRY(table_open(table, status));
    if (!table->hosts) {
        table->hosts = &attached->here;
        return HVD_OK;
    }
    TRY(call_hosts(table, status));
    wait_for_hosts(attached);
    return HVD_OK;
}

void attached_close(struct attached *attached)
{
    if (!attached->open)
        return;
    table_close(&attached->table);
    monitor_free(&attached->monitor);
}

int attached_unreached(const struct attached *attached)
{
    const struct agents *agents = attached->table.agents;
    int count = 0;
    for (int i = 0; agents && i < agents->count; i++)
        count += agents->list[i].state != REMOTE_STARTED;
    return count;
}

void attached_turn(struct attached *attached)
{
    struct table *table = &attached->table;
    uv_run(&table->loop, UV_RUN_ONCE);
    if (table->starter->turn)
        table->starter->turn(table);
}
