/* starvation.c - a job that waits for seats. */
#include "membership/starvation.h"
#include "membership/actions.h"

#include "base/clock.h"

#define SAY_INTERVAL (30 * CLOCK_SECOND)

void starve(struct membership *m, int64_t now, int seats, int needed)
{
    if (m->starved == NEVER)
        m->starved = m->said = now;
    int64_t end = time_add(m->starved, m->config.timeout);
    if (now >= end) {
        struct cause cause = {m->cause.slot, m->cause.exit_code ? m->cause.exit_code : EXIT_TEMPORARY};
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
