/* starts.c - starts processes at free seats, and plans the ranks that they are to assume. */
#include "membership/starts.h"
#include "membership/actions.h"
#include "membership/roster.h"
#include "membership/slots.h"
#include "membership/starvation.h"

#include <stdlib.h>

/* ---- seats --------------------------------------------------------------------------------------------- */

/* Returns true if a process may be started at the seat now or, if it is in use or must pause, later. */
static bool is_open(const struct host *host, int seat, int64_t now)
{
    return host->state == HOST_PREPARED && !host_is_out(host, now) && seat < host->offered &&
           !host->seats[seat].closed && !host->seats[seat].left;
}

static int count_open(const struct membership *m, int64_t now)
{
    int count = 0;
    for (int i = 0; i < m->host_count; i++) {
        for (int j = 0; j < m->hosts[i].offered; j++)
            count += is_open(&m->hosts[i], j, now);
    }
    return count;
}

/* ---- epoch 0 ------------------------------------------------------------------------------------------- */

static void start(struct membership *m, int slot, int rank)
{
    struct membership_action *action = action_add(m, MEMBERSHIP_START);
    action->slot = slot;
    action->host = slot_of(m, slot)->host;
    action->seat = slot_of(m, slot)->seat;
    action->rank = rank;
}

/* Seats that discovery has named, whether their hosts can be used or not. */
static int count_offered(const struct membership *m)
{
    int count = 0;
    for (int i = 0; i < m->host_count; i++)
        count += m->hosts[i].offered;
    return count;
}

/* Returns true if a host is being prepared whose seats come before the last one that would be used now. */
static bool host_is_awaited(const struct membership *m, int64_t now)
{
    int seats = 0;
    for (int i = 0; i < m->host_count && seats < m->config.max; i++) {
        if (m->hosts[i].state == HOST_PREPARING && m->hosts[i].offered > 0)
            return true;
        for (int j = 0; j < m->hosts[i].offered; j++)
            seats += is_open(&m->hosts[i], j, now);
    }
    return false;
}

/* A host that does not answer delays the first epoch for `prepare` only: it joins later as any other one. */
static bool has_enough(struct membership *m, int64_t now, int seats)
{
    int needed = count_offered(m) < m->config.start ? m->config.start : m->config.min;
    if (seats < needed || seats < 1) {
        m->enough = NEVER;
        starve(m, now, seats, needed);
        return false;
    }
    if (m->enough == NEVER)
        m->enough = now;
    int64_t end = m->config.fixed ? NEVER : time_add(m->enough, m->config.prepare);
    if (now >= end || (seats >= m->config.start && !host_is_awaited(m, now)))
        return true;
    wake_at(m, end);
    return false;
}

void starts_first(struct membership *m, int64_t now)
{
    int seats = count_open(m, now);
    int size = seats < m->config.max ? seats : m->config.max;
    if (!has_enough(m, now, seats))
        return;
    m->ranks = calloc((size_t)size, sizeof *m->ranks);
    if (!m->ranks) {
        m->no_memory = true;
        return;
    }
    for (int i = 0; i < m->host_count; i++) {
        for (int j = 0; j < m->hosts[i].offered && m->size < size; j++) {
            int slot = is_open(&m->hosts[i], j, now) ? slot_add(m, i, j, SLOT_IN) : -1;
            if (slot < 0)
                continue;
            slot_of(m, slot)->holds_state = true; /* what all start with */
            m->ranks[m->size++] = (struct membership_rank){slot, i, j, true};
        }
    }
    m->epoch = 0;
    m->starved = NEVER;
    action_add(m, MEMBERSHIP_EPOCH);
    for (int rank = 0; rank < m->size; rank++)
        start(m, m->ranks[rank].slot, rank);
}

/* ---- newcomers ----------------------------------------------------------------------------------------- */

void starts_settle(struct membership *m, int64_t now)
{
    int first = m->next_slot, living = 0, planned = 0;
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        if (slot_is_newcomer(slot) && !slot_seat_is_offered(m, slot, now))
            slot_end(m, now, slot->number, MEMBERSHIP_TERM, slot_why_removed(slot));
        living += (slot_is_newcomer(slot) || slot_is_member(slot)) && slot_seat_is_offered(m, slot, now);
    }
    for (int i = 0; i < m->host_count && !m->finishing; i++) {
        for (int j = 0; j < m->hosts[i].offered && living < m->config.max + m->config.spares; j++) {
            const struct seat *seat = &m->hosts[i].seats[j];
            if (seat->slot >= 0 || !is_open(&m->hosts[i], j, now))
                continue;
            if (now < seat->retry)
                wake_at(m, seat->retry);
            else if (slot_add(m, i, j, SLOT_STARTING) >= 0)
                living++;
        }
    }
    if (m->next_slot == first)
        return;
    if (m->config.grow_now)
        wake_at(m, now); /* for the notice */
    free(m->planned);
    m->planned = roster_make(m, now, 0, SLOT_STARTING, m->config.max + m->config.spares, &planned);
    m->planned_size = planned < m->config.max ? planned : m->config.max;
    for (int rank = 0; rank < planned; rank++) {
        if (m->planned[rank].slot >= first)
            start(m, m->planned[rank].slot, rank);
    }
}
