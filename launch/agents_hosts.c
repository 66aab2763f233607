/* agents_hosts.c - the connections to the hosts of a job. One thread, the loop's. */
#include "agents_hosts.h"
#include "agents_prepare.h"

#include "base/clock.h"
#include "base/status.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct remote *agents_add(struct table *table, int host)
{
    struct agents *agents = table->agents;
    struct remote **list = reallocarray(agents->list, (size_t)agents->count + 1, sizeof *list);
    if (!list)
        return NULL;
    agents->list = list;
    struct remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return NULL;
    remote->table = table;
    remote->host = host;
    remote->errors.file = -1;
    remote->deadline = clock_after(table->settings->start_timeout_seconds);
    return list[agents->count++] = remote;
}

struct remote *agents_of_host(const struct agents *agents, int host)
{
    for (int i = agents->count - 1; i >= 0; i--) {
        if (agents->list[i]->host == host)
            return agents->list[i];
    }
    return NULL;
}

/* ---- hosts that leave ---------------------------------------------------------------------------------- */

static void release(struct remote *remote)
{
    if (remote->released || remote->state == REMOTE_ENDED)
        return;
    remote->released = true;
    if (remote->state == REMOTE_STARTED) {
        frame_send(&remote->frames, FRAME_RELEASE);
        return;
    }
    remote_end(remote);
    if (remote->running)
        kill(remote->pid, SIGTERM); /* it may wait for a host that does not answer */
}

static bool has_processes(const struct table *table, const struct remote *remote)
{
    for (int i = 0; i < table->count; i++) {
        if (table->list[i]->remote == remote && !table->list[i]->gone)
            return true;
    }
    return false;
}

void agents_release(struct table *table, int host)
{
    struct remote *remote = agents_of_host(table->agents, host);
    if (remote)
        release(remote);
}

/* Frees the connection once the loop uses its memory no longer, which is one turn after it was closed. */
static bool free_ended(struct table *table, struct remote *remote)
{
    if (remote->state != REMOTE_ENDED || !remote_has_ended(remote))
        return false;
    if (!remote->closed) {
        frames_close(&remote->frames);
        output_close(&remote->errors);
        remote->closed = true;
        return false;
    }
    remote_host(remote)->ahead = remote->look.ahead;
    for (int i = 0; i < table->count; i++) {
        if (table->list[i]->remote == remote)
            table->list[i]->remote = NULL;
    }
    remote_free(remote);
    free(remote);
    return true;
}

/* ---- hosts that join ----------------------------------------------------------------------------------- */

static void report(struct remote *remote, enum event_kind kind)
{
    struct table *table = remote->table;
    remote->reported = true;
    table->happened(table, &(struct event){.kind = kind, .host = remote->host});
}

/* A host that can't be used is tried again and again, and is named once. */
static void prepare(struct remote *remote)
{
    struct host *host = remote_host(remote);
    bool prepared = agents_prepare_one(remote);
    if (prepared) {
        memcpy(host->identity, remote->identity, sizeof host->identity);
        host->complained = false;
        report(remote, EVENT_HOST_PREPARED);
    } else if (*remote->fault) {
        if (!host->complained)
            agents_prepare_complain(remote);
        host->complained = true;
        release(remote);
        report(remote, EVENT_HOST_UNUSABLE);
    }
}

void agents_hosts_turn(struct table *table)
{
    struct agents *agents = table->agents;
    int kept = 0;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = agents->list[i];
        if (table->ending || (remote->leaving && !has_processes(table, remote)))
            release(remote);
        else if (!remote->reported)
            prepare(remote);
    }
    for (int i = 0; i < agents->count; i++) {
        if (!free_ended(table, agents->list[i]))
            agents->list[kept++] = agents->list[i];
    }
    agents->count = kept;
}
