/* actions.c - the list of actions that the owner of the state machine is to carry out. */
#include "membership/actions.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct membership_action *action_add(struct membership *m, enum membership_action_kind kind)
{
    static _Thread_local struct membership_action nowhere; /* the caller need not check */
    struct membership_action *action = &nowhere;
    if (m->action_count == m->action_capacity) {
        int capacity = m->action_capacity ? 2 * m->action_capacity : 16;
        struct membership_action *actions = realloc(m->actions, (size_t)capacity * sizeof *actions);
        if (actions) {
            m->actions = actions;
            m->action_capacity = capacity;
        } else {
            m->no_memory = true;
        }
    }
    if (m->action_count < m->action_capacity)
        action = &m->actions[m->action_count++];
    *action = (struct membership_action){
        .kind = kind, .host = -1, .seat = -1, .slot = -1, .rank = -1, .epoch = m->epoch};
    return action;
}

void action_say(struct membership *m, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    format_text(action_add(m, MEMBERSHIP_SAY)->text, MEMBERSHIP_TEXT, format, arguments);
    va_end(arguments);
}

void action_finish(struct membership *m, const struct cause *cause, enum membership_step step,
                   const char *format, ...)
{
    va_list arguments;
    struct membership_action *action = action_add(m, MEMBERSHIP_FINISH);
    m->finished = true;
    action->slot = cause->slot;
    action->exit_code = cause->exit_code;
    action->step = step;
    va_start(arguments, format);
    format_text(action->text, sizeof action->text, format, arguments);
    va_end(arguments);
}

bool membership_next(struct membership *m, struct membership_action *action)
{
    if (m->next_action == m->action_count) {
        m->next_action = m->action_count = 0;
        return false;
    }
    *action = m->actions[m->next_action++];
    return true;
}
