/* lateness.c - see lateness.h. */
#include "lateness.h"

#include "base/clock.h"

#include <stdlib.h>

bool lateness_counts(double share, double seconds)
{
    return share >= LATENESS_LEAST && seconds >= LATENESS_SECONDS;
}

static int compare_rank(const void *rank, const void *view)
{
    return *(const int *)rank - ((const struct rank_view *)view)->page.identity.rank;
}

static struct rank_view *find_rank(struct rank_view *ranks, int count, int rank)
{
    return bsearch(&rank, ranks, (size_t)count, sizeof *ranks, compare_rank);
}

/* The bounds of a node, until it is visited, are what its parent has waited for its subtree. */
static void visit(struct rank_view *ranks, int count, struct rank_view *node, struct rank_view **queue,
                  int *queued, bool *seen)
{
    int64_t total = node->late_ns;
    uint64_t count_above = node->late_count;
    double share = node->late_share;
    const struct page_summary *page = &node->page;
    if (page->reporter_count) {
        node->late_ns = 0;
        node->late_count = 0;
        node->late_share = 0;
    }
    for (int i = 0; i < page->reporter_count; i++) {
        const struct page_reporter *reporter = &page->reporters[i];
        struct rank_view *rank = find_rank(ranks, count, reporter->rank);
        if (!rank || (rank != node && seen[rank - ranks])) /* a page may say anything */
            continue;
        rank->late_ns = reporter->total < total ? reporter->total : total;
        rank->late_count = reporter->count < count_above ? reporter->count : count_above;
        rank->late_share = reporter->share < share ? reporter->share : share;
        if (rank != node)
            queue[(*queued)++] = rank;
        seen[rank - ranks] = true;
    }
}

static void bound(struct rank_view *rank, int64_t most, int64_t now)
{
    int64_t age = now - rank->page.identity.opened;
    if (!rank->page.identity.opened || age <= 0)
        return;
    double share = (double)most / (double)age;
    rank->late_ns = rank->late_ns < most ? rank->late_ns : most;
    rank->late_share = rank->late_share < share ? rank->late_share : share;
}

void lateness_find(struct rank_view *ranks, int count, int64_t now)
{
    struct rank_view **queue = count ? calloc((size_t)count, sizeof *queue) : NULL;
    bool *seen = count ? calloc((size_t)count, sizeof *seen) : NULL;
    int queued = 0;
    /* It is the root of the tree; a job of one rank has none. */
    if (queue && seen && ranks->page.identity.rank == 0 && ranks->page.reporter_count) {
        ranks->late_ns = INT64_MAX;
        ranks->late_count = UINT64_MAX;
        ranks->late_share = 1;
        seen[0] = true;
        queue[queued++] = ranks;
    }
    for (int i = 0; i < queued; i++)
        visit(ranks, count, queue[i], queue, &queued, seen);
    for (int i = 0; i < count; i++)
        bound(&ranks[i], rank_view_outside(&ranks[i], now), now);
    free(seen);
    free(queue);
}

void lateness_excuse(struct rank_view *ranks, int count, int64_t now)
{
    int64_t *times = count ? calloc((size_t)count, sizeof *times) : NULL;
    for (int i = 0; times && i < count; i++)
        times[i] = rank_view_outside(&ranks[i], now);
    if (times)
        qsort(times, (size_t)count, sizeof *times, clock_compare);
    for (int i = 0; times && i < count; i++) {
        int64_t own = rank_view_outside(&ranks[i], now), median = times[(count - 1) / 2];
        bound(&ranks[i], own > median ? own - median : 0, now);
    }
    free(times);
}
