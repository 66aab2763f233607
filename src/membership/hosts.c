/* hosts.c - the hosts of a job: which are prepared, which are left out and for how long. */
#include "membership/hosts.h"
#include "membership/actions.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_LIMIT (30 * CLOCK_SECOND)

/* In [0, n); 0 for n <= 0: splitmix64. */
static int64_t draw_below(struct membership *m, int64_t n)
{
    uint64_t x = m->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return n > 0 ? (int64_t)((x ^ (x >> 31)) % (uint64_t)n) : 0;
}

/* The pause doubles each time, and a random part keeps hosts that failed together from returning together. */
int64_t host_draw_pause(struct membership *m, int times)
{
    int64_t pause = m->config.pause[0], limit = m->config.pause[1];
    if (limit <= 0)
        return NEVER;
    for (int i = 0; i < times && pause < limit; i++)
        pause *= 2;
    pause += draw_below(m, m->config.pause[0]);
    return pause < limit ? pause : limit;
}

int64_t retry_pause(int failures)
{
    int64_t pause = CLOCK_SECOND;
    for (int i = 1; i < failures && pause < RETRY_LIMIT; i++)
        pause *= 2;
    return pause < RETRY_LIMIT ? pause : RETRY_LIMIT;
}

static bool has_process(const struct host *host)
{
    for (int i = 0; i < host->seat_count; i++) {
        if (host->seats[i].slot >= 0)
            return true;
    }
    return false;
}

void hosts_settle(struct membership *m, int64_t now)
{
    for (int i = 0; i < m->host_count; i++) {
        struct host *host = &m->hosts[i];
        bool wanted = host->offered > 0 && !host_is_out(host, now);
        if (host->state == HOST_PREPARED && !wanted && !has_process(host)) {
            host->state = HOST_UNPREPARED;
            action_add(m, MEMBERSHIP_RELEASE)->host = i;
        }
        if (host->state != HOST_UNPREPARED || host->offered == 0 || m->finishing)
            continue;
        if (!wanted || now < host->retry) {
            wake_at(m, wanted ? host->retry : host->out_until);
            continue;
        }
        host->state = HOST_PREPARING;
        action_add(m, MEMBERSHIP_PREPARE)->host = i;
    }
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static struct host *add_host(struct membership *m, const char *name)
{
    struct host *hosts = realloc(m->hosts, ((size_t)m->host_count + 1) * sizeof *hosts);
    if (!hosts)
        return NULL;
    m->hosts = hosts;
    hosts[m->host_count] = (struct host){.name = strdup(name), .out_until = INT64_MIN, .retry = INT64_MIN};
    return hosts[m->host_count].name ? &hosts[m->host_count++] : NULL;
}

static struct host *find_host(const struct membership *m, const char *name)
{
    for (int i = 0; i < m->host_count; i++) {
        if (strcmp(m->hosts[i].name, name) == 0)
            return &m->hosts[i];
    }
    return NULL;
}

static bool offer(struct host *host, int slots)
{
    if (slots > 0 && slots > host->seat_count) {
        struct seat *seats = realloc(host->seats, (size_t)slots * sizeof *seats);
        if (!seats)
            return false;
        for (int i = host->seat_count; i < slots; i++)
            seats[i] = (struct seat){.slot = -1, .retry = INT64_MIN};
        host->seats = seats;
        host->seat_count = slots;
    }
    host->offered = slots;
    return true;
}

bool hosts_offer(struct membership *m, const struct membership_host *hosts, int count)
{
    for (int i = 0; i < m->host_count; i++)
        m->hosts[i].offered = 0;
    for (int i = 0; i < count; i++) {
        struct host *host = find_host(m, hosts[i].name);
        if (!host)
            host = add_host(m, hosts[i].name);
        if (!host || !offer(host, host->offered + (hosts[i].slots > 0 ? hosts[i].slots : 0)))
            return false;
    }
    for (int i = 0; i < m->host_count; i++) {
        for (int j = m->hosts[i].offered; j < m->hosts[i].seat_count; j++)
            m->hosts[i].seats[j].left = false;
    }
    return true;
}

void host_answers(struct membership *m, int64_t now, int number, bool prepared)
{
    struct host *host = &m->hosts[number];
    if (host->state != HOST_PREPARING)
        return;
    host->state = prepared ? HOST_PREPARED : HOST_UNPREPARED;
    host->refusals = prepared ? 0 : host->refusals + 1;
    host->retry = prepared ? now : time_add(now, retry_pause(host->refusals));
}
