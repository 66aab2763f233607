/* rank_view.c - see rank_view.h. */
#include "rank_view.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

void rank_view_free(struct rank_view *view)
{
    page_summary_free(&view->page);
    sockets_free(&view->sockets);
    free(view->stack);
    *view = (struct rank_view){0};
}

enum rank_view_state rank_view_state(const struct rank_view *view)
{
    static const enum rank_view_state by_page[] = {[PAGE_STARTED] = RANK_VIEW_STARTED,
                                                   [PAGE_JOINING] = RANK_VIEW_JOINING,
                                                   [PAGE_OPEN] = RANK_VIEW_PROGRAM,
                                                   [PAGE_FAILED] = RANK_VIEW_FAILED,
                                                   [PAGE_LEFT] = RANK_VIEW_LEFT};
    enum page_state page = view->page.state;
    if (!view->seen)
        return RANK_VIEW_UNSEEN;
    if (view->process && (view->system.state == 'T' || view->system.state == 't'))
        return RANK_VIEW_STOPPED;
    if (!view->process && page == PAGE_STARTED && view->page.child)
        return RANK_VIEW_ENDED;
    if (!view->process && (page == PAGE_JOINING || page == PAGE_OPEN))
        return RANK_VIEW_ENDED;
    return page == PAGE_OPEN && view->page.thread_count ? RANK_VIEW_WAITS : by_page[page];
}

const struct page_request *rank_view_awaited(const struct rank_view *view)
{
    const struct page_summary *page = &view->page;
    for (int i = 0; i < page->thread_count; i++) {
        for (int j = 0; j < page->request_count; j++) {
            if (page->requests[j].number == page->threads[i].record)
                return &page->requests[j];
        }
    }
    return NULL;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

#define NO_AGE UINT64_MAX

static void put_age(int64_t time, int64_t now, struct wire_writer *body)
{
    wire_put_u64(body, !time ? NO_AGE : time < now ? (uint64_t)(now - time) : 0);
}

static int64_t get_age(int64_t now, struct wire_reader *body)
{
    uint64_t age = wire_get_u64(body);
    return age == NO_AGE ? 0 : age < (uint64_t)now ? now - (int64_t)age : 1;
}

static void put_number(int number, struct wire_writer *body)
{
    wire_put_u32(body, (uint32_t)number);
}

static int get_number(struct wire_reader *body)
{
    return (int)wire_get_u32(body);
}

/* What could control a terminal becomes '?'. */
static void get_text(struct wire_reader *body, char *text, size_t capacity)
{
    wire_get_string(body, text, capacity);
    for (char *at = text; *at; at++)
        *at = *at >= ' ' && *at <= '~' ? *at : '?';
}

/* Returns a number of elements of at least `bytes` bytes each that follow; more than `limit` fail. */
static int get_count(struct wire_reader *body, int limit, size_t bytes)
{
    uint32_t count = wire_get_u32(body);
    if (body->failed || count > (uint32_t)limit || count > (body->length - body->position) / bytes)
        body->failed = true;
    return body->failed ? 0 : (int)count;
}

static void put_identity(const struct page_identity *identity, int64_t now, struct wire_writer *body)
{
    wire_put_string(body, identity->job);
    wire_put_string(body, identity->host);
    wire_put_string(body, identity->version);
    put_number(identity->rank, body);
    put_number(identity->size, body);
    put_number(identity->local_rank, body);
    put_number(identity->local_size, body);
    put_number(identity->epoch, body);
    put_number(identity->process, body);
    wire_put_u64(body, identity->process_start);
    put_age(identity->opened, now, body);
    wire_put_u64(body, (uint64_t)identity->opened_at);
}

static void get_identity(struct page_identity *identity, int64_t now, struct wire_reader *body)
{
    get_text(body, identity->job, sizeof identity->job);
    get_text(body, identity->host, sizeof identity->host);
    get_text(body, identity->version, sizeof identity->version);
    identity->rank = get_number(body);
    identity->size = get_number(body);
    identity->local_rank = get_number(body);
    identity->local_size = get_number(body);
    identity->epoch = get_number(body);
    identity->process = get_number(body);
    identity->process_start = wire_get_u64(body);
    identity->opened = get_age(now, body);
    identity->opened_at = (int64_t)wire_get_u64(body);
}

enum { REQUEST_HELD = 1, REQUEST_NAMELESS = 2, REQUEST_BYTES = 4 + 2 + 4 + 6 * 8 + 2 };

static void put_request(const struct page_request *request, int64_t now, struct wire_writer *body)
{
    wire_put_string(body, request->title);
    wire_put_u8(body, (uint8_t)request->operation);
    wire_put_u8(body, (uint8_t)request->outcome);
    put_number(request->process_set, body);
    wire_put_u64(body, request->number);
    wire_put_u64(body, request->bytes);
    wire_put_u64(body, request->batch);
    put_age(request->submitted, now, body);
    put_age(request->decided, now, body);
    put_age(request->ended, now, body);
    wire_put_u8(body,
                (uint8_t)((request->held ? REQUEST_HELD : 0) | (request->nameless ? REQUEST_NAMELESS : 0)));
}

static void get_request(struct page_request *request, int64_t now, struct wire_reader *body)
{
    get_text(body, request->title, sizeof request->title);
    request->operation = (hvd_operation)wire_get_u8(body);
    request->outcome = (hvd_code)wire_get_u8(body);
    request->process_set = get_number(body);
    request->number = wire_get_u64(body);
    request->bytes = wire_get_u64(body);
    request->batch = wire_get_u64(body);
    request->submitted = get_age(now, body);
    request->decided = get_age(now, body);
    request->ended = get_age(now, body);
    uint8_t flags = wire_get_u8(body);
    request->held = flags & REQUEST_HELD;
    request->nameless = flags & REQUEST_NAMELESS;
}

static void put_requests(const struct page_summary *page, int64_t now, struct wire_writer *body)
{
    int count = page->request_count < RANK_VIEW_REQUESTS ? page->request_count : RANK_VIEW_REQUESTS;
    put_number(count, body);
    for (int i = 0; i < count; i++)
        put_request(&page->requests[i], now, body);
}

static void get_requests(struct page_summary *page, int64_t now, struct wire_reader *body)
{
    int count = get_count(body, RANK_VIEW_REQUESTS, REQUEST_BYTES);
    if (!count)
        return;
    page->requests = calloc((size_t)count, sizeof *page->requests);
    body->failed = !page->requests;
    for (int i = 0; !body->failed && i < count; i++)
        get_request(&page->requests[page->request_count++], now, body);
}

static void put_threads_and_sets(const struct page_summary *page, int64_t now, struct wire_writer *body)
{
    put_number(page->thread_count, body);
    for (int i = 0; i < page->thread_count; i++) {
        put_number(page->threads[i].id, body);
        wire_put_u64(body, page->threads[i].record);
        put_age(page->threads[i].since, now, body);
    }
    put_number(page->set_count, body);
    for (int i = 0; i < page->set_count; i++) {
        put_number(page->sets[i].id, body);
        put_number(page->sets[i].size, body);
    }
}

static void get_threads_and_sets(struct page_summary *page, int64_t now, struct wire_reader *body)
{
    page->thread_count = get_count(body, PAGE_CALLERS, 4 + 8 + 8);
    for (int i = 0; i < page->thread_count; i++) {
        page->threads[i].id = get_number(body);
        page->threads[i].record = wire_get_u64(body);
        page->threads[i].since = get_age(now, body);
    }
    page->set_count = get_count(body, PAGE_SETS, 4 + 4);
    for (int i = 0; i < page->set_count; i++) {
        page->sets[i].id = get_number(body);
        page->sets[i].size = get_number(body);
    }
}

static void put_lateness(const struct page_summary *page, struct wire_writer *body)
{
    put_number(page->reporter_count, body);
    for (int i = 0; i < page->reporter_count; i++) {
        const struct page_reporter *reporter = &page->reporters[i];
        put_number(reporter->rank, body);
        wire_put_u64(body, (uint64_t)reporter->total);
        wire_put_u64(body, (uint64_t)reporter->longest);
        wire_put_u64(body, reporter->count);
        wire_put_u8(body, reporter->waits);
        wire_put_f64(body, reporter->share);
    }
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        wire_put_u64(body, page->negotiations[i]);
    wire_put_u64(body, (uint64_t)page->negotiation_total);
}

/* Returns a number of nanoseconds; one that makes no sense is 0. */
static int64_t get_nanoseconds(struct wire_reader *body)
{
    uint64_t value = wire_get_u64(body);
    return value <= INT64_MAX ? (int64_t)value : 0;
}

/* Returns a number from 0 to `most`; one that makes no sense is 0. */
static double get_number_up_to(double most, struct wire_reader *body)
{
    double value = wire_get_f64(body);
    return value >= 0 && value <= most ? value : 0;
}

static void get_lateness(struct page_summary *page, struct wire_reader *body)
{
    int count = get_count(body, PAGE_REPORTERS, 4 + 4 * 8 + 1);
    page->reporters = count ? calloc((size_t)count, sizeof *page->reporters) : NULL;
    body->failed = body->failed || (count && !page->reporters);
    for (int i = 0; !body->failed && i < count; i++) {
        struct page_reporter *reporter = &page->reporters[page->reporter_count++];
        reporter->rank = get_number(body);
        reporter->total = get_nanoseconds(body);
        reporter->longest = get_nanoseconds(body);
        reporter->count = wire_get_u64(body);
        reporter->waits = wire_get_u8(body);
        reporter->share = get_number_up_to(1, body);
    }
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        page->negotiations[i] = wire_get_u64(body);
    page->negotiation_total = get_nanoseconds(body);
}

static void put_counts(const struct page_counts *counts, struct wire_writer *body)
{
    wire_put_u64(body, counts->submitted);
    wire_put_u64(body, counts->succeeded);
    wire_put_u64(body, counts->failed);
    wire_put_u64(body, counts->batches);
    wire_put_u64(body, counts->bytes);
    wire_put_u64(body, counts->wait_ns);
    wire_put_u64(body, counts->nonfinite);
}

static void get_counts(struct page_counts *counts, struct page_counts *all, struct wire_reader *body)
{
    counts->submitted = wire_get_u64(body);
    counts->succeeded = wire_get_u64(body);
    counts->failed = wire_get_u64(body);
    counts->batches = wire_get_u64(body);
    counts->bytes = wire_get_u64(body);
    counts->wait_ns = wire_get_u64(body);
    counts->nonfinite = wire_get_u64(body);
    page_counts_add(all, counts);
}

static void put_steps(const struct page_steps *steps, int64_t now, struct wire_writer *body)
{
    wire_put_u64(body, steps->count);
    wire_put_u64(body, steps->samples);
    wire_put_u64(body, (uint64_t)steps->number);
    put_age(steps->last, now, body);
    wire_put_u64(body, (uint64_t)steps->median);
    wire_put_u8(body, steps->reported);
}

static void get_steps(struct page_steps *steps, int64_t now, struct wire_reader *body)
{
    steps->count = wire_get_u64(body);
    steps->samples = wire_get_u64(body);
    steps->number = (int64_t)(wire_get_u64(body) & INT64_MAX);
    steps->last = get_age(now, body);
    steps->median = (int64_t)(wire_get_u64(body) & INT64_MAX);
    steps->reported = wire_get_u8(body);
}

static void put_checks(const struct page_summary *page, struct wire_writer *body)
{
    wire_put_u64(body, (uint64_t)page->nan_step);
    wire_put_string(body, page->nan);
    wire_put_u64(body, page->parameter_checks);
    wire_put_u64(body, page->divergences);
    wire_put_string(body, page->divergence);
}

static void get_checks(struct page_summary *page, struct wire_reader *body)
{
    page->nan_step = (int64_t)wire_get_u64(body);
    get_text(body, page->nan, sizeof page->nan);
    page->parameter_checks = wire_get_u64(body);
    page->divergences = wire_get_u64(body);
    get_text(body, page->divergence, sizeof page->divergence);
}

/* What is sent of a page whose requests are too many lacks some, as if they had found no room in it. */
static void put_page(const struct page_summary *page, int64_t now, struct wire_writer *body)
{
    put_identity(&page->identity, now, body);
    wire_put_u8(body, (uint8_t)page->state);
    wire_put_string(body, page->cause);
    put_number(page->child, body);
    wire_put_u64(body, page->child_start);
    put_age(page->progress, now, body);
    wire_put_u64(body, page->dropped + (page->request_count > RANK_VIEW_REQUESTS));
    put_threads_and_sets(page, now, body);
    for (int i = 0; i < OPERATION_NUMBERS; i++)
        put_counts(&page->operations[i], body);
    put_steps(&page->steps, now, body);
    put_checks(page, body);
    put_lateness(page, body);
    put_requests(page, now, body);
    put_request(&page->last, now, body);
}

static void get_page(struct page_summary *page, int64_t now, struct wire_reader *body)
{
    get_identity(&page->identity, now, body);
    uint8_t state = wire_get_u8(body);
    page->state = state <= PAGE_LEFT ? (enum page_state)state : PAGE_LEFT;
    get_text(body, page->cause, sizeof page->cause);
    page->child = get_number(body);
    page->child_start = wire_get_u64(body);
    page->progress = get_age(now, body);
    page->dropped = wire_get_u64(body);
    get_threads_and_sets(page, now, body);
    for (int i = 0; i < OPERATION_NUMBERS; i++)
        get_counts(&page->operations[i], &page->all, body);
    get_steps(&page->steps, now, body);
    get_checks(page, body);
    get_lateness(page, body);
    get_requests(page, now, body);
    get_request(&page->last, now, body);
}

static void get_stack(struct rank_view *view, struct wire_reader *body)
{
    char *text = malloc(PAGE_STACK_TEXT + 1);
    if (!text || !wire_get_string(body, text, PAGE_STACK_TEXT + 1))
        body->failed = true;
    else if (*text)
        view->stack = stack_parse(text, strlen(text));
    free(text);
}

int64_t rank_view_outside(const struct rank_view *view, int64_t now)
{
    const struct page_summary *page = &view->page;
    int64_t time = page->identity.opened ? now - page->identity.opened : 0;
    if (time <= 0 || page->all.wait_ns >= (uint64_t)time) /* a page may say anything */
        return 0;
    time -= (int64_t)page->all.wait_ns;
    if (page->thread_count)
        time -= now - page->threads[0].since;
    return time > 0 ? time : 0;
}

void rank_view_put(const struct rank_view *view, int64_t now, struct wire_writer *body)
{
    wire_put_u8(body, view->seen);
    put_page(&view->page, now, body);
    put_number(view->process, body);
    wire_put_u8(body, (uint8_t)view->system.state);
    wire_put_u64(body, view->memory_bytes);
    wire_put_f64(body, view->seconds);
    wire_put_u64(body, view->ended_before);
    sockets_put(&view->sockets, body);
    wire_put_u64(body, view->times.running);
    wire_put_u64(body, view->times.runnable);
    wire_put_u64(body, view->times.blocked);
    wire_put_u64(body, view->engine_ns);
    put_number(view->load.runnable, body);
    put_number(view->load.cores, body);
    wire_put_string(body, view->stack ? view->stack->answer : "");
}

bool rank_view_get(struct rank_view *view, int64_t now, struct wire_reader *body)
{
    *view = (struct rank_view){.seen = wire_get_u8(body)};
    get_page(&view->page, now, body);
    view->process = get_number(body);
    view->system.state = (char)wire_get_u8(body);
    view->memory_bytes = wire_get_u64(body);
    view->seconds = get_number_up_to(1e9, body);
    view->ended_before = wire_get_u64(body);
    if (!sockets_get(&view->sockets, body))
        body->failed = true;
    view->times.running = (uint64_t)get_nanoseconds(body);
    view->times.runnable = (uint64_t)get_nanoseconds(body);
    view->times.blocked = (uint64_t)get_nanoseconds(body);
    view->engine_ns = (uint64_t)get_nanoseconds(body);
    view->load.runnable = get_number(body);
    view->load.cores = get_number(body);
    get_stack(view, body);
    return !body->failed;
}
