/* fuzz_page.c - any bytes in the pages of two ranks. Each seven bytes of the input are a place, and four
 * bytes that stand there; so a short input reaches all parts of pages that start as valid ones. */
#include "watch/history.h"
#include "watch/page_waitings.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, REQUESTS = 40, STEP = 7 };

static void fill(struct page *page)
{
    memset(page, 0, sizeof *page);
    atomic_init(&page->head.magic, PAGE_MAGIC);
    atomic_init(&page->head.version, PAGE_VERSION);
    atomic_init(&page->head.state, PAGE_OPEN);
    atomic_init(&page->head.sets, 1);
    atomic_init(&page->sets[0].size, RANKS);
    for (unsigned i = 1; i <= REQUESTS; i++) {
        atomic_init(&page->names[i].id, i);
        strcpy(page->names[i].text, "name");
        atomic_init(&page->records[i].number, i);
        atomic_init(&page->records[i].name, i);
        atomic_init(&page->steps[i].count, i);
        atomic_init(&page->steps[i].reported, i);
    }
}

static void check_text(const char *text, size_t capacity)
{
    if (!memchr(text, '\0', capacity))
        abort();
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            abort();
    }
}

static void check(const struct page_summary *page)
{
    check_text(page->identity.job, sizeof page->identity.job);
    check_text(page->identity.host, sizeof page->identity.host);
    check_text(page->identity.version, sizeof page->identity.version);
    check_text(page->cause, sizeof page->cause);
    if (page->steps.last < 0 || page->steps.last > 1000 || page->steps.median < 0 ||
        page->steps.median > 1000 || page->steps.number < 0)
        abort();
    for (int i = 0; i < page->request_count; i++) {
        check_text(page->requests[i].title, sizeof page->requests[i].title);
        if (page->requests[i].submitted < 0 || page->requests[i].submitted > 1000)
            abort();
    }
}

/* The requests of one page, in a window of any size. */
static void check_history(const struct page *page, uint8_t size)
{
    struct history_window window = {.span = size / 4, .steps = size % 4, .most = size / 2};
    struct history history;
    hvd_status status;
    if (history_of_page(page, &window, 1000, &history, &status) || history.count > window.most ||
        history.title_count > history.count)
        abort();
    for (int i = 0; i < history.count; i++) {
        const struct history_request *request = &history.list[i];
        if (request->submitted < 0 || request->submitted > 1000 || request->ended > 1000 ||
            (request->ended && request->ended < request->submitted) ||
            request->title >= (uint32_t)history.title_count)
            abort();
        check_text(history.titles[request->title], PAGE_TITLE);
    }
    history_free(&history);
}

static void check_waiting(const struct page_waiting *waiting)
{
    if (!waiting->request || waiting->waits < 1 || waiting->waits + waiting->missing > RANKS ||
        waiting->hidden < 0 || waiting->since < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct page pages[RANKS];
    struct page_summary summaries[RANKS];
    struct page_waitings waitings;
    hvd_status status;
    int read = 0;
    uint8_t size = length ? bytes[length - 1] : 255;
    for (int i = 0; i < RANKS; i++)
        fill(&pages[i]);
    for (; length >= STEP; bytes += STEP, length -= STEP) {
        size_t at = ((size_t)bytes[0] << 16 | (size_t)bytes[1] << 8 | bytes[2]) % (sizeof pages - 4);
        memcpy((char *)pages + at, bytes + 3, 4);
    }
    for (int i = 0; i < RANKS; i++)
        check_history(&pages[i], size);
    for (int i = 0; i < RANKS; i++)
        read += !page_summarize(&pages[i], 1000, &summaries[read], &status);
    for (int i = 0; i < read; i++)
        check(&summaries[i]);
    if (page_waitings_find(summaries, read, &waitings, &status))
        abort();
    for (int i = 0; i < waitings.count; i++)
        check_waiting(&waitings.list[i]);
    page_waitings_free(&waitings);
    for (int i = 0; i < read; i++)
        page_summary_free(&summaries[i]);
    return 0;
}
