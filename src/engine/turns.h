/* turns.h - in which order this rank starts collectives that need one order over all process sets: those of
 * back ends with `one_order` (backend/backend.h).
 *
 * The one sequence that all ranks see is that of the decisions of set 0. The decision of a collective of set
 * 0 is its turn. For each collective of another set, the root of that set asks the root of set 0, which
 * decides a turn; every member of the set puts it into this queue, and ranks that are not members ignore it.
 * A collective without a turn waits, and so do all later ones of its set.
 *
 * Set 0 closes when a rank leaves, and then gives no more turns. Collectives that other sets have decided by
 * then and that have no turn run after all turns, set by set in the order of their ids: every set closes
 * then, so the next one does not wait forever (comm_callbacks.c).
 *
 * There is no deadlock: the members of two sets start the collectives of both in one order, since each rank
 * has the same sequence, and the first collective of the sequence that has not started waits only for
 * decisions. Under the progress lock. */
#ifndef HVD_ENGINE_TURNS_H
#define HVD_ENGINE_TURNS_H

#include <stdbool.h>

struct turns {
    int *sets; /* ids: the turns are [first, first + count) */
    int first, count, capacity;
};

/* Adds a turn at the end. Returns false if memory is out. */
bool turns_add(struct turns *turns, int set);

/* Returns true if the set has the first turn. */
bool turns_has(const struct turns *turns, int set);

/* Removes the first turn. */
void turns_use(struct turns *turns);

/* Removes all turns of a set that has ended on this rank. */
void turns_drop(struct turns *turns, int set);

void turns_free(struct turns *turns);

#endif
