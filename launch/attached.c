/* attached.c - see attached.h. An agent that is asked before it has processes of its own looks at the pages
 * of all processes of its user. */
#include "attached.h"
#include "agents.h"
#include "agents_hosts.h"
#include "agents_look.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"

#include <signal.h>
#include <stdlib.h>

#define TICK_MILLISECONDS 50
#define HOST_SECONDS      15.0 /* within which a host answers, ssh included */
#define LOST_SECONDS      2.0  /* for which one is waited for that is called again */

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
    struct agents *agents = table->agents = calloc(1, sizeof *agents);
    if (!agents)
        return status_no_memory(status);
    agents->started = true; /* there is nothing to prepare */
    uv_timer_init(&table->loop, &agents->timer);
    uv_timer_start(&agents->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (int i = 0; i < table->hosts->count; i++) {
        struct remote *remote = agents_add(table, i);
        if (!remote)
            return status_no_memory(status);
        remote_call(remote, receive);
    }
    return HVD_OK;
}

/* Returns true if it is not known yet whether the host can be asked. What has called it for too long is
 * killed: it may be called again. */
static bool waits(struct remote *remote)
{
    if (remote->state == REMOTE_CALLED && frames_silent(&remote->frames, HOST_SECONDS)) {
        remote_fail(remote, 1, "it does not answer within %g s", HOST_SECONDS);
        if (remote->running)
            kill(remote->pid, SIGTERM);
    }
    if (remote->state == REMOTE_CALLED && *remote->fault)
        remote_end(remote);
    return remote->state == REMOTE_CALLED;
}

static void wait_for_hosts(struct attached *attached, double seconds)
{
    struct agents *agents = attached->table.agents;
    const int64_t deadline = clock_after(seconds);
    for (bool any = true; any && !attached->ended && clock_now() < deadline;) {
        attached_turn(attached);
        any = false;
        for (int i = 0; i < agents->count; i++)
            any = waits(agents->list[i]) || any;
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
    wait_for_hosts(attached, 2 * HOST_SECONDS);
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = table->agents->list[i];
        if (*remote->fault && !attached->ended)
            say(table, "host %s: %s", remote_host(remote)->name, remote->fault);
    }
    return HVD_OK;
}

/* Their handles must be closed before their memory is used again, which a turn of the loop does. */
void attached_call_lost(struct attached *attached)
{
    struct table *table = &attached->table;
    const struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = agents->list[i];
        if (remote->state == REMOTE_ENDED && !remote->running) {
            frames_close(&remote->frames);
            output_close(&remote->errors);
        }
    }
    attached_turn(attached);
    bool called = false;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = agents->list[i];
        called = called || remote->state == REMOTE_CALLED;
        if (remote->state != REMOTE_ENDED || remote->running || remote->frames.open || remote->errors.open)
            continue;
        remote_free(remote);
        *remote = (struct remote){.table = table, .host = i, .errors.file = -1};
        remote_call(remote, receive);
        called = true;
    }
    if (called)
        wait_for_hosts(attached, LOST_SECONDS);
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
        count += agents->list[i]->state != REMOTE_STARTED;
    return count;
}

bool attached_has_hosts(const struct attached *attached)
{
    const struct agents *agents = attached->table.agents;
    for (int i = 0; agents && i < agents->count; i++) {
        if (agents->list[i]->state == REMOTE_STARTED || agents->list[i]->state == REMOTE_CALLED)
            return true;
    }
    return !agents;
}

void attached_turn(struct attached *attached)
{
    struct table *table = &attached->table;
    uv_run(&table->loop, UV_RUN_ONCE);
    if (table->starter->turn)
        table->starter->turn(table);
}
