/* slots.h - the processes of a job. */
#ifndef HVD_MEMBERSHIP_SLOTS_H
#define HVD_MEMBERSHIP_SLOTS_H

#include "membership/state.h"

/* Returns false if its host was removed or is left out, or if it was asked to leave. */
bool slot_seat_is_offered(const struct membership *m, const struct slot *slot, int64_t now);
/* Adds a process at a free seat. Returns its number; -1: out of memory. */
int slot_add(struct membership *m, int host, int seat, enum slot_state state);
/* Returns NULL if there is none of this number, or it was forgotten. */
struct slot *slot_of(const struct membership *m, int number);
/* Forgets processes that are gone, except those of the running epoch, whose ranks refer to them. */
void slots_forget(struct membership *m);
/* The process is in no epoch any more, and is to end. */
void slot_dismiss(struct membership *m, int slot, enum membership_step step, enum membership_why why);
/* The same of one that others count on: a member is lost by it. */
void slot_end(struct membership *m, int64_t now, int slot, enum membership_step step,
              enum membership_why why);
/* The process is in no epoch any more, in which state it may be. */
void slot_lose(struct membership *m, int64_t now, int slot, enum slot_state state);

#endif
