/* stall.c - see stall.h. */
#include "watch/stall.h"

#include "base/status.h"

#include <string.h>

/* NULL when there is no room for one more. */
static struct stall_group *find_group(struct stall_summary *summary, const char *ranks)
{
    for (int i = 0; i < summary->count; i++) {
        if (strncmp(summary->groups[i].ranks, ranks, sizeof summary->groups[i].ranks - 1) == 0)
            return &summary->groups[i];
    }
    if (summary->count == STALL_GROUPS)
        return NULL;
    struct stall_group *group = &summary->groups[summary->count++];
    *group = (struct stall_group){0};
    append_text(group->ranks, sizeof group->ranks, "%s", ranks);
    return group;
}

void stall_add(struct stall_summary *summary, const char *ranks, const char *name, double seconds)
{
    if (seconds > summary->longest)
        summary->longest = seconds;
    struct stall_group *group = find_group(summary, ranks);
    if (!group) {
        summary->left_out++;
        return;
    }
    if (group->count++ < STALL_NAMES) /* a long name is cut in the middle of its text, not at the seconds */
        append_text(group->names, sizeof group->names, "%s%.45s%s (%.0f s)", group->count > 1 ? ", " : "",
                    name, strlen(name) > 45 ? "..." : "", seconds);
}

void stall_text(struct stall_summary *summary, int process_set, const struct stall_limits *limits, char *text,
                size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "some ranks have waited for others for more than %.15g s", limits->warning);
    if (process_set)
        append_text(text, capacity, ", in process set %d", process_set);
    append_text(text, capacity, ". Who has not submitted what:");
    for (int i = 0; i < summary->count; i++) {
        const struct stall_group *group = &summary->groups[i];
        append_text(text, capacity, "\n  %s: %s", group->ranks, group->names);
        if (group->count > STALL_NAMES)
            append_text(text, capacity, " and %d more", group->count - STALL_NAMES);
    }
    if (summary->left_out)
        append_text(text, capacity, "\n  others: %d more", summary->left_out);
    append_text(
        text, capacity,
        "\nA rank that has stopped, is slow, skips an operation, or took another branch than the rest is the "
        "usual cause: look at what it does now, e.g. with py-spy dump.");
    if (limits->shutdown > 0)
        append_text(text, capacity, "\nThe job ends with an error when the wait reaches %.15g s (in %.0f s).",
                    limits->shutdown,
                    limits->shutdown > summary->longest ? limits->shutdown - summary->longest : 0);
    else
        append_text(text, capacity,
                    "\nThe ranks go on waiting; --stall-check-shutdown-time-seconds would end the job.");
    *summary = (struct stall_summary){0};
}
