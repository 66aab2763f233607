/* survey.c - see survey.h. */
#include "survey.h"

#include "base/clock.h"
#include "base/status.h"

#include <string.h>

#define LATE  CLOCK_SECOND        /* ranks that wait no longer are no news */
#define PAUSE (10 * CLOCK_SECOND) /* between steps, e.g. to save a checkpoint, that is no news either */

const struct page_waiting *survey_late(const struct survey *survey)
{
    const struct page_waiting *first = survey->waitings.count ? survey->waitings.list : NULL;
    return first && survey->taken - first->since >= LATE ? first : NULL;
}

bool survey_makes_steps(const struct survey *survey)
{
    const struct page_steps *steps = &survey->steps;
    return steps->median > (survey->taken - steps->last - PAUSE) / 3 && steps->median && !survey_late(survey);
}

int survey_ranks(const struct survey *survey, const uint8_t *chosen, int which, char *text, size_t capacity)
{
    int chosen_count = 0;
    bool full = false;
    text[0] = '\0';
    for (int first = 0, last; first < survey->count; first = last + 1) {
        last = first;
        if (chosen[first] != which)
            continue;
        while (last + 1 < survey->count && chosen[last + 1] == which &&
               survey->ranks[last + 1].page.identity.rank == survey->ranks[last].page.identity.rank + 1)
            last++;
        chosen_count += last - first + 1;
        if (full)
            continue;
        if ((full = strlen(text) + 32 > capacity)) {
            append_text(text, capacity, ", ...");
            continue;
        }
        append_text(text, capacity, "%s%d", *text ? ", " : "", survey->ranks[first].page.identity.rank);
        if (last > first)
            append_text(text, capacity, "%s%d", last == first + 1 ? ", " : "-",
                        survey->ranks[last].page.identity.rank);
    }
    return chosen_count;
}

double survey_share_in_horovod(const struct survey *survey, const struct sight *rank)
{
    double waits = (double)rank->page.all.wait_ns;
    double age = (double)(survey->taken - rank->page.identity.opened);
    if (rank->page.thread_count)
        waits += (double)(survey->taken - rank->page.threads[0].since);
    if (!rank->page.identity.opened || age <= 0)
        return 0;
    return waits < age ? waits / age : 1;
}

double survey_seconds(const struct survey *survey)
{
    int64_t first = survey->taken;
    for (int i = 0; i < survey->count; i++) {
        int64_t opened = survey->ranks[i].page.identity.opened;
        first = opened && opened < first ? opened : first;
    }
    return (double)(survey->taken - first) / CLOCK_SECOND;
}
