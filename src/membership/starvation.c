/* starvation.c - a job that waits for seats. */
#include "membership/starvation.h"
#include "membership/actions.h"

#include "base/clock.h"

#define SAY_INTERVAL (30 * CLOCK_SECOND)

/* Seats that are free now or later, if no host is added. */
static int count_possible(const struct membership *m)
{
    int count = 0;
    for (int i = 0; i < m->host_count; i++) {
        for (int j = 0; j < m->hosts[i].offered && m->hosts[i].out_until != NEVER; j++)
            count += !m->hosts[i].seats[j].closed && !m->hosts[i].seats[j].left;
    }
    return count;
}

void starve(struct membership *m, int64_t now, int seats, int needed)
{
    struct cause cause = {m->cause.slot, m->cause.exit_code ? m->cause.exit_code : EXIT_TEMPORARY};
    int possible = count_possible(m);
    if (m->config.listed && possible < needed) {
        action_finish(m, &cause, MEMBERSHIP_TERM, "the job needs %d slots, and there are only %d", needed,
                      possible);
        return;
    }
    if (m->starved == NEVER)
        m->starved = m->said = now;
    int64_t end = time_add(m->starved, m->config.timeout);
    if (now >= end) {
        action_finish(m, &cause, MEMBERSHIP_TERM,
                      "the job needs %d slots and has had %d for %lld s; see --min-np and --elastic-timeout",
                      needed, seats, (long long)(m->config.timeout / CLOCK_SECOND));
        return;
    }
    if (now >= time_add(m->said, SAY_INTERVAL)) {
        m->said = now;
        action_say(m, "waiting for slots: %d of the %d that the job needs", seats, needed);
    }
    wake_at(m, end);
    wake_at(m, time_add(m->said, SAY_INTERVAL));
}
