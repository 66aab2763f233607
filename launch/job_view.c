/* job_view.c - see job_view.h. */
#include "job_view.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

#define LATE  CLOCK_SECOND        /* ranks that wait no longer are no news */
#define PAUSE (10 * CLOCK_SECOND) /* between steps, e.g. to save a checkpoint, that is no news either */

const struct page_waiting *job_view_late(const struct job_view *job_view)
{
    const struct page_waiting *first = job_view->waitings.count ? job_view->waitings.list : NULL;
    return first && job_view->taken - first->since >= LATE ? first : NULL;
}

bool job_view_makes_steps(const struct job_view *job_view)
{
    const struct page_steps *steps = &job_view->steps;
    return steps->median > (job_view->taken - steps->last - PAUSE) / 3 && steps->median &&
           !job_view_late(job_view);
}

int job_view_ranks(const struct job_view *job_view, const uint8_t *chosen, int which, char *text,
                   size_t capacity)
{
    int chosen_count = 0;
    bool full = false;
    text[0] = '\0';
    for (int first = 0, last; first < job_view->count; first = last + 1) {
        last = first;
        if (chosen[first] != which)
            continue;
        while (last + 1 < job_view->count && chosen[last + 1] == which &&
               job_view->ranks[last + 1].page.identity.rank == job_view->ranks[last].page.identity.rank + 1)
            last++;
        chosen_count += last - first + 1;
        if (full)
            continue;
        if ((full = strlen(text) + 32 > capacity)) {
            append_text(text, capacity, ", ...");
            continue;
        }
        append_text(text, capacity, "%s%d", *text ? ", " : "", job_view->ranks[first].page.identity.rank);
        if (last > first)
            append_text(text, capacity, "%s%d", last == first + 1 ? ", " : "-",
                        job_view->ranks[last].page.identity.rank);
    }
    return chosen_count;
}

double job_view_share_in_horovod(const struct job_view *job_view, const struct rank_view *rank)
{
    double waits = (double)rank->page.all.wait_ns;
    double age = (double)(job_view->taken - rank->page.identity.opened);
    if (rank->page.thread_count)
        waits += (double)(job_view->taken - rank->page.threads[0].since);
    if (!rank->page.identity.opened || age <= 0)
        return 0;
    return waits < age ? waits / age : 1;
}

double job_view_seconds(const struct job_view *job_view)
{
    int64_t first = job_view->taken;
    for (int i = 0; i < job_view->count; i++) {
        int64_t opened = job_view->ranks[i].page.identity.opened;
        first = opened && opened < first ? opened : first;
    }
    return (double)(job_view->taken - first) / CLOCK_SECOND;
}
