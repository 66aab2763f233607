/* agents_nodes.c - sends lines and the exit code of the launcher to nodes. One thread, the loop's. */
#include "agents_nodes.h"
#include "agents.h"

#include "base/clock.h"

#define LEAVE_SECONDS 2.0

void agents_said(struct table *table, const char *line, size_t length)
{
    for (int i = 0; table->agents && i < table->agents->count; i++) {
        struct remote *remote = table->agents->list[i];
        if (!remote->is_node || !remote->frames.open)
            continue;
        size_t begin = frame_begin(&remote->frames, FRAME_SAID);
        wire_put_raw(&remote->frames.stream.out, line, length);
        frame_end(&remote->frames, begin);
    }
}

static bool is_leaving(const struct agents *agents)
{
    for (int i = 0; i < agents->count; i++) {
        if (agents->list[i]->is_node && agents->list[i]->frames.open &&
            !frames_idle(&agents->list[i]->frames))
            return true;
    }
    return false;
}

void agents_conclude(struct table *table, int exit_code)
{
    int64_t deadline = clock_after(LEAVE_SECONDS);
    for (int i = 0; table->agents && i < table->agents->count; i++) {
        struct remote *remote = table->agents->list[i];
        if (remote->is_node && remote->frames.open)
            frame_send_numbers(&remote->frames, FRAME_OUTCOME, 1, &exit_code);
    }
    while (table->agents && is_leaving(table->agents) && clock_now() < deadline)
        uv_run(&table->loop, UV_RUN_ONCE); /* the timer of the agents wakes it */
}
