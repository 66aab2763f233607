/* status_hosts.c - see status_hosts.h. An agent that is asked before it has processes of its own looks at the
 * pages of all processes of its user. */
#include "status_hosts.h"
#include "agents.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <unistd.h>

#define TICK_MILLISECONDS 50
#define HOST_SECONDS      15.0 /* within which a host answers, ssh included */

struct asked {
    struct table table; /* the first member: a pointer to one is a pointer to the other */
    enum stacks stacks; /* of which ranks */
    struct rank_view *views;
    int count;
};

static void keep(struct asked *asked, struct wire_reader *body)
{
    struct rank_view view = {0};
    struct rank_view *list = reallocarray(asked->views, (size_t)asked->count + 1, sizeof *list);
    if (list)
        asked->views = list;
    wire_get_u32(body);
    if (list && rank_view_get(&view, clock_now(), body))
        asked->views[asked->count++] = view;
    else
        rank_view_free(&view);
}

static void receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    if (kind == FRAME_READY && remote->state == REMOTE_CALLED && remote_get_release(remote, body)) {
        remote->state = REMOTE_PREPARED;
        frame_send_numbers(frames, FRAME_LOOK, 2, (int[]){1, (int)((struct asked *)remote->table)->stacks});
    } else if (kind == FRAME_RANK_VIEW && remote->state == REMOTE_PREPARED) {
        keep((struct asked *)remote->table, body);
    } else if (kind == FRAME_LOOKED) {
        remote_end(remote);
    }
}

/* Keeps why a host can't be used; returns true if its answer is missing. */
static bool waits(struct remote *remote, bool late)
{
    char why[FAULT_LIMIT];
    if (remote->state == REMOTE_ENDED || *remote->fault)
        return false;
    if (remote_has_ended(remote)) {
        remote_explain(remote, why, sizeof why);
        remote_fail(remote, 1, "%s", why);
    } else if (late) {
        remote_fail(remote, 1, "it does not answer within %g s", HOST_SECONDS);
    }
    return !*remote->fault;
}

static bool any_waits(struct agents *agents)
{
    bool late = clock_now() > agents->deadline, any = false;
    for (int i = 0; i < agents->count; i++)
        any = waits(&agents->list[i], late) || any;
    return any;
}

/* Only wakes the loop. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

static hvd_code call_all(struct table *table, hvd_status *status)
{
    size_t count = (size_t)table->hosts->count;
    TRY(table_open(table, status));
    struct agents *agents = table->agents = calloc(1, sizeof *agents);
    if (!agents || !(agents->list = calloc(count, sizeof *agents->list)))
        return status_no_memory(status);
    agents->deadline = clock_after(HOST_SECONDS);
    uv_timer_init(&table->loop, &agents->timer);
    uv_timer_start(&agents->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (size_t i = 0; i < count; i++) {
        struct remote *remote = &agents->list[agents->count++];
        *remote = (struct remote){.table = table, .host = &table->hosts->list[i], .errors.file = -1};
        remote_call(remote, receive);
    }
    return HVD_OK;
}

struct rank_view *status_hosts_look(const struct status_hosts *where, enum stacks stacks, int *count,
                                    int *failed)
{
    struct asked asked = {.table = {.options = where->options,
                                    .settings = where->settings,
                                    .hosts = where->hosts,
                                    .starter = &agents_starter,
                                    .guard = where->guard,
                                    .function = -1},
                          .stacks = stacks};
    struct table *table = &asked.table;
    hvd_status status;
    *count = 0;
    *failed = where->hosts->count;
    where->guard->parent = getppid();
    if (uv_loop_init(&table->loop))
        return NULL;
    if (call_all(table, &status) == HVD_OK) {
        while (any_waits(table->agents))
            uv_run(&table->loop, UV_RUN_ONCE);
        *failed = 0;
        for (int i = 0; i < table->agents->count; i++) {
            const struct remote *remote = &table->agents->list[i];
            if (!*remote->fault)
                continue;
            say(table, "host %s: %s", remote->host->name, remote->fault);
            ++*failed;
        }
    } else {
        fprintf(stderr, "horovodrun: %s\n", status.text);
    }
    table_close(table);
    *count = asked.count;
    return asked.views;
}
