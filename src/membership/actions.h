/* actions.h - the list of actions that the owner of the state machine is to carry out. */
#ifndef HVD_MEMBERSHIP_ACTIONS_H
#define HVD_MEMBERSHIP_ACTIONS_H

#include "membership/state.h"

/* Appends an action of this kind, to be filled in: host, slot and rank are -1. Never NULL. */
struct membership_action *action_add(struct membership *m, enum membership_action_kind kind);
void action_say(struct membership *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
void action_finish(struct membership *m, const struct cause *cause, enum membership_step step,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
