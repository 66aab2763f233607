/* stall.c - see stall.h. */
#include "watch/stall.h"

#include "base/status.h"

#include <string.h>

/* NULL when there is no room for one more. */
static struct stall_group *find_group(struct stall_report *report, const char *ranks)
{
    for (int i = 0; i < report->count; i++) {
        if (strncmp(report->groups[i].ranks, ranks, sizeof report->groups[i].ranks - 1) == 0)
            return &report->groups[i];
    }
    if (report->count == STALL_GROUPS)
        return NULL;
    struct stall_group *group = &report->groups[report->count++];
    *group = (struct stall_group){0};
    append_text(group->ranks, sizeof group->ranks, "%s", ranks);
    return group;
}

void stall_add(struct stall_report *report, const char *ranks, const char *name, double seconds)
{
    if (seconds > report->longest)
        report->longest = seconds;
    struct stall_group *group = find_group(report, ranks);
    if (!group) {
        report->left_out++;
        return;
    }
    if (group->count++ < STALL_NAMES) /* a long name is cut in the middle of its text, not at the seconds */
        append_text(group->names, sizeof group->names, "%s%.45s%s (%.0f s)", group->count > 1 ? ", " : "",
                    name, strlen(name) > 45 ? "..." : "", seconds);
}

void stall_text(struct stall_report *report, int process_set, const struct stall_limits *limits, char *text,
                size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "some ranks have waited for others for more than %.15g s", limits->warning);
    if (process_set)
        append_text(text, capacity, ", in process set %d", process_set);
    append_text(text, capacity, ". Who has not submitted what:");
    for (int i = 0; i < report->count; i++) {
        const struct stall_group *group = &report->groups[i];
        append_text(text, capacity, "\n  %s: %s", group->ranks, group->names);
        if (group->count > STALL_NAMES)
            append_text(text, capacity, " and %d more", group->count - STALL_NAMES);
    }
    if (report->left_out)
        append_text(text, capacity, "\n  others: %d more", report->left_out);
    append_text(
        text, capacity,
        "\nA rank that has stopped, is slow, skips an operation, or took another branch than the rest is the "
        "usual cause: look at what it does now, e.g. with py-spy dump.");
    if (limits->shutdown > 0)
        append_text(text, capacity, "\nThe job ends with an error when the wait reaches %.15g s (in %.0f s).",
                    limits->shutdown,
                    limits->shutdown > report->longest ? limits->shutdown - report->longest : 0);
    else
        append_text(text, capacity,
                    "\nThe ranks go on waiting; --stall-check-shutdown-time-seconds would end the job.");
    *report = (struct stall_report){0};
}
