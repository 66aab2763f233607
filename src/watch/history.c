/* history.c - see history.h. */
#include "watch/history.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define REQUEST_BYTES 58              /* of one on the wire, without its title */
#define LAST_TIME     (INT64_MAX / 4) /* sums and differences of two can't overflow */

/* ---- the lists ----------------------------------------------------------------------------------------- */

/* Returns the index of the title, or -1 if memory is out. */
static int add_title(struct history *history, const char *title)
{
    if (history->title_count == history->title_room) {
        int room = history->title_room ? 2 * history->title_room : 64;
        char(*titles)[PAGE_TITLE] = reallocarray(history->titles, (size_t)room, sizeof *titles);
        if (!titles)
            return -1;
        history->titles = titles;
        history->title_room = room;
    }
    memcpy(history->titles[history->title_count], title, PAGE_TITLE);
    return history->title_count++;
}

/* No time precedes an earlier step of the same request. */
static void order_times(struct history_request *request)
{
    if (request->decided && request->decided < request->submitted)
        request->decided = request->submitted;
    int64_t least = request->decided ? request->decided : request->submitted;
    if (request->ended && request->ended < least)
        request->ended = least;
}

void history_free(struct history *history)
{
    free(history->list);
    free(history->titles);
    *history = (struct history){0};
}

/* ---- one page ------------------------------------------------------------------------------------------ */

static uint64_t number_of(const struct page_record *record)
{
    return atomic_load_explicit(&record->number, memory_order_relaxed);
}

static int compare_records(const void *one, const void *other)
{
    const struct page_record *const *a = one, *const *b = other;
    uint64_t x = number_of(*a), y = number_of(*b);
    return (x > y) - (x < y);
}

static int compare_steps(const void *one, const void *other)
{
    const struct history_step *a = one, *b = other;
    return (a->count > b->count) - (a->count < b->count);
}

static int64_t valid_time(const _Atomic int64_t *word, int64_t now)
{
    int64_t time = atomic_load_explicit(word, memory_order_relaxed);
    return time < 0 || time > now ? now : time;
}

/* A page is copied from its start to its end: of steps that ended after `now` the requests may be missing. */
static void read_steps(struct history *history, const struct page *page, int64_t now)
{
    for (int i = 0; i < PAGE_STEPS; i++) {
        const struct page_step *step = &page->steps[i];
        uint64_t count = atomic_load_explicit(&step->count, memory_order_relaxed);
        if (count && atomic_load_explicit(&step->reported, memory_order_relaxed) <= now)
            history->steps[history->step_count++] =
                (struct history_step){.count = count,
                                      .number = atomic_load_explicit(&step->number, memory_order_relaxed),
                                      .reported = valid_time(&step->reported, now),
                                      .samples = atomic_load_explicit(&step->samples, memory_order_relaxed)};
    }
    qsort(history->steps, (size_t)history->step_count, sizeof *history->steps, compare_steps);
}

/* Keeps the steps that ended after then, and the end of the one before, where the first of them begins. */
static void choose_steps(struct history *history, int64_t from)
{
    int first = 0;
    while (first + 1 < history->step_count && history->steps[first + 1].reported <= from)
        first++;
    history->step_count -= first;
    memmove(history->steps, history->steps + first, (size_t)history->step_count * sizeof *history->steps);
}

/* Returns the id of the name that was submitted most often; 0: there is none. */
static unsigned most_frequent_name(const struct page *page)
{
    unsigned most = 0, found = 0;
    for (int i = 0; i < PAGE_NAMES; i++) {
        unsigned uses = atomic_load_explicit(&page->names[i].uses, memory_order_relaxed);
        unsigned id = (unsigned)atomic_load_explicit(&page->names[i].id, memory_order_relaxed);
        if (id && uses > most) {
            most = uses;
            found = id;
        }
    }
    return found;
}

/* Returns when the last steps began that are wanted, 0 if there are no more. */
static int64_t start_of_steps(const struct history *history, int steps, const struct page *page,
                              const struct page_record *const *records, int count)
{
    if (history->step_count)
        return steps < history->step_count ? history->steps[history->step_count - 1 - steps].reported : 0;
    unsigned name = most_frequent_name(page);
    for (int i = count - 1; name && i >= 0; i--) {
        if (atomic_load_explicit(&records[i]->name, memory_order_relaxed) == name && --steps == 0)
            return atomic_load_explicit(&records[i]->submitted, memory_order_relaxed);
    }
    return 0;
}

/* Returns the time from which on requests are wanted: whatever ended earlier is not. */
static int64_t start_of(const struct history_window *window, const struct history *history,
                        const struct page *page, const struct page_record *const *records, int count)
{
    int64_t newest = 0, from = 0;
    for (int i = 0; i < count; i++) {
        int64_t decided = atomic_load_explicit(&records[i]->decided, memory_order_relaxed);
        newest = decided > newest && decided < LAST_TIME ? decided : newest;
    }
    if (window->span && newest > window->span)
        from = newest - window->span;
    int64_t begin = window->steps ? start_of_steps(history, window->steps, page, records, count) : 0;
    return begin > from ? begin : from;
}

/* Remembers the title of each name, which has one place among PAGE_NAMES. */
struct titles {
    struct {
        unsigned name;
        uint8_t operation, flags;
        int title;
    } places[PAGE_NAMES];
};

static int title_of(struct history *history, struct titles *titles, const struct page_record *record,
                    const struct page_request *request)
{
    unsigned name = atomic_load_explicit(&record->name, memory_order_relaxed);
    uint8_t operation = atomic_load_explicit(&record->operation, memory_order_relaxed);
    uint8_t grouped = atomic_load_explicit(&record->flags, memory_order_relaxed) & RECORD_GROUPED;
    bool known = name && !(name & PAGE_COUNTED);
    size_t at = name % PAGE_NAMES;
    if (known && titles->places[at].name == name && titles->places[at].operation == operation &&
        titles->places[at].flags == grouped)
        return titles->places[at].title;
    int title = add_title(history, request->title);
    if (known && title >= 0) {
        titles->places[at].name = name;
        titles->places[at].operation = operation;
        titles->places[at].flags = grouped;
        titles->places[at].title = title;
    }
    return title;
}

static hvd_code add_records(struct history *history, const struct page *page,
                            const struct page_record *const *records, int count, int64_t now,
                            hvd_status *status)
{
    struct titles *titles = calloc(1, sizeof *titles);
    hvd_code code = titles ? HVD_OK : status_no_memory(status);
    for (int i = 0; i < count && !code; i++) {
        struct page_request request;
        page_request_read(page, records[i], now, &request);
        int title = title_of(history, titles, records[i], &request);
        if (title < 0)
            code = status_no_memory(status);
        else
            history->list[history->count++] = (struct history_request){.submitted = request.submitted,
                                                                       .decided = request.decided,
                                                                       .ended = request.ended,
                                                                       .number = request.number,
                                                                       .bytes = request.bytes,
                                                                       .batch = request.batch,
                                                                       .process_set = request.process_set,
                                                                       .title = (uint32_t)title,
                                                                       .outcome = request.outcome,
                                                                       .held = request.held};
        if (!code)
            order_times(&history->list[history->count - 1]);
    }
    free(titles);
    return code;
}

/* Keeps the records that are wanted, in place. Returns their number. */
static int choose(const struct page_record **records, int count, int64_t from, int most)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int64_t ended = atomic_load_explicit(&records[i]->ended, memory_order_relaxed);
        if (!ended || ended >= from)
            records[kept++] = records[i];
    }
    int excess = kept > most ? kept - most : 0;
    memmove(records, records + excess, (size_t)(kept - excess) * sizeof *records);
    return kept - excess;
}

hvd_code history_of_page(const struct page *page, const struct history_window *window, int64_t now,
                         struct history *history, hvd_status *status)
{
    int count = 0;
    *history = (struct history){0};
    const struct page_record **records = calloc(PAGE_RECORDS, sizeof(struct page_record *));
    if (!records)
        return status_no_memory(status);
    for (int i = 0; i < PAGE_RECORDS; i++) {
        if (number_of(&page->records[i]))
            records[count++] = &page->records[i];
    }
    qsort(records, (size_t)count, sizeof *records, compare_records);
    read_steps(history, page, now);
    int64_t from = start_of(window, history, page, records, count);
    choose_steps(history, from);
    count = choose(records, count, from, window->most);
    hvd_code code = HVD_OK;
    if (count && !(history->list = calloc((size_t)count, sizeof *history->list)))
        code = status_no_memory(status);
    if (count && !code)
        code = add_records(history, page, records, count, now, status);
    free(records);
    return code;
}

hvd_code history_read(int fd, struct page_copies *copies, const struct history_window *window, int64_t now,
                      struct history *history, hvd_status *status)
{
    const struct page *page;
    *history = (struct history){0};
    TRY(page_copy(fd, copies, &page, status));
    return history_of_page(page, window, now, history, status);
}

/* ---- from one process to another ----------------------------------------------------------------------- */

static void put_steps(const struct history *history, int count, struct wire_writer *body)
{
    wire_put_u32(body, (uint32_t)count);
    for (int i = 0; i < count; i++) {
        wire_put_u64(body, history->steps[i].count);
        wire_put_u64(body, (uint64_t)history->steps[i].number);
        wire_put_u64(body, (uint64_t)history->steps[i].reported);
        wire_put_u64(body, history->steps[i].samples);
    }
}

/* A message can be read by itself: a title follows the first request that has it, and has a number from then
 * on. */
static void put_request(const struct history_request *request, uint32_t title, struct wire_writer *body)
{
    wire_put_u64(body, (uint64_t)request->submitted);
    wire_put_u64(body, (uint64_t)request->decided);
    wire_put_u64(body, (uint64_t)request->ended);
    wire_put_u64(body, request->number);
    wire_put_u64(body, request->bytes);
    wire_put_u64(body, request->batch);
    wire_put_u32(body, (uint32_t)request->process_set);
    wire_put_u32(body, title);
    wire_put_u8(body, (uint8_t)request->outcome);
    wire_put_u8(body, request->held);
}

int history_put(const struct history *history, int first, size_t limit, struct wire_writer *body)
{
    uint32_t *numbers = calloc((size_t)history->title_count + 1, sizeof *numbers), known = 0;
    size_t begin = body->length;
    int at = first;
    if (!numbers)
        body->failed = true;
    put_steps(history, first ? 0 : history->step_count, body);
    for (; numbers && at < history->count; at++) {
        const struct history_request *request = &history->list[at];
        uint32_t *number = &numbers[request->title]; /* counted from 1 */
        bool is_new = !*number;
        if (at > first && body->length - begin + REQUEST_BYTES + PAGE_TITLE > limit)
            break;
        if (is_new)
            *number = ++known;
        put_request(request, *number - 1, body);
        if (is_new)
            wire_put_string(body, history->titles[request->title]);
    }
    free(numbers);
    return at;
}

static bool get_time(struct wire_reader *body, int64_t *time)
{
    *time = (int64_t)wire_get_u64(body);
    return *time >= 0 && *time <= LAST_TIME;
}

/* Steps are in their order. */
static bool get_steps(struct history *history, struct wire_reader *body)
{
    uint32_t count = wire_get_u32(body);
    if (count > (uint32_t)(PAGE_STEPS - history->step_count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct history_step *step = &history->steps[history->step_count];
        uint64_t before = history->step_count ? step[-1].count : 0;
        step->count = wire_get_u64(body);
        step->number = (int64_t)wire_get_u64(body);
        if (!get_time(body, &step->reported) || step->count <= before)
            return false;
        step->samples = wire_get_u64(body);
        history->step_count++;
    }
    return !body->failed;
}

static bool get_request(struct history_request *request, struct wire_reader *body)
{
    bool valid = get_time(body, &request->submitted);
    valid = get_time(body, &request->decided) && valid;
    valid = get_time(body, &request->ended) && valid;
    request->number = wire_get_u64(body);
    request->bytes = wire_get_u64(body);
    request->batch = wire_get_u64(body);
    request->process_set = (int32_t)wire_get_u32(body);
    request->title = wire_get_u32(body);
    request->outcome = (hvd_code)wire_get_u8(body);
    request->held = wire_get_u8(body);
    order_times(request);
    return valid && !body->failed;
}

static bool get_title(struct history *history, struct wire_reader *body)
{
    char title[PAGE_TITLE] = "";
    if (!wire_get_string(body, title, sizeof title))
        return false;
    for (const char *at = title; *at; at++) {
        if (*at < ' ' || *at > '~')
            return false;
    }
    return add_title(history, title) >= 0;
}

bool history_get(struct history *history, struct wire_reader *body)
{
    if (!get_steps(history, body))
        return false;
    size_t most = (body->length - body->position) / REQUEST_BYTES;
    uint32_t titles_before = (uint32_t)history->title_count;
    most = most < (size_t)(PAGE_RECORDS - history->count) ? most : (size_t)(PAGE_RECORDS - history->count);
    if (wire_done(body))
        return true;
    struct history_request *list =
        reallocarray(history->list, (size_t)history->count + most + 1, sizeof *list);
    if (!list)
        return false;
    history->list = list;
    while (!wire_done(body)) {
        struct history_request *request = &list[history->count];
        if (!most-- || !get_request(request, body))
            return false;
        if (request->title > (uint32_t)history->title_count - titles_before)
            return false;
        request->title += titles_before;
        if (request->title == (uint32_t)history->title_count && !get_title(history, body))
            return false;
        history->count++;
    }
    return true;
}
