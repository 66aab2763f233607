/* page.c - makes the page of a rank and writes it. See page.h for the threads.
 *
 * A store that must follow another one is a release, which costs nothing on x86.
 * Readers are other processes, so no lock or fence of theirs can be relied on. */
#include "watch/page.h"

#include "base/clock.h"
#include "base/platform_memory.h"
#include "base/platform_process.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* So many places in a row are tried for a record: the rest of the ring may be as full. */
#define TRIES 16

static void set(atomic_uint_fast64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static void set_time(_Atomic int64_t *word, int64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* A fence would do as well, but ThreadSanitizer supports none. */
void page_set_words(void *to, const void *from, size_t bytes)
{
    typedef uint64_t __attribute__((may_alias)) word;
    for (size_t at = 0; at < bytes; at += sizeof(word)) {
        word value;
        memcpy(&value, (const char *)from + at, sizeof value);
        __atomic_store_n((word *)((char *)to + at), value, __ATOMIC_RELEASE);
    }
}
_Static_assert(sizeof(struct page_identity) % 8 == 0 && PAGE_NAME_TEXT % 8 == 0, "whole words");
_Static_assert(PAGE_CAUSE_TEXT % 8 == 0 && offsetof(struct page_head, cause) % 8 == 0, "whole words");
_Static_assert(PAGE_NAN_TEXT % 8 == 0 && PAGE_DIVERGENCE_TEXT % 8 == 0, "whole words");
_Static_assert(offsetof(struct page_head, nan) % 8 == 0 && offsetof(struct page_head, divergence) % 8 == 0,
               "");

/* ---- the page as a whole ------------------------------------------------------------------------------- */

int page_create(const struct page_identity *identity)
{
    struct page_head head = {.identity = *identity};
    struct rlimit largest;
    if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < PAGE_BYTES) {
        errno = EFBIG; /* the system would send SIGXFSZ as well */
        return -1;
    }
    int fd = platform_memory_create(PAGE_BYTES, false);
    if (fd < 0)
        return -1;
    memcpy(head.starter_job, identity->job, sizeof head.starter_job);
    atomic_init(&head.magic, PAGE_MAGIC);
    atomic_init(&head.version, PAGE_VERSION);
    atomic_init(&head.state, PAGE_STARTED);
    if (pwrite(fd, &head, sizeof head, 0) == (ssize_t)sizeof head)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

void page_set_child(int fd, int process)
{
    struct platform_process found;
    platform_process(process, &found);
    const int64_t words[] = {process, (int64_t)found.start};
    _Static_assert(offsetof(struct page_head, child_start) == offsetof(struct page_head, child) + 8, "");
    if (pwrite(fd, words, sizeof words, offsetof(struct page, head.child)) < 0)
        return; /* a reader then sees less */
}

/* Takes the page for this process; returns false if it is another process's or context's, or was made for
 * another job: a path may outlive its page. */
static bool claim(struct page *page, const char *job)
{
    int64_t owner = atomic_load(&page->head.owner);
    if (atomic_load(&page->head.magic) != PAGE_MAGIC || atomic_load(&page->head.version) != PAGE_VERSION)
        return false;
    size_t length = strnlen(page->head.starter_job, sizeof page->head.starter_job);
    if (strncmp(job, page->head.starter_job, length) != 0)
        return false;
    if (owner && (owner == getpid() || kill((pid_t)owner, 0) == 0 || errno != ESRCH))
        return false;
    return atomic_compare_exchange_strong(&page->head.owner, &owner, getpid());
}

static struct page *open_given(const char *path, const char *job, int *fd)
{
    if (!*path)
        return NULL;
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct page *page = *fd >= 0 ? platform_memory_map(*fd, PAGE_BYTES) : NULL;
    if (page && claim(page, job))
        return page;
    if (page)
        platform_memory_unmap(page, PAGE_BYTES);
    if (*fd >= 0)
        close(*fd);
    return NULL;
}

static struct page *make_shared(const struct page_identity *identity, int *fd)
{
    *fd = page_create(identity);
    struct page *page = *fd >= 0 ? platform_memory_map(*fd, PAGE_BYTES) : NULL;
    if (page)
        atomic_store(&page->head.owner, getpid());
    else if (*fd >= 0)
        close(*fd);
    return page;
}

static struct page *make_private(const struct page_identity *identity)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        log_warning(identity->rank,
                    "can't make shared memory: %s; `horovodrun --status` will not see this rank",
                    strerror(errno));
    return platform_pages_alloc(PAGE_BYTES, 1);
}

/* What an earlier epoch of this process, or an earlier process of its starter, has written goes. */
static void clear(struct page *page)
{
    char *start = (char *)&page->sets;
    atomic_store(&page->head.progress, 0);
    atomic_store(&page->head.dropped, 0);
    atomic_store(&page->head.sets, 0);
    atomic_store(&page->head.stalled, 0);
    atomic_store(&page->head.steps, 0);
    atomic_store(&page->head.samples, 0);
    atomic_store(&page->head.nans, 0);
    atomic_store(&page->head.difference, 0);
    atomic_store(&page->head.parameter_checks, 0);
    atomic_store(&page->head.divergences, 0);
    for (int i = 0; i < PAGE_CALLERS; i++)
        atomic_store(&page->head.callers[i].thread, 0);
    bool head_is_apart = sysconf(_SC_PAGESIZE) <= (long)sizeof page->head_bytes;
    static const char zeros[64];
    if (head_is_apart && platform_memory_return(start, PAGE_BYTES - sizeof page->head_bytes))
        return;
    for (size_t at = offsetof(struct page, sets); at < PAGE_BYTES; at += sizeof zeros)
        page_set_words((char *)page + at, zeros, sizeof zeros);
}
_Static_assert((PAGE_BYTES - offsetof(struct page, sets)) % 64 == 0, "whole blocks");

/* Until end_generation, readers refuse the page: stores in between must be releases, which no processor moves
 * before this one. Returns the odd number. */
static uint64_t begin_generation(struct page *page)
{
    uint64_t generation = atomic_load(&page->head.generation) | 1;
    set(&page->head.generation, generation);
    return generation;
}

static void end_generation(struct page *page, uint64_t generation)
{
    set(&page->head.generation, generation + 1);
}

static void write_identity(struct page *page, const struct page_identity *identity)
{
    uint64_t generation = begin_generation(page);
    page_set_words(&page->head.identity, identity, sizeof *identity);
    end_generation(page, generation);
}

hvd_code page_open(struct page_writer *writer, const char *path, const struct page_identity *identity,
                   hvd_status *status)
{
    int fd;
    atfork_lock(); /* a child that is forked meanwhile would keep the descriptor */
    struct page *page = open_given(path, identity->job, &fd);
    bool used = page != NULL;
    if (!page)
        page = make_shared(identity, &fd);
    atomic_store(&writer->fd, page ? fd : -1);
    writer->page = page;
    atfork_unlock();
    if (!page)
        page = writer->page = make_private(identity);
    if (!page)
        return status_no_memory(status);
    begin_generation(page);
    if (used)
        clear(page);
    static const char no_cause[PAGE_CAUSE_TEXT];
    page_set_words(page->head.cause, no_cause, sizeof no_cause);
    write_identity(page, identity);
    atomic_store(&page->head.state, PAGE_JOINING);
    return HVD_OK;
}

void page_joined(struct page_writer *writer, int local_rank, int local_size)
{
    struct page_identity identity = writer->page->head.identity;
    identity.local_rank = local_rank;
    identity.local_size = local_size;
    write_identity(writer->page, &identity);
    atomic_store(&writer->page->head.state, PAGE_OPEN);
}

void page_fail(struct page_writer *writer, const char *cause)
{
    struct page_head *head = writer->page ? &writer->page->head : NULL;
    if (!head || head->cause[0])
        return;
    char text[PAGE_CAUSE_TEXT] = "";
    append_text(text, sizeof text, "%s", cause);
    uint64_t generation = begin_generation(writer->page);
    page_set_words(head->cause, text, sizeof text);
    atomic_store(&head->state, PAGE_FAILED);
    end_generation(writer->page, generation);
}

void page_stalled(struct page_writer *writer, int64_t since)
{
    set_time(&writer->page->head.stalled, since);
}

void page_leave(struct page_writer *writer)
{
    if (!writer->page)
        return;
    if (!writer->page->head.cause[0])
        atomic_store(&writer->page->head.state, PAGE_LEFT);
    atomic_store(&writer->page->head.owner, 0);
    atfork_lock();
    page_forget(writer);
    atfork_unlock();
}

void page_free(struct page_writer *writer)
{
    if (writer->page)
        platform_memory_unmap(writer->page, PAGE_BYTES);
    writer->page = NULL;
}

void page_forget(struct page_writer *writer)
{
    int fd = writer->page ? atomic_exchange(&writer->fd, -1) : -1;
    if (fd >= 0)
        close(fd);
}

/* ---- process sets and names ---------------------------------------------------------------------------- */

struct page_set *page_add_set(struct page_writer *writer, int id)
{
    struct page *page = writer->page;
    uint64_t count = atomic_load_explicit(&page->head.sets, memory_order_relaxed);
    struct page_set *added = count < PAGE_SETS ? &page->sets[count] : NULL;
    if (added)
        atomic_store_explicit(&added->id, id, memory_order_relaxed);
    set(&page->head.sets, count + 1);
    return added;
}

uint32_t page_add_name(struct page_writer *writer, const char *text)
{
    writer->name_id = (writer->name_id + 1) & ~PAGE_COUNTED;
    writer->name_id += !writer->name_id; /* 0 means none */
    struct page_name *name = &writer->page->names[writer->name_id % PAGE_NAMES];
    char end[PAGE_NAME_TEXT] = "";
    size_t length = strlen(text), kept = length < sizeof end ? length : sizeof end - 1;
    memcpy(end, text + length - kept, kept);
    set(&name->id, 0);
    page_set_words(name->text, end, sizeof name->text);
    atomic_store_explicit(&name->uses, 1, memory_order_release);
    set(&name->id, writer->name_id);
    return writer->name_id;
}

/* ---- records ------------------------------------------------------------------------------------------- */

static bool in_flight(const struct page_record *record)
{
    return !atomic_load_explicit(&record->ended, memory_order_relaxed) &&
           atomic_load_explicit(&record->number, memory_order_relaxed);
}

/* Moves `next` to a near place that has no request in flight. Returns false if there is none. */
static __attribute__((noinline, cold)) bool find_place(struct page_writer *writer)
{
    for (int i = 1; i < TRIES; i++) {
        writer->next = (writer->next + 1) % PAGE_RECORDS;
        if (!in_flight(&writer->page->records[writer->next]))
            return true;
    }
    set(&writer->page->head.dropped,
        atomic_load_explicit(&writer->page->head.dropped, memory_order_relaxed) + 1);
    return false;
}

uint32_t page_submitted(struct page_writer *writer, const struct page_entry *entry)
{
    struct page *page = writer->page;
    if (in_flight(&page->records[writer->next]) && !find_place(writer))
        return 0;
    uint32_t place = writer->next;
    struct page_record *record = &page->records[place];
    set(&record->number, 0);
    set_time(&record->submitted, entry->submitted);
    set_time(&record->decided, 0);
    set_time(&record->ended, 0);
    set(&record->bytes, entry->bytes);
    atomic_store_explicit(&record->batch, 0, memory_order_release);
    atomic_store_explicit(&record->name, entry->name, memory_order_release);
    atomic_store_explicit(&record->process_set, entry->process_set, memory_order_release);
    atomic_store_explicit(&record->operation, entry->operation, memory_order_release);
    atomic_store_explicit(&record->outcome, HVD_OK, memory_order_release);
    atomic_store_explicit(&record->flags, entry->flags, memory_order_release);
    set(&record->number, ++writer->number);
    writer->next = place + 1 < PAGE_RECORDS ? place + 1 : 0;
    __builtin_prefetch(&page->records[writer->next].flags, 1); /* its start is in this record's line */
    return place + 1;
}

void page_released(struct page_writer *writer, uint32_t place)
{
    if (place)
        atomic_fetch_and(&writer->page->records[place - 1].flags, (uint8_t)~RECORD_HELD);
}

void page_decided(struct page_writer *writer, uint32_t place, uint64_t batch, int64_t now)
{
    if (!place)
        return;
    struct page_record *record = &writer->page->records[place - 1];
    atomic_store_explicit(&record->batch, (unsigned)batch, memory_order_release);
    set_time(&record->decided, now);
}

void page_ended(struct page_writer *writer, uint32_t place, hvd_code outcome, int64_t now)
{
    if (!place)
        return;
    struct page_record *record = &writer->page->records[place - 1];
    if (outcome)
        atomic_store_explicit(&record->outcome, (uint8_t)outcome, memory_order_release);
    set_time(&record->ended, now);
    set_time(&writer->page->head.progress, now);
}

/* ---- lateness ------------------------------------------------------------------------------------------ */

/* Readers use the newest mark that is old enough, so the other one must be, but not by far: whoever is not
 * late for hours, and then is, would have a small share of these hours. If the newest is older than two
 * PAGE_MARK_TIME, nothing has begun or ended in the last one. */
static void set_mark(struct page_late *late, int64_t total, int64_t opened, int64_t now)
{
    struct page_mark *marks = late->marks;
    int64_t time = atomic_load_explicit(&marks[1].time, memory_order_relaxed);
    int64_t before = atomic_load_explicit(&marks[1].total, memory_order_relaxed);
    if (time && now - time < PAGE_MARK_TIME)
        return;
    if (now - (time ? time : opened) > 2 * PAGE_MARK_TIME) {
        time = now - PAGE_MARK_TIME;
        before = atomic_load_explicit(&late->total, memory_order_relaxed);
        before += before < 0 ? time : 0;
    }
    set_time(&marks[0].time, time);
    set_time(&marks[0].total, before);
    set_time(&marks[1].time, now);
    set_time(&marks[1].total, total < 0 ? total + now : total);
}

void page_set_late(struct page_writer *writer, int reporter, const struct page_lateness *lateness,
                   int64_t now)
{
    if (reporter >= PAGE_REPORTERS)
        return;
    struct page_late *late = &writer->page->late[reporter];
    unsigned changes = atomic_load_explicit(&late->changes, memory_order_relaxed) | 1;
    atomic_store_explicit(&late->changes, changes, memory_order_release);
    set_mark(late, lateness->total, writer->page->head.identity.opened, now);
    atomic_store_explicit(&late->rank, lateness->rank + 1, memory_order_release);
    set_time(&late->longest, lateness->longest);
    set(&late->count, lateness->count);
    set_time(&late->total, lateness->total);
    atomic_store_explicit(&late->changes, changes + 1, memory_order_release);
}

void page_add_negotiation(struct page_writer *writer, int64_t time)
{
    struct page_negotiations *all = &writer->page->negotiations;
    int64_t limit = CLOCK_SECOND / 10000;
    int bucket = 0;
    for (; bucket < PAGE_NEGOTIATIONS - 1 && time > limit; limit *= 10)
        bucket++;
    uint64_t count = atomic_load_explicit(&all->counts[bucket], memory_order_relaxed);
    int64_t total = atomic_load_explicit(&all->total, memory_order_relaxed);
    atomic_store_explicit(&all->counts[bucket], count + 1, memory_order_relaxed);
    atomic_store_explicit(&all->total, total + time, memory_order_relaxed);
}

/* ---- steps --------------------------------------------------------------------------------------------- */

void page_stepped(struct page_writer *writer, uint64_t count, int64_t number, int64_t now)
{
    struct page *page = writer->page;
    struct page_step *step = &page->steps[count % PAGE_STEPS];
    set(&step->count, 0);
    set_time(&step->number, number);
    set_time(&step->reported, now);
    set(&step->samples, 0);
    set(&step->count, count);
    set_time(&page->head.step, number);
    set_time(&page->head.stepped, now);
    set(&page->head.steps, count);
}

void page_describe_step(struct page_writer *writer, int64_t number, uint64_t samples)
{
    struct page *page = writer->page;
    uint64_t count = atomic_load_explicit(&page->head.steps, memory_order_relaxed);
    struct page_step *step = &page->steps[count % PAGE_STEPS];
    set_time(&step->number, number);
    set_time(&page->head.step, number);
    set(&step->samples, atomic_load_explicit(&step->samples, memory_order_relaxed) + samples);
    set(&page->head.samples, atomic_load_explicit(&page->head.samples, memory_order_relaxed) + samples);
}

/* ---- values -------------------------------------------------------------------------------------------- */

uint32_t page_name_of(const struct page_writer *writer, uint32_t place)
{
    return place ? atomic_load_explicit(&writer->page->records[place - 1].name, memory_order_relaxed) : 0;
}

bool page_has_name(const struct page_writer *writer, uint32_t id)
{
    const struct page_name *name = &writer->page->names[id % PAGE_NAMES];
    return id && !(id & PAGE_COUNTED) && atomic_load_explicit(&name->id, memory_order_relaxed) == id;
}

uint32_t page_uses(const struct page_writer *writer, uint32_t id)
{
    const struct page_name *name = &writer->page->names[id % PAGE_NAMES];
    return page_has_name(writer, id) ? atomic_load_explicit(&name->uses, memory_order_relaxed) : 0;
}

uint32_t page_names(const struct page_writer *writer)
{
    return writer->name_id < PAGE_NAMES ? writer->name_id : PAGE_NAMES;
}

static const struct page_step *step_of(const struct page_writer *writer, uint64_t count)
{
    const struct page_step *step = &writer->page->steps[count % PAGE_STEPS];
    return atomic_load_explicit(&step->count, memory_order_acquire) == count ? step : NULL;
}

uint64_t page_steps_before(const struct page_writer *writer, uint32_t place)
{
    uint64_t count = atomic_load_explicit(&writer->page->head.steps, memory_order_relaxed);
    if (!place)
        return count;
    const struct page_record *record = &writer->page->records[place - 1];
    int64_t submitted = atomic_load_explicit(&record->submitted, memory_order_relaxed);
    for (; count; count--) {
        const struct page_step *step = step_of(writer, count);
        if (!step || atomic_load_explicit(&step->reported, memory_order_relaxed) <= submitted)
            return count;
    }
    return count;
}

int64_t page_step(const struct page_writer *writer, uint32_t place)
{
    uint64_t count = page_steps_before(writer, place);
    const struct page_step *own = step_of(writer, count + 1);
    if (own) /* it has been reported since */
        return atomic_load_explicit(&own->number, memory_order_relaxed);
    if (count) {
        const struct page_step *before = step_of(writer, count);
        return before ? atomic_load_explicit(&before->number, memory_order_relaxed) + 1 : 0;
    }
    return page_uses(writer, page_name_of(writer, place));
}

void page_set_nan(struct page_writer *writer, const char *tensor, int64_t step)
{
    struct page_head *head = &writer->page->head;
    char text[PAGE_NAN_TEXT] = "";
    if (atomic_load_explicit(&head->nans, memory_order_relaxed))
        return;
    append_text(text, sizeof text, "%s", tensor);
    set_time(&head->nan_step, step);
    page_set_words(head->nan, text, sizeof text);
    set(&head->nans, 1);
}

void page_set_check(struct page_writer *writer, const char *difference)
{
    struct page_head *head = &writer->page->head;
    char text[PAGE_DIVERGENCE_TEXT] = "";
    uint64_t number = atomic_load(&head->parameter_checks) + 1;
    append_text(text, sizeof text, "%s", difference ? difference : "");
    set(&head->difference, 0);
    page_set_words(head->divergence, text, sizeof text);
    set(&head->difference, number);
    if (difference)
        set(&head->divergences, atomic_load(&head->divergences) + 1);
    set(&head->parameter_checks, number);
}

void page_set_progress_thread(struct page_writer *writer)
{
    set_time(&writer->page->head.progress_thread, syscall(SYS_gettid));
}

/* ---- callers ------------------------------------------------------------------------------------------- */

unsigned page_sleeps(struct page_writer *writer, uint32_t place, int64_t since)
{
    struct page *page = writer->page;
    uint64_t thread = (uint64_t)syscall(SYS_gettid);
    for (unsigned i = 0; i < PAGE_CALLERS; i++) {
        struct page_caller *caller = &page->head.callers[i];
        uint64_t before = atomic_load(&caller->thread);
        int64_t paused = before ? atomic_load(&caller->paused) : 0;
        if (before && !(paused && (before == thread || since - paused > PAGE_PAUSE)))
            continue;
        if (!atomic_compare_exchange_strong(&caller->thread, &before, thread))
            continue;
        set(&caller->record, place ? atomic_load(&page->records[place - 1].number) : 0);
        set_time(&caller->since, since);
        set_time(&caller->paused, 0);
        return i;
    }
    return PAGE_CALLERS;
}

void page_woken(struct page_writer *writer, unsigned caller)
{
    if (caller < PAGE_CALLERS)
        set(&writer->page->head.callers[caller].thread, 0);
}

void page_paused(struct page_writer *writer, unsigned caller, int64_t now)
{
    if (caller < PAGE_CALLERS)
        set_time(&writer->page->head.callers[caller].paused, now);
}
