/* epochs.c - when an epoch ends and the next begins, and who is in it. */
#include "membership/epochs.h"
#include "membership/actions.h"
#include "membership/failures.h"
#include "membership/roster.h"
#include "membership/slots.h"
#include "membership/starvation.h"

#include "base/clock.h"

#include <stdlib.h>

#define RECONNECT_WINDOW (60 * CLOCK_SECOND)

struct census {
    int in, waiting; /* members */
    int done;        /* that have not ended */
    int staying;     /* members whose seats are offered */
    int holders;     /* of the staying: those that may hold the state */
    int starting, ready;
    int awaited; /* starting newcomers for which the members wait */
    int kept;    /* members of the next epoch whose seats are not offered */
    int joining; /* newcomers of the next epoch */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Members whose seats were removed leave only if the others are enough, and one of them holds the state. */
static void plan(const struct membership *m, struct census *census)
{
    int leaving = census->in + census->waiting - census->staying;
    census->kept = census->holders ? 0 : least(leaving, 1);
    int room = m->config.max - census->staying - census->kept;
    census->joining = m->finishing || room <= 0 ? 0 : least(census->ready, room);
    int missing = m->config.min - census->staying - census->joining;
    if (missing > census->kept)
        census->kept = least(leaving, missing);
}

static struct census take_census(const struct membership *m, int64_t now)
{
    struct census census = {0};
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        bool offered = slot_lives(slot) && slot_seat_is_offered(m, slot, now);
        census.in += slot->state == SLOT_IN;
        census.waiting += slot->state == SLOT_WAITING;
        census.done += slot->state == SLOT_DONE;
        census.starting += slot->state == SLOT_STARTING;
        census.awaited += slot->state == SLOT_STARTING && offered && !slot->late && m->config.grow_now;
        census.ready += slot->state == SLOT_READY && offered;
        census.staying += slot_is_member(slot) && offered;
        census.holders += slot_is_member(slot) && offered && slot_may_hold_state(m, slot);
    }
    plan(m, &census);
    int room = m->config.max - census.staying - census.kept - census.joining;
    census.awaited = m->finishing || room <= 0 ? 0 : least(census.awaited, room);
    return census;
}

/* ---- the next epoch ------------------------------------------------------------------------------------ */

static void notify(struct membership *m, unsigned change)
{
    if ((m->noticed | change) == m->noticed)
        return;
    m->noticed |= change;
    action_add(m, MEMBERSHIP_NOTICE)->change = m->noticed;
}

static void enter(struct membership *m, struct membership_rank *ranks, int size)
{
    for (int rank = 0; rank < size; rank++) {
        struct slot *slot = slot_of(m, ranks[rank].slot);
        slot->state = SLOT_IN;
        slot->lost_rank = -1;
        slot->warned = false;
    }
    for (int i = 0; i < m->slot_count; i++)
        m->slots[i].late = m->slots[i].state == SLOT_STARTING;
    m->epoch++;
    m->broken = false;
    m->noticed = 0;
    m->gathering = m->starved = NEVER;
    m->cause = (struct cause){.slot = -1};
    action_add(m, MEMBERSHIP_EPOCH);
    for (int rank = 0; rank < m->size; rank++) {
        const struct slot *slot = slot_of(m, m->ranks[rank].slot);
        if (slot->state == SLOT_WAITING)
            slot_dismiss(m, slot->number, MEMBERSHIP_OWN, slot_why_removed(slot));
    }
    free(m->ranks);
    m->ranks = ranks;
    m->size = size;
}

static bool holds_state(const struct membership *m, const struct membership_rank *ranks, int size)
{
    for (int rank = 0; rank < size; rank++) {
        if (slot_may_hold_state(m, slot_of(m, ranks[rank].slot)))
            return true;
    }
    return false;
}

static void finish_for_cause(struct membership *m, const char *text)
{
    struct cause cause = {m->cause.slot, m->cause.exit_code ? m->cause.exit_code : EXIT_TEMPORARY};
    action_finish(m, &cause, MEMBERSHIP_TERM, "%s", text);
}

/* The same follows as from a failure. */
static void put_out(struct membership *m, int64_t now, int slot, enum membership_step step,
                    enum membership_why why)
{
    slot_end(m, now, slot, step, why);
    if (!m->cause.exit_code)
        m->cause = (struct cause){slot, 1};
    slot_failed(m, now, slot, true);
}

/* Notes when an epoch follows that has the same members. */
static void count_reconnect(struct membership *m, int64_t now, const struct membership_rank *ranks, int size)
{
    bool same = size == m->size && !(m->noticed & (MEMBERSHIP_LESS | MEMBERSHIP_MORE));
    for (int rank = 0; same && rank < size; rank++)
        same = ranks[rank].slot == m->ranks[rank].slot;
    for (int i = RECONNECTS - 1; i >= 0; i--)
        m->reconnects[i] = !same ? NEVER : i > 0 ? m->reconnects[i - 1] : now;
}

/* Whether as many epochs that changed nothing follow each other within a minute. */
static bool has_reconnected(const struct membership *m, int64_t now, int times)
{
    int64_t first = m->reconnects[times - 1];
    return first != NEVER && now - first < RECONNECT_WINDOW;
}

/* Returns the member that most others have lost, if connections between the same members have broken for the
 * third time within a minute; otherwise -1. */
static int find_cut_off(const struct membership *m, int64_t now, const struct membership_rank *ranks,
                        int size)
{
    int worst = -1, most = 0;
    bool again = has_reconnected(m, now, 3);
    for (int rank = 0; again && rank < size; rank++) {
        int count = 0;
        for (int i = 0; i < size; i++)
            count += i != rank && slot_of(m, ranks[i].slot)->lost_rank == rank;
        if (count && count >= most) {
            worst = ranks[rank].slot;
            most = count;
        }
    }
    return worst;
}

static void begin(struct membership *m, int64_t now, const struct census *census)
{
    int size = 0;
    int64_t patience = time_add(m->moved, m->config.rejoin);
    if (census->awaited && now < patience) {
        wake_at(m, patience);
        return;
    }
    struct membership_rank *ranks = roster_make(m, now, census->kept, SLOT_READY, m->config.max, &size);
    if (!ranks)
        return;
    int cut_off;
    count_reconnect(m, now, ranks, size);
    if (!holds_state(m, ranks, size)) {
        finish_for_cause(m, "no rank is left that holds the state of the training");
    } else if (size < m->config.min && !m->finishing) {
        starve(m, now, size, m->config.min);
    } else if (m->config.reset_limit >= 0 && m->epoch >= m->config.reset_limit) {
        action_finish(m, &(struct cause){-1, 1}, MEMBERSHIP_TERM,
                      "Horovod was shutdown because number of resets during elastic job exceeded limit: %d",
                      m->config.reset_limit);
    } else if ((cut_off = find_cut_off(m, now, ranks, size)) >= 0) {
        put_out(m, now, cut_off, MEMBERSHIP_TERM, MEMBERSHIP_CUT_OFF);
        wake_at(m, now);
    } else if (has_reconnected(m, now, RECONNECTS)) {
        action_finish(
            m, &(struct cause){-1, 1}, MEMBERSHIP_TERM,
            "the same ranks have started again %d times within a minute, though none was lost: they "
            "fail at the same place each time",
            RECONNECTS);
    } else {
        enter(m, ranks, size);
        return;
    }
    free(ranks);
}

static bool all_have_lost(const struct membership *m, int rank, const struct census *census)
{
    int count = 0;
    for (int i = 0; i < m->size; i++) {
        const struct slot *slot = slot_of(m, m->ranks[i].slot);
        count += slot->state == SLOT_WAITING && slot->lost_rank == rank;
    }
    return count > 0 && count == census->waiting;
}

static void warn_late(struct membership *m, int64_t now, struct slot *slot)
{
    int64_t half = m->config.rejoin / 2;
    if (slot->warned)
        return;
    if (now < time_add(m->moved, half)) {
        wake_at(m, time_add(m->moved, half));
        return;
    }
    slot->warned = true;
    action_say(m, "all wait for process %d for %lld s; it is ended after %lld s, see --rejoin-seconds",
               slot->number, (long long)(half / CLOCK_SECOND), (long long)(m->config.rejoin / CLOCK_SECOND));
}

/* A program that has not entered may still be loading; and if no rank waits, all may be computing. One that
 * all have lost is stopped or cut off: SIGTERM would not reach it. */
static void end_hung(struct membership *m, int64_t now, const struct census *census)
{
    for (int rank = 0; rank < m->size; rank++) {
        int number = m->ranks[rank].slot;
        struct slot *slot = slot_of(m, number);
        bool expected = slot->entered && census->waiting;
        bool silent = expected && all_have_lost(m, rank, census);
        int64_t limit = silent ? m->config.silent : expected ? m->config.rejoin : m->config.timeout;
        if (slot->state != SLOT_IN)
            continue;
        if (now >= time_add(m->moved, limit)) {
            put_out(m, now, number, silent ? MEMBERSHIP_KILL : MEMBERSHIP_TERM, MEMBERSHIP_HUNG);
            wake_at(m, now);
            continue;
        }
        if (expected && !silent)
            warn_late(m, now, slot);
        wake_at(m, time_add(m->moved, limit));
    }
}

/* ---- changes ------------------------------------------------------------------------------------------- */

/* Newcomers of one change join together, unless some of them take too long. */
static bool have_gathered(struct membership *m, int64_t now, const struct census *census)
{
    if (census->awaited)
        return true;
    if (!census->joining) {
        m->gathering = NEVER;
        return false;
    }
    if (m->gathering == NEVER)
        m->gathering = now;
    int64_t end = time_add(m->gathering, m->config.gather);
    if (census->starting && now < end) {
        wake_at(m, end);
        return false;
    }
    return true;
}

static void notice_changes(struct membership *m, int64_t now, const struct census *census)
{
    if (m->finishing)
        return;
    unsigned change = have_gathered(m, now, census) ? MEMBERSHIP_MORE : 0;
    if (census->staying + census->kept < census->in && (change || !census->joining))
        change |= MEMBERSHIP_LESS;
    notify(m, change);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void end_without_members(struct membership *m, const struct census *census)
{
    if (census->done)
        return; /* they end by themselves */
    if (m->failed.exit_code)
        action_finish(m, &m->failed, MEMBERSHIP_TERM, "%s", "");
    else if (m->cause.exit_code && !m->finishing)
        finish_for_cause(m, "no rank is left that holds the state of the training");
    else if (!m->finishing && m->entered)
        action_finish(m, &(struct cause){-1, 1}, MEMBERSHIP_TERM,
                      "all ranks have ended, and none has reported that its work is complete");
    else
        action_finish(m, &m->cause, m->cause.exit_code ? MEMBERSHIP_TERM : MEMBERSHIP_KEEP, "%s", "");
}

void epochs_settle(struct membership *m, int64_t now)
{
    struct census census = take_census(m, now);
    if (!census.in && !census.waiting) {
        end_without_members(m, &census);
        return;
    }
    if (m->broken)
        notify(m, MEMBERSHIP_LOST);
    if (!m->broken)
        notice_changes(m, now, &census);
    else if (census.in)
        end_hung(m, now, &census);
    else if (now < time_add(m->lost, m->config.settle))
        wake_at(m, time_add(m->lost, m->config.settle));
    else
        begin(m, now, &census);
}
