/* slots.c - the processes of a job. */
#include "membership/slots.h"
#include "membership/actions.h"

#include <stdlib.h>

bool slot_seat_is_offered(const struct membership *m, const struct slot *slot, int64_t now)
{
    const struct host *host = &m->hosts[slot->host];
    return slot->seat < host->offered && !host_is_out(host, now);
}

int slot_add(struct membership *m, int host, int seat, enum slot_state state)
{
    struct slot *slots = realloc(m->slots, ((size_t)m->slot_count + 1) * sizeof *slots);
    if (!slots) {
        m->no_memory = true;
        return -1;
    }
    m->slots = slots;
    slots[m->slot_count] = (struct slot){.state = state, .host = host, .seat = seat, .lost_rank = -1};
    m->hosts[host].seats[seat].slot = m->slot_count;
    return m->slot_count++;
}

void slot_lose(struct membership *m, int64_t now, int number, enum slot_state state)
{
    struct slot *slot = &m->slots[number];
    if (slot_is_member(slot)) {
        m->broken = true;
        m->lost = m->moved = now;
    }
    slot->state = state;
    if (state == SLOT_GONE)
        m->hosts[slot->host].seats[slot->seat].slot = -1;
}

void slot_dismiss(struct membership *m, int number, enum membership_step step, enum membership_why why)
{
    struct membership_action *action = action_add(m, MEMBERSHIP_END);
    m->slots[number].state = SLOT_LEAVING;
    action->slot = number;
    action->step = step;
    action->why = why;
}

void slot_end(struct membership *m, int64_t now, int number, enum membership_step step,
              enum membership_why why)
{
    slot_lose(m, now, number, SLOT_LEAVING);
    slot_dismiss(m, number, step, why);
}
