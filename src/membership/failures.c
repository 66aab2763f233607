/* failures.c - what follows from the failure of a process, or the loss of a host. */
#include "membership/failures.h"
#include "membership/actions.h"
#include "membership/hosts.h"
#include "membership/slots.h"

/* Leaves a host out for its next pause. */
static void leave_out(struct membership *m, int64_t now, int number)
{
    struct host *host = &m->hosts[number];
    host->times_out++;
    host->out_until = time_add(now, host_draw_pause(m, host->times_out));
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        if (slot->host == number && (slot_is_member(slot) || slot_is_newcomer(slot)))
            slot_end(m, now, slot->number, MEMBERSHIP_OWN, MEMBERSHIP_HOST_OUT);
    }
}

void host_lose(struct membership *m, int64_t now, int number)
{
    struct host *host = &m->hosts[number];
    if (host->state != HOST_PREPARED) {
        host_answers(m, now, number, false);
        return;
    }
    host->state = HOST_UNPREPARED;
    for (int i = 0; i < m->slot_count; i++) {
        if (m->slots[i].host == number && m->slots[i].state != SLOT_GONE)
            slot_lose(m, now, m->slots[i].number, SLOT_GONE);
    }
    host->times_out++;
    host->out_until = time_add(now, host_draw_pause(m, host->times_out));
}

/* Returns true if another host, which is offered, has a member that may hold the state. */
static bool another_host_has_members(const struct membership *m, int64_t now, int host)
{
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        if (slot->host != host && slot_is_member(slot) && slot_may_hold_state(m, slot) &&
            slot_seat_is_offered(m, slot, now))
            return true;
    }
    return false;
}

static bool host_has_members(const struct membership *m, int host)
{
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        if (slot->host == host && (slot_is_member(slot) || slot->state == SLOT_DONE))
            return true;
    }
    return false;
}

/* Returns true if that was once too often. */
static bool count_failure(const struct membership *m, int64_t now, struct seat *seat)
{
    if (now - seat->counted > MEMBERSHIP_RESTARTS_WINDOW) {
        seat->failures = 0;
        seat->counted = now;
    }
    seat->failures++;
    seat->retry = time_add(now, retry_pause(seat->failures));
    return seat->failures > m->config.restarts;
}

static void close_seat(struct membership *m, const struct slot *slot)
{
    struct host *host = &m->hosts[slot->host];
    struct seat *seat = &host->seats[slot->seat];
    if (seat->closed)
        return;
    seat->closed = true;
    action_say(m, "slot %d of %.100s has failed %d times and is no longer used", slot->seat, host->name,
               seat->failures);
}

void seat_failed(struct membership *m, int64_t now, int number)
{
    const struct slot *slot = slot_of(m, number);
    if (count_failure(m, now, &m->hosts[slot->host].seats[slot->seat]))
        close_seat(m, slot);
}

/* The host of a failed process is left out if that leaves members elsewhere. Otherwise another process gets
 * the seat, until the seat has had too many failures. */
void slot_failed(struct membership *m, int64_t now, int number, bool member)
{
    const struct slot *slot = slot_of(m, number);
    bool can_go = member ? another_host_has_members(m, now, slot->host) : !host_has_members(m, slot->host);
    bool too_often = count_failure(m, now, &m->hosts[slot->host].seats[slot->seat]);
    if ((can_go || (member && m->config.drop_last)) && (too_often || !m->config.restart))
        leave_out(m, now, slot->host);
    else if (too_often)
        close_seat(m, slot);
}
