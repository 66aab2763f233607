/* wrong_numbers.c - see wrong_numbers.h. */
#include "wrong_numbers.h"

#include "base/status.h"

#include <inttypes.h>

static bool say_divergence(const struct job_view *job_view, char *text, size_t capacity)
{
    for (int i = 0; i < job_view->count; i++) {
        if (*job_view->ranks[i].page.divergence) {
            append_text(text, capacity, "%s", job_view->ranks[i].page.divergence);
            return true;
        }
    }
    return false;
}

/* The rank that had a NaN in the earliest step has given it to the others. Ranks that had one in the same
 * step did not get it from each other. */
static bool say_nan(const struct job_view *job_view, char *text, size_t capacity)
{
    const struct page_summary *first = NULL;
    int count = 0;
    for (int i = 0; i < job_view->count; i++) {
        const struct page_summary *page = &job_view->ranks[i].page;
        if (!*page->nan || (first && page->nan_step > first->nan_step))
            continue;
        count = first && page->nan_step == first->nan_step ? count + 1 : 1;
        first = count == 1 ? page : first;
    }
    if (!first)
        return false;
    append_text(text, capacity, "NaN began on rank %d, in its input of %s", first->identity.rank, first->nan);
    if (first->nan_step)
        append_text(text, capacity, " at step %" PRId64, first->nan_step);
    if (count > 1)
        append_text(
            text, capacity,
            ", and in the same step on %d other rank%s: all have computed it, a sum has overflowed, or a "
            "tensor of more than 16 KiB has brought it, whose rank --check-nonfinite all finds",
            count - 1, count == 2 ? "" : "s");
    return true;
}

bool wrong_numbers_write(const struct job_view *job_view, char *text, size_t capacity)
{
    return say_divergence(job_view, text, capacity) || say_nan(job_view, text, capacity);
}
