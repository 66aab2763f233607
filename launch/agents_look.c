/* agents_look.c - see agents_look.h. */
#include "agents_look.h"
#include "agents.h"
#include "agents_hosts.h"
#include "monitor.h"

#include "base/clock.h"

bool agents_look(const struct table *table, int host, uint32_t number, enum stacks stacks)
{
    struct remote *remote = agents_of_host(table->agents, host);
    if (!remote || remote->state != REMOTE_STARTED)
        return false;
    frame_send_numbers(&remote->frames, FRAME_LOOK, 2, (int[]){(int)number, (int)stacks});
    return true;
}

double agents_silent(const struct table *table, int host)
{
    const struct remote *remote = agents_of_host(table->agents, host);
    return remote ? (double)(clock_now() - remote->frames.last) / CLOCK_SECOND : 0;
}

void agents_look_receive(const struct remote *remote, enum frame_kind kind, struct wire_reader *body)
{
    struct table *table = remote->table;
    uint32_t number = wire_get_u32(body);
    struct rank_view view;
    if (remote->host < 0 || body->failed || remote->state != REMOTE_STARTED)
        return;
    if (kind == FRAME_LOOKED)
        monitor_host_done(table->monitor, number, remote->host);
    else if (rank_view_get(&view, clock_now(), body))
        monitor_add(table->monitor, number, remote->host, &view);
    else
        rank_view_free(&view);
}
