/* page_steps.c - see page_steps.h. */
#include "watch/page_steps.h"

#include "base/clock.h"

#include <stdlib.h>

struct moment {
    uint64_t count;
    int64_t time;
};

static int compare_moments(const void *one, const void *other)
{
    const struct moment *a = one, *b = other;
    return (a->count > b->count) - (a->count < b->count);
}

/* Times are never later than now, and differences of two can't overflow. */
static int64_t valid_time(int64_t time, int64_t now)
{
    return time < 0 || time > now ? now : time;
}

/* Returns the median of the times from one moment to the next, 0 if there are fewer than two. */
static int64_t median_of(struct moment *moments, int count)
{
    int64_t intervals[PAGE_STEPS];
    qsort(moments, (size_t)count, sizeof *moments, compare_moments);
    for (int i = 1; i < count; i++)
        intervals[i - 1] = moments[i].time - moments[i - 1].time;
    if (count < 2)
        return 0;
    qsort(intervals, (size_t)count - 1, sizeof *intervals, clock_compare);
    int64_t middle = intervals[(count - 1) / 2];
    return middle > 0 ? middle : 0;
}

static void read_reported(const struct page *page, int64_t now, struct page_steps *steps)
{
    struct moment moments[PAGE_STEPS];
    int count = 0;
    for (int i = 0; i < PAGE_STEPS; i++) {
        const struct page_step *step = &page->steps[i];
        uint64_t number = atomic_load_explicit(&step->count, memory_order_relaxed);
        int64_t time = atomic_load_explicit(&step->reported, memory_order_relaxed);
        if (number)
            moments[count++] = (struct moment){number, valid_time(time, now)};
    }
    steps->reported = true;
    steps->samples = atomic_load_explicit(&page->head.samples, memory_order_relaxed);
    steps->number = atomic_load_explicit(&page->head.step, memory_order_relaxed);
    if (steps->number < 0)
        steps->number = 0;
    steps->last = valid_time(atomic_load_explicit(&page->head.stepped, memory_order_relaxed), now);
    steps->median = median_of(moments, count);
}

/* Places are filled one after the other, so the oldest record is at the place behind that of the newest. */
static int find_newest(const struct page *page)
{
    uint64_t newest = 0;
    int place = 0;
    for (int i = 0; i < PAGE_RECORDS; i++) {
        uint64_t number = atomic_load_explicit(&page->records[i].number, memory_order_relaxed);
        if (number > newest) {
            newest = number;
            place = i;
        }
    }
    return place;
}

static void read_uses(const struct page *page, unsigned name, int64_t now, struct page_steps *steps)
{
    struct moment moments[PAGE_STEPS];
    int count = 0, newest = find_newest(page);
    for (int i = 1; i <= PAGE_RECORDS; i++) {
        const struct page_record *record = &page->records[(newest + i) % PAGE_RECORDS];
        uint64_t number = atomic_load_explicit(&record->number, memory_order_relaxed);
        if (!number || atomic_load_explicit(&record->name, memory_order_relaxed) != name)
            continue;
        int64_t time = valid_time(atomic_load_explicit(&record->submitted, memory_order_relaxed), now);
        moments[count++ % PAGE_STEPS] = (struct moment){number, time};
        steps->last = time > steps->last ? time : steps->last;
    }
    steps->median = median_of(moments, count < PAGE_STEPS ? count : PAGE_STEPS);
}

void page_steps_read(const struct page *page, int64_t now, struct page_steps *steps)
{
    *steps = (struct page_steps){.count = atomic_load_explicit(&page->head.steps, memory_order_relaxed)};
    if (steps->count) {
        read_reported(page, now, steps);
        return;
    }
    unsigned most = 1, name = 0;
    for (int i = 0; i < PAGE_NAMES; i++) {
        unsigned uses = atomic_load_explicit(&page->names[i].uses, memory_order_relaxed);
        uint64_t id = atomic_load_explicit(&page->names[i].id, memory_order_relaxed);
        if (id && uses > most) {
            most = uses;
            name = (unsigned)id;
        }
    }
    if (!name)
        return;
    steps->count = most;
    steps->number = most;
    read_uses(page, name, now, steps);
}
