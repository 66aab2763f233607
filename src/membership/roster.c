/* roster.c - the ranks of an epoch. */
#include "membership/roster.h"
#include "membership/slots.h"

#include <stdlib.h>

static int by_seat(const void *a, const void *b)
{
    const struct membership_rank *one = a, *other = b;
    return one->host != other->host ? one->host - other->host : one->seat - other->seat;
}

/* Adds the members whose seats are offered, and the first `kept` others that may hold the state. */
static int add_members(const struct membership *m, int64_t now, int kept, struct membership_rank *ranks)
{
    int size = 0;
    for (int rank = 0; rank < m->size; rank++) {
        const struct slot *slot = slot_of(m, m->ranks[rank].slot);
        if (!slot_is_member(slot))
            continue;
        bool stays = slot_seat_is_offered(m, slot, now);
        if (!stays && (kept == 0 || !slot_may_hold_state(m, slot)))
            continue;
        kept -= !stays;
        ranks[size++] = (struct membership_rank){m->ranks[rank].slot, slot->host, slot->seat, false};
    }
    return size;
}

static int add_newcomers(const struct membership *m, int64_t now, enum slot_state least,
                         struct membership_rank *ranks)
{
    int size = 0;
    for (int i = 0; i < m->slot_count; i++) {
        const struct slot *slot = &m->slots[i];
        if (slot_is_newcomer(slot) && slot->state >= least && slot_seat_is_offered(m, slot, now))
            ranks[size++] = (struct membership_rank){slot->number, slot->host, slot->seat, true};
    }
    qsort(ranks, (size_t)size, sizeof *ranks, by_seat);
    return size;
}

/* Members keep their order, so that rank 0 is the one that has been a member for longest. */
struct membership_rank *roster_make(struct membership *m, int64_t now, int kept, enum slot_state least,
                                    int most, int *size)
{
    struct membership_rank *ranks = calloc((size_t)m->slot_count + 1, sizeof *ranks);
    if (!ranks) {
        m->no_memory = true;
        return NULL;
    }
    *size = add_members(m, now, kept, ranks);
    if (!m->finishing)
        *size += add_newcomers(m, now, least, ranks + *size);
    if (*size > most)
        *size = most;
    return ranks;
}
