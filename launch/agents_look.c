/* agents_look.c - see agents_look.h. */
#include "agents_look.h"
#include "agents.h"
#include "monitor.h"

#include "base/clock.h"

bool agents_look(const struct table *table, int host, uint32_t number, enum stacks stacks)
{
    struct remote *remote = table->agents->of_host[host];
    if (remote->state != REMOTE_STARTED)
        return false;
    frame_send_numbers(&remote->frames, FRAME_LOOK, 2, (int[]){(int)number, (int)stacks});
    return true;
}

double agents_silent(const struct table *table, int host)
{
    return (double)(clock_now() - table->agents->of_host[host]->frames.last) / CLOCK_SECOND;
}

void agents_look_receive(const struct remote *remote, enum frame_kind kind, struct wire_reader *body)
{
    struct table *table = remote->table;
    uint32_t number = wire_get_u32(body);
    struct rank_view view;
    if (!remote->host || body->failed || remote->state != REMOTE_STARTED)
        return;
    int host = (int)(remote->host - table->hosts->list);
    if (kind == FRAME_LOOKED)
        monitor_host_done(table->monitor, number, host);
    else if (rank_view_get(&view, clock_now(), body))
        monitor_add(table->monitor, number, host, &view);
    else
        rank_view_free(&view);
}
