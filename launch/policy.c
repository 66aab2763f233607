/* policy.c - decides what an event means for the job. Pure: any thread. */
#include "policy.h"

#include <signal.h>

struct decision policy_static(const struct table *table, const struct event *event)
{
    struct decision decision = {.end = !table->ending, .exit_code = event->exit_code, .step = STEP_TERM};
    switch (event->kind) {
    case EVENT_ENDED:
        /* Failures after the first one follow from it, or from the launcher's own signals. */
        if (!event->exit_code || table->ending)
            return (struct decision){0};
        decision.cause = true;
        decision.step = STEP_OWN;
        break;
    case EVENT_NOT_STARTED:
        /* 126 or 127 where the command is at fault, as in a shell. */
        decision.exit_code = event->exit_code ? event->exit_code : 1;
        break;
    case EVENT_HOST_LOST:
        decision.exit_code = 1;
        decision.step = STEP_OWN;
        break;
    case EVENT_HOST_SILENT:
        /* Ranks that reach that host must have ended when its agent kills its ranks; those of a job that is
         * ending already have their own time. */
        decision.exit_code = 1;
        decision.step = table->ending ? STEP_OWN : STEP_TERM;
        break;
    case EVENT_HOST_FAILED:
        decision.step = STEP_NONE; /* no process runs */
        break;
    case EVENT_OUTPUT_FAILED:
        if (table->ending)
            return (struct decision){0};
        break;
    case EVENT_SIGNALLED:
        decision.exit_code = 128 + event->signal;
        decision.step = event->signal == SIGTERM ? STEP_TERM : STEP_OWN;
        break;
    default: /* the progress of the start */
        return (struct decision){0};
    }
    return decision;
}
