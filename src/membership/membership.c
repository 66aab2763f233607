/* membership.c - the inputs of the state machine: each changes the state of a host or a process; then
 * what follows is decided from the state of all. */
#include "membership/membership.h"
#include "membership/actions.h"
#include "membership/epochs.h"
#include "membership/failures.h"
#include "membership/hosts.h"
#include "membership/slots.h"
#include "membership/starts.h"

#include <stdlib.h>

struct membership *membership_new(const struct membership_config *config)
{
    struct membership *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->config = *config;
    m->random = config->seed;
    m->epoch = -1;
    m->enough = m->gathering = m->starved = m->deadline = NEVER;
    for (int i = 0; i < RECONNECTS; i++)
        m->reconnects[i] = NEVER;
    m->cause.slot = m->failed.slot = -1;
    return m;
}

void membership_free(struct membership *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->host_count; i++) {
        free(m->hosts[i].name);
        free(m->hosts[i].seats);
    }
    free(m->hosts);
    free(m->slots);
    free(m->ranks);
    free(m->planned);
    free(m->actions);
    free(m);
}

/* Decides anew what is to be done. */
static void settle(struct membership *m, int64_t now)
{
    m->deadline = NEVER;
    if (m->finished)
        return;
    if (m->epoch < 0) {
        hosts_settle(m, now);
        starts_first(m, now);
    } else if (!m->config.fixed) {
        int epoch;
        hosts_settle(m, now);
        do {
            epoch = m->epoch;
            epochs_settle(m, now);
        } while (m->epoch != epoch);
        if (!m->finished)
            starts_settle(m, now);
        slots_forget(m);
    }
    if (m->no_memory && !m->finished)
        action_finish(m, &(struct cause){-1, 1}, MEMBERSHIP_TERM, "out of memory");
}

/* ---- hosts --------------------------------------------------------------------------------------------- */

void membership_discovered(struct membership *m, int64_t now, const struct membership_host *hosts, int count)
{
    m->no_memory |= !hosts_offer(m, hosts, count);
    settle(m, now);
}

void membership_host_prepared(struct membership *m, int64_t now, int host)
{
    if (host >= 0 && host < m->host_count)
        host_answers(m, now, host, true);
    settle(m, now);
}

void membership_host_failed(struct membership *m, int64_t now, int host)
{
    if (host >= 0 && host < m->host_count)
        host_answers(m, now, host, false);
    settle(m, now);
}

void membership_host_lost(struct membership *m, int64_t now, int host, bool silent)
{
    /* Ranks that reach a silent host must have ended when its agent kills its ranks; those of a job that is
     * ending already have their own time. */
    if (m->config.fixed) {
        membership_stop(m, now, 1, silent && !m->finished ? MEMBERSHIP_TERM : MEMBERSHIP_OWN);
        return;
    }
    if (host >= 0 && host < m->host_count) {
        host_lose(m, now, host);
        if (m->lost == now && !m->cause.exit_code)
            m->cause = (struct cause){-1, EXIT_TEMPORARY};
    }
    settle(m, now);
}

/* ---- processes ----------------------------------------------------------------------------------------- */

/* No newcomers any more: those that there are end. */
static void begin_finish(struct membership *m, int64_t now)
{
    m->finishing = true;
    for (int i = 0; i < m->slot_count; i++) {
        if (slot_is_newcomer(&m->slots[i]))
            slot_end(m, now, m->slots[i].number, MEMBERSHIP_TERM, MEMBERSHIP_OVER);
    }
}

/* The program uses epochs: members that have ended before this was known were lost. */
static void enter_first(struct membership *m, int64_t now)
{
    m->entered = true;
    if (!m->finishing)
        return;
    m->finishing = false;
    m->broken = true;
    m->lost = m->moved = now;
}

/* Another function is trained after the one that has returned. */
static void resume(struct membership *m)
{
    for (int i = 0; i < m->slot_count; i++) {
        if (m->slots[i].state == SLOT_DONE)
            m->slots[i].state = SLOT_IN;
    }
    m->finishing = false;
}

void membership_waits(struct membership *m, int64_t now, int number, const struct membership_wait *wait)
{
    struct slot *slot = slot_of(m, number);
    if (!slot || m->config.fixed || !slot_lives(slot))
        return;
    slot->entered = true;
    if (!m->entered)
        enter_first(m, now);
    if (slot->state == SLOT_DONE && wait->after == m->epoch)
        resume(m);
    if (slot->state == SLOT_STARTING) {
        slot->state = SLOT_READY;
    } else if (slot->state == SLOT_IN && (wait->after == m->epoch || (wait->after < m->epoch && m->broken))) {
        slot->state = SLOT_WAITING;
        m->synced = m->synced || wait->holds_state;
        slot->holds_state = wait->holds_state || (slot->holds_state && wait->after < 0);
        slot->lost_rank = wait->after == m->epoch ? wait->lost_rank : -1;
        m->broken = true; /* it has left: nobody can enter this epoch any more */
        m->moved = now;
    }
    settle(m, now);
}

void membership_done(struct membership *m, int64_t now, int number)
{
    struct slot *slot = slot_of(m, number);
    if (!slot || m->config.fixed || !slot_is_member(slot))
        return;
    slot->state = SLOT_DONE;
    m->entered = true;
    begin_finish(m, now);
    settle(m, now);
}

void membership_leaves(struct membership *m, int64_t now, int number)
{
    struct slot *slot = slot_of(m, number);
    if (!slot || m->config.fixed || !slot_lives(slot))
        return;
    slot->leaves = true;
    m->hosts[slot->host].seats[slot->seat].left = slot->seat < m->hosts[slot->host].offered;
    settle(m, now);
}

void membership_host_leaves(struct membership *m, int64_t now, int host)
{
    if (m->config.fixed || host < 0 || host >= m->host_count)
        return;
    for (int i = 0; i < m->hosts[host].offered; i++)
        m->hosts[host].seats[i].left = true;
    for (int i = 0; i < m->slot_count; i++)
        m->slots[i].leaves = m->slots[i].leaves || m->slots[i].host == host;
    settle(m, now);
}

static void end_of_member(struct membership *m, int64_t now, int number, int exit_code)
{
    slot_lose(m, now, number, SLOT_ENDED);
    if (!exit_code) {
        seat_failed(m, now, number); /* it has left by itself: that says nothing about its host */
        return;
    }
    if (!m->cause.exit_code)
        m->cause = (struct cause){number, exit_code};
    slot_failed(m, now, number, true);
}

void membership_ended(struct membership *m, int64_t now, int number, int exit_code, int signal)
{
    struct slot *slot = slot_of(m, number);
    (void)signal;
    if (!slot || slot->state == SLOT_ENDED || slot->state == SLOT_GONE)
        return;
    enum slot_state before = slot->state;
    slot->state = SLOT_ENDED;
    if (m->config.fixed) {
        /* Failures after the first one follow from it, or from the launcher's own signals. */
        if (exit_code && !m->finished)
            action_finish(m, &(struct cause){number, exit_code}, MEMBERSHIP_OWN, "%s", "");
        return;
    }
    if (before == SLOT_IN && !exit_code && !m->entered) {
        begin_finish(m, now); /* programs that use no epochs report nothing: this one is done */
    } else if (before == SLOT_IN || before == SLOT_WAITING) {
        slot->state = before;
        end_of_member(m, now, number, exit_code);
    } else if (before == SLOT_DONE && exit_code && !m->failed.exit_code) {
        m->failed = (struct cause){number, exit_code};
    } else if (before == SLOT_STARTING || before == SLOT_READY) {
        slot_failed(m, now, number, false);
    }
    settle(m, now);
}

void membership_not_started(struct membership *m, int64_t now, int number, int exit_code)
{
    if (m->config.fixed) {
        membership_stop(m, now, exit_code ? exit_code : 1, MEMBERSHIP_TERM);
        return;
    }
    membership_ended(m, now, number, exit_code ? exit_code : 1, 0);
    membership_gone(m, now, number);
}

void membership_gone(struct membership *m, int64_t now, int number)
{
    struct slot *slot = slot_of(m, number);
    if (!slot || m->config.fixed || slot->state != SLOT_ENDED)
        return;
    slot_lose(m, now, number, SLOT_GONE);
    settle(m, now);
}

/* ---- the job ------------------------------------------------------------------------------------------- */

void membership_stop(struct membership *m, int64_t now, int exit_code, enum membership_step step)
{
    if (!m->finished) {
        action_finish(m, &(struct cause){-1, exit_code}, step, "%s", "");
    } else if (step != MEMBERSHIP_KEEP) {
        struct membership_action *action = action_add(m, MEMBERSHIP_END);
        action->step = step;
        action->why = MEMBERSHIP_OVER;
    }
    settle(m, now);
}

void membership_tick(struct membership *m, int64_t now)
{
    settle(m, now);
}

int64_t membership_deadline(const struct membership *m)
{
    return m->deadline;
}

/* ---- its state ---------------------------------------------------------------------------------------- */

const struct membership_rank *membership_ranks(const struct membership *m, int *epoch, int *size)
{
    *epoch = m->epoch;
    *size = m->size;
    return m->ranks;
}

const struct membership_rank *membership_planned(const struct membership *m, int *size)
{
    *size = m->planned_size;
    return m->planned;
}

int membership_hosts(const struct membership *m)
{
    return m->host_count;
}

const char *membership_host_name(const struct membership *m, int host)
{
    return m->hosts[host].name;
}

bool membership_host_is_out(const struct membership *m, int64_t now, int host)
{
    return host_is_out(&m->hosts[host], now);
}
