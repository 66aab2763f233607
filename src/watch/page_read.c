/* page_read.c - see page_read.h. */
#include "watch/page_read.h"

#include "base/status.h"
#include "base/types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_TRIES   3
#define HALF_WRITTEN "the page of a rank is half written"

static uint64_t get(const atomic_uint_fast64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static int64_t get_time(const _Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* ---- a copy that is consistent ------------------------------------------------------------------------- */

struct page_copies {
    struct page before, page, after;
};

struct page_copies *page_copies_create(void)
{
    return calloc(1, sizeof(struct page_copies));
}

void page_copies_free(struct page_copies *copies)
{
    free(copies);
}

/* Reading, not mapping: a file that somebody shortens can't end this process, and no memory is allocated for
 * parts that the rank has never touched. */
static hvd_code copy(int fd, void *to, size_t bytes, size_t from, hvd_status *status)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t part = pread(fd, (char *)to + done, bytes - done, (off_t)(from + done));
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            return part ? status_set_errno(status, errno, "can't read the page of a rank")
                        : status_set(status, HVD_REFUSED, "a page of a rank is too short");
        done += (size_t)part;
    }
    return HVD_OK;
}

/* A number that is equal in the copies before and after was valid during the whole copy in between. */
static void drop_if_changed(atomic_uint_fast64_t *number, const atomic_uint_fast64_t *before,
                            const atomic_uint_fast64_t *after)
{
    if (get(number) != get(before) || get(number) != get(after))
        atomic_store_explicit(number, 0, memory_order_relaxed);
}

static hvd_code check_head(const struct page_head *head, hvd_status *status)
{
    unsigned version = atomic_load_explicit(&head->version, memory_order_relaxed);
    if (get(&head->magic) != PAGE_MAGIC)
        return status_set(status, HVD_REFUSED, "it is no page of a rank");
    if (version != PAGE_VERSION)
        return status_set(status, HVD_UNSUPPORTED,
                          "the page of a rank has layout %u, this program reads %u: they are of different "
                          "versions of Horovod",
                          version, PAGE_VERSION);
    return HVD_OK;
}

/* Copies a part of the page three times: a number that is equal in all of them was valid during the copy in
 * between. */
static hvd_code copy_thrice(int fd, struct page_copies *copies, size_t from, size_t bytes, hvd_status *status)
{
    TRY(copy(fd, (char *)&copies->before + from, bytes, from, status));
    TRY(copy(fd, (char *)&copies->page + from, bytes, from, status));
    return copy(fd, (char *)&copies->after + from, bytes, from, status);
}

/* The whole page is copied again only once its identity and cause are written: a rank that was stopped while
 * it wrote them costs no more than copies of its head. */
static hvd_code copy_generation(int fd, struct page_copies *copies, hvd_status *status)
{
    for (int i = 0; i < READ_TRIES; i++) {
        if (i)
            TRY(copy(fd, &copies->page, sizeof copies->page.head, 0, status));
        if (i && get(&copies->page.head.generation) % 2)
            continue;
        TRY(copy_thrice(fd, copies, 0, sizeof copies->page, status));
        uint64_t generation = get(&copies->page.head.generation);
        if (generation % 2 == 0 && get(&copies->before.head.generation) == generation &&
            get(&copies->after.head.generation) == generation)
            return HVD_OK;
    }
    return status_set(status, HVD_REFUSED, HALF_WRITTEN);
}

static bool late_is_settled(const struct page_copies *copies, int reporter)
{
    unsigned changes = atomic_load_explicit(&copies->page.late[reporter].changes, memory_order_relaxed);
    return changes % 2 == 0 &&
           atomic_load_explicit(&copies->before.late[reporter].changes, memory_order_relaxed) == changes &&
           atomic_load_explicit(&copies->after.late[reporter].changes, memory_order_relaxed) == changes;
}

/* Copies again what was written meanwhile, and leaves out a reporter that is still being written. */
static hvd_code settle_late(int fd, struct page_copies *copies, int reporter, hvd_status *status)
{
    struct page_late *late = &copies->page.late[reporter];
    size_t from = offsetof(struct page, late) + (size_t)reporter * sizeof *late;
    for (int i = 0; i < READ_TRIES && !late_is_settled(copies, reporter); i++)
        TRY(copy_thrice(fd, copies, from, sizeof *late, status));
    if (!late_is_settled(copies, reporter))
        atomic_store_explicit(&late->rank, 0, memory_order_relaxed);
    return HVD_OK;
}

/* It is written rarely, and too important to be left out at once. */
static bool difference_is_settled(const struct page_copies *copies)
{
    const struct page_head *head = &copies->page.head;
    uint64_t difference = get(&head->difference);
    return difference == get(&copies->before.head.difference) &&
           difference == get(&copies->after.head.difference) && !difference == !get(&head->parameter_checks);
}

static hvd_code settle_difference(int fd, struct page_copies *copies, hvd_status *status)
{
    const size_t from = offsetof(struct page_head, parameter_checks);
    const size_t end = offsetof(struct page_head, divergence) + PAGE_DIVERGENCE_TEXT;
    for (int i = 0; i < READ_TRIES && !difference_is_settled(copies); i++)
        TRY(copy_thrice(fd, copies, from, end - from, status));
    return HVD_OK;
}

hvd_code page_copy(int fd, struct page_copies *copies, const struct page **copied, hvd_status *status)
{
    struct page *before = &copies->before, *page = &copies->page, *after = &copies->after;
    TRY(copy_generation(fd, copies, status));
    for (int i = 0; i < PAGE_REPORTERS; i++)
        TRY(settle_late(fd, copies, i, status));
    TRY(settle_difference(fd, copies, status));
    drop_if_changed(&page->head.nans, &before->head.nans, &after->head.nans);
    drop_if_changed(&page->head.difference, &before->head.difference, &after->head.difference);
    for (int i = 0; i < PAGE_NAMES; i++)
        drop_if_changed(&page->names[i].id, &before->names[i].id, &after->names[i].id);
    for (int i = 0; i < PAGE_RECORDS; i++)
        drop_if_changed(&page->records[i].number, &before->records[i].number, &after->records[i].number);
    for (int i = 0; i < PAGE_STEPS; i++)
        drop_if_changed(&page->steps[i].count, &before->steps[i].count, &after->steps[i].count);
    *copied = page;
    return check_head(&page->head, status);
}

hvd_code page_read(int fd, struct page_copies *copies, int64_t now, struct page_summary *summary,
                   hvd_status *status)
{
    const struct page *page;
    *summary = (struct page_summary){0};
    TRY(page_copy(fd, copies, &page, status));
    return page_summarize(page, now, summary, status);
}

/* ---- texts, times -------------------------------------------------------------------------------------- */

/* Copies a text that may lack its NUL. What is no printable ASCII becomes '?': it could control a terminal.
 */
static void copy_text(char *to, size_t capacity, const char *from, size_t length)
{
    size_t at = 0;
    for (; at < length && at + 1 < capacity && from[at]; at++)
        to[at] = from[at] >= ' ' && from[at] <= '~' ? from[at] : '?';
    to[at] = '\0';
}

/* Times are never later than now, and differences of two can't overflow. */
static int64_t valid_time(const _Atomic int64_t *word, int64_t now)
{
    int64_t time = get_time(word);
    return time < 0 || time > now ? now : time;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static const char *operation_of(unsigned number)
{
    return operation_known((int)number) ? operation_name((hvd_operation)number) : "operation";
}

/* Returns false if the request has lost its name. */
static bool write_title(const struct page *page, const struct page_record *record, char *title)
{
    unsigned id = atomic_load_explicit(&record->name, memory_order_relaxed);
    unsigned flags = atomic_load_explicit(&record->flags, memory_order_relaxed);
    const struct page_name *name = &page->names[id % PAGE_NAMES];
    char text[PAGE_NAME_TEXT] = "?";
    bool named = id & PAGE_COUNTED || (id && get(&name->id) == id);
    if (id & PAGE_COUNTED)
        snprintf(text, sizeof text, "noname.%u", id & ~PAGE_COUNTED);
    else if (named)
        copy_text(text, sizeof text, name->text, sizeof name->text);
    snprintf(title, PAGE_TITLE, "%s%s.%s", flags & RECORD_GROUPED ? "grouped_" : "",
             operation_of(atomic_load_explicit(&record->operation, memory_order_relaxed)), text);
    return named;
}

void page_request_read(const struct page *page, const struct page_record *record, int64_t now,
                       struct page_request *request)
{
    *request = (struct page_request){
        .operation = (hvd_operation)atomic_load_explicit(&record->operation, memory_order_relaxed),
        .process_set = atomic_load_explicit(&record->process_set, memory_order_relaxed),
        .number = get(&record->number),
        .bytes = get(&record->bytes),
        .batch = atomic_load_explicit(&record->batch, memory_order_relaxed),
        .submitted = valid_time(&record->submitted, now),
        .decided = valid_time(&record->decided, now),
        .ended = valid_time(&record->ended, now),
        .outcome = (hvd_code)atomic_load_explicit(&record->outcome, memory_order_relaxed),
        .held = atomic_load_explicit(&record->flags, memory_order_relaxed) & RECORD_HELD};
    request->nameless = !write_title(page, record, request->title);
}

static int compare_numbers(const void *a, const void *b)
{
    const struct page_request *one = a, *other = b;
    return (one->number > other->number) - (one->number < other->number);
}

static hvd_code read_requests(const struct page *page, int64_t now, struct page_summary *summary,
                              hvd_status *status)
{
    const struct page_record *last = NULL;
    int count = 0;
    for (int i = 0; i < PAGE_RECORDS; i++) {
        const struct page_record *record = &page->records[i];
        if (!get(&record->number))
            continue;
        count += !get_time(&record->ended);
        if (get_time(&record->ended) && (!last || get_time(&record->ended) > get_time(&last->ended)))
            last = record;
    }
    if (last)
        page_request_read(page, last, now, &summary->last);
    if (!count)
        return HVD_OK;
    summary->requests = calloc((size_t)count, sizeof *summary->requests);
    if (!summary->requests)
        return status_no_memory(status);
    for (int i = 0; i < PAGE_RECORDS; i++) {
        const struct page_record *record = &page->records[i];
        if (get(&record->number) && !get_time(&record->ended))
            page_request_read(page, record, now, &summary->requests[summary->request_count++]);
    }
    qsort(summary->requests, (size_t)count, sizeof *summary->requests, compare_numbers);
    return HVD_OK;
}

/* ---- lateness ------------------------------------------------------------------------------------------ */

/* Returns the share of the time since the newest mark that is not too young, or of the last PAGE_MARK_TIME if
 * no wait has begun or ended in it. */
static double share_of(const struct page_late *late, int64_t opened, int64_t total, bool waits, int64_t now)
{
    int64_t from = opened, before = 0;
    if (now - valid_time(&late->marks[1].time, now) > 2 * PAGE_MARK_TIME)
        return waits;
    for (int i = 0; i < 2; i++) {
        int64_t time = valid_time(&late->marks[i].time, now);
        if (!time || (i && now - time < PAGE_MARK_TIME))
            continue;
        from = time;
        before = valid_time(&late->marks[i].total, now);
    }
    double share = now > from ? (double)(total - before) / (double)(now - from) : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static struct page_reporter read_reporter(const struct page_late *late, int64_t opened, int64_t now)
{
    int64_t total = get_time(&late->total);
    bool waits = total < 0;
    if (waits)
        total += now;
    if (total < 0 || total > now)
        total = 0;
    return (struct page_reporter){.rank = atomic_load_explicit(&late->rank, memory_order_relaxed) - 1,
                                  .total = total,
                                  .longest = valid_time(&late->longest, now),
                                  .count = get(&late->count),
                                  .waits = waits,
                                  .share = share_of(late, opened, total, waits, now)};
}

static hvd_code read_lateness(const struct page *page, int64_t now, struct page_summary *summary,
                              hvd_status *status)
{
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        summary->negotiations[i] = get(&page->negotiations.counts[i]);
    int64_t total = get_time(&page->negotiations.total);
    summary->negotiation_total = total < 0 ? 0 : total;
    int count = 0;
    for (int i = 0; i < PAGE_REPORTERS; i++)
        count += atomic_load_explicit(&page->late[i].rank, memory_order_relaxed) > 0;
    if (!count)
        return HVD_OK;
    summary->reporters = calloc((size_t)count, sizeof *summary->reporters);
    if (!summary->reporters)
        return status_no_memory(status);
    for (int i = 0; i < PAGE_REPORTERS; i++) {
        if (atomic_load_explicit(&page->late[i].rank, memory_order_relaxed) > 0)
            summary->reporters[summary->reporter_count++] =
                read_reporter(&page->late[i], summary->identity.opened, now);
    }
    return HVD_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static enum page_state state_of(const struct page_head *head)
{
    unsigned state = atomic_load_explicit(&head->state, memory_order_relaxed);
    return state <= PAGE_LEFT ? (enum page_state)state : PAGE_LEFT;
}

/* A thread that was woken a moment ago, while its operation has not ended, sleeps again soon. */
static bool sleeps(const struct page *page, const struct page_caller *caller, int64_t now)
{
    int64_t paused = get_time(&caller->paused);
    uint64_t number = get(&caller->record);
    if (!get(&caller->thread) || !paused)
        return get(&caller->thread);
    for (int i = 0; i < PAGE_RECORDS && number && now - valid_time(&caller->paused, now) < PAGE_PAUSE; i++) {
        const struct page_record *record = &page->records[i];
        if (get(&record->number) == number)
            return !get_time(&record->ended);
    }
    return false;
}

static void read_head(const struct page *page, int64_t now, struct page_summary *summary)
{
    const struct page_head *head = &page->head;
    const struct page_identity *from = &head->identity;
    struct page_identity *to = &summary->identity;
    *to = *from;
    copy_text(to->job, sizeof to->job, from->job, sizeof from->job);
    copy_text(to->host, sizeof to->host, from->host, sizeof from->host);
    copy_text(to->version, sizeof to->version, from->version, sizeof from->version);
    to->opened = from->opened < 0 || from->opened > now ? now : from->opened;
    copy_text(summary->cause, sizeof summary->cause, head->cause, sizeof head->cause);
    summary->state = state_of(head);
    summary->child = (int)get_time(&head->child);
    summary->child_start = get(&head->child_start);
    summary->progress = valid_time(&head->progress, now);
    summary->dropped = get(&head->dropped);
    if (get(&head->nans)) {
        copy_text(summary->nan, sizeof summary->nan, head->nan, sizeof head->nan);
        summary->nan_step = get_time(&head->nan_step);
    }
    summary->progress_thread = (int)get_time(&head->progress_thread);
    summary->parameter_checks = get(&head->parameter_checks);
    summary->divergences = get(&head->divergences);
    if (get(&head->difference))
        copy_text(summary->divergence, sizeof summary->divergence, head->divergence, sizeof head->divergence);
    for (int i = 0; i < PAGE_CALLERS; i++) {
        const struct page_caller *caller = &head->callers[i];
        if (sleeps(page, caller, now))
            summary->threads[summary->thread_count++] = (struct page_thread){
                (int)get(&caller->thread), get(&caller->record), valid_time(&caller->since, now)};
    }
}

static int count_sets(const struct page_head *head)
{
    uint64_t count = get(&head->sets);
    return count < PAGE_SETS ? (int)count : PAGE_SETS;
}

void page_counts_add(struct page_counts *to, const struct page_counts *counts)
{
    to->submitted += counts->submitted;
    to->succeeded += counts->succeeded;
    to->failed += counts->failed;
    to->batches += counts->batches;
    to->bytes += counts->bytes;
    to->wait_ns += counts->wait_ns;
    to->nonfinite += counts->nonfinite;
}

static struct page_counts counts_of(const struct operation_counters *counters)
{
    return (struct page_counts){.submitted = get(&counters->submitted),
                                .succeeded = get(&counters->succeeded),
                                .failed = get(&counters->failed),
                                .batches = get(&counters->batches),
                                .bytes = get(&counters->bytes),
                                .wait_ns = get(&counters->wait_ns),
                                .nonfinite = get(&counters->nonfinite)};
}

static void read_sets(const struct page *page, struct page_summary *summary)
{
    summary->set_count = count_sets(&page->head);
    for (int i = 0; i < summary->set_count; i++) {
        const struct page_set *set = &page->sets[i];
        summary->sets[i] = (struct page_membership){atomic_load_explicit(&set->id, memory_order_relaxed),
                                                    atomic_load_explicit(&set->size, memory_order_relaxed)};
        for (int j = 0; j < OPERATION_NUMBERS; j++) {
            struct page_counts counts = counts_of(&set->operations[j]);
            page_counts_add(&summary->operations[j], &counts);
            page_counts_add(&summary->all, &counts);
        }
    }
}

hvd_code page_glance(int fd, struct page_glance *glance, hvd_status *status)
{
    struct page_head head;
    struct page_set set;
    TRY(copy(fd, &head, sizeof head, 0, status));
    TRY(check_head(&head, status));
    const uint64_t generation = get(&head.generation);
    *glance = (struct page_glance){.state = state_of(&head), .stalled = get_time(&head.stalled)};
    for (int i = 0, count = count_sets(&head); i < count; i++) {
        TRY(copy(fd, &set, sizeof set, offsetof(struct page, sets) + (size_t)i * sizeof set, status));
        for (int j = 0; j < OPERATION_NUMBERS; j++)
            glance->ended += get(&set.operations[j].succeeded) + get(&set.operations[j].failed);
    }
    TRY(copy(fd, &head.generation, sizeof head.generation, offsetof(struct page_head, generation), status));
    if (generation % 2 || get(&head.generation) != generation)
        return status_set(status, HVD_REFUSED, HALF_WRITTEN);
    return HVD_OK;
}

hvd_code page_summarize(const struct page *page, int64_t now, struct page_summary *summary,
                        hvd_status *status)
{
    *summary = (struct page_summary){0};
    TRY(check_head(&page->head, status));
    read_head(page, now, summary);
    read_sets(page, summary);
    page_steps_read(page, now, &summary->steps);
    hvd_code code = read_lateness(page, now, summary, status);
    if (!code)
        code = read_requests(page, now, summary, status);
    if (code)
        page_summary_free(summary);
    return code;
}

void page_summary_free(struct page_summary *summary)
{
    free(summary->requests);
    free(summary->reporters);
    summary->requests = NULL;
    summary->reporters = NULL;
    summary->request_count = summary->reporter_count = 0;
}
