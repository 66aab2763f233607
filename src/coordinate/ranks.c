/* ranks.c - see ranks.h. No state; any thread. */
#include "coordinate/ranks.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* Takes out the ranges that touch [*first, *last], which grows to hold them; returns where it belongs. */
static int absorb(struct rank_set *set, int *first, int *last)
{
    int at = 0;
    while (at < set->count && set->ranges[at].last + 1 < *first)
        at++;
    int end = at;
    for (; end < set->count && set->ranges[end].first <= *last + 1; end++) {
        if (set->ranges[end].first < *first)
            *first = set->ranges[end].first;
        if (set->ranges[end].last > *last)
            *last = set->ranges[end].last;
    }
    memmove(&set->ranges[at], &set->ranges[end], (size_t)(set->count - end) * sizeof set->ranges[0]);
    set->count -= end - at;
    return at;
}

void rank_set_add(struct rank_set *set, int first, int last)
{
    int at = absorb(set, &first, &last);
    if (set->count == RANK_RANGE_LIMIT) {
        set->others = true;
        /* The lowest ones are kept: the new one is beyond them, or the highest gives way. */
        if (at == set->count)
            return;
        set->count--;
    }
    memmove(&set->ranges[at + 1], &set->ranges[at], (size_t)(set->count - at) * sizeof set->ranges[0]);
    set->ranges[at] = (struct rank_range){first, last};
    set->count++;
}

void rank_set_merge(struct rank_set *set, const struct rank_set *from)
{
    for (int i = 0; i < from->count; i++)
        rank_set_add(set, from->ranges[i].first, from->ranges[i].last);
    set->others |= from->others;
}

const char *rank_set_text(const struct rank_set *set, char *text, size_t capacity)
{
    bool one = set->count == 1 && set->ranges[0].first == set->ranges[0].last && !set->others;
    snprintf(text, capacity, one ? "rank " : "ranks ");
    for (int i = 0; i < set->count; i++) {
        struct rank_range range = set->ranges[i];
        append_text(text, capacity, "%s%d", i ? ", " : "", range.first);
        if (range.last > range.first)
            append_text(text, capacity, "-%d", range.last);
    }
    if (set->others)
        append_text(text, capacity, " and others");
    return text;
}
