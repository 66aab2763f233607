/* slots.c - the processes of a job. */
#include "membership/slots.h"
#include "membership/actions.h"

#include <stdlib.h>

bool slot_seat_is_offered(const struct membership *m, const struct slot *slot, int64_t now)
{
    const struct host *host = &m->hosts[slot->host];
    return slot->seat < host->offered && !slot->leaves && !host_is_out(host, now);
}

int slot_add(struct membership *m, int host, int seat, enum slot_state state)
{
    struct slot *slots = realloc(m->slots, ((size_t)m->slot_count + 1) * sizeof *slots);
    if (!slots) {
        m->no_memory = true;
        return -1;
    }
    m->slots = slots;
    slots[m->slot_count++] =
        (struct slot){.number = m->next_slot, .state = state, .host = host, .seat = seat, .lost_rank = -1};
    m->hosts[host].seats[seat].slot = m->next_slot;
    return m->next_slot++;
}

struct slot *slot_of(const struct membership *m, int number)
{
    int first = 0, end = m->slot_count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (m->slots[middle].number < number)
            first = middle + 1;
        else
            end = middle;
    }
    return first < m->slot_count && m->slots[first].number == number ? &m->slots[first] : NULL;
}

static bool is_in_epoch(const struct membership *m, int number)
{
    for (int rank = 0; rank < m->size; rank++) {
        if (m->ranks[rank].slot == number)
            return true;
    }
    return false;
}

void slots_forget(struct membership *m)
{
    int kept = 0;
    for (int i = 0; i < m->slot_count; i++) {
        if (m->slots[i].state != SLOT_GONE || is_in_epoch(m, m->slots[i].number))
            m->slots[kept++] = m->slots[i];
    }
    m->slot_count = kept;
}

void slot_lose(struct membership *m, int64_t now, int number, enum slot_state state)
{
    struct slot *slot = slot_of(m, number);
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
    slot_of(m, number)->state = SLOT_LEAVING;
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
