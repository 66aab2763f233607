/* sight.c - see sight.h. */
#include "sight.h"

#include "base/clock.h"
#include "base/status.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define IDLE      CLOCK_SECOND /* ranks that do nothing for a shorter time are no news */
#define MOST_LATE 8            /* ranks of a job that are asked for their stacks */
#define HOLDERS   4 /* processes with the page open: the rank, its launcher, children just forked */

struct found {
    ino_t inode;
    int fd;
    int holders[HOLDERS];
    int holder_count;
    int64_t glanced; /* clock_now's; 0: it was not */
    bool chosen, asked;
    unsigned question;
    struct sight sight;
};

struct host_pages {
    struct found *list;
    int count, capacity;
    struct page_copies *copies;
    hvd_status other; /* of a page of another version; code HVD_OK: there is none */
};

void sight_free(struct sight *sight)
{
    page_summary_free(&sight->page);
    sockets_free(&sight->sockets);
    free(sight->stack);
    *sight = (struct sight){0};
}

enum sight_state sight_state(const struct sight *sight)
{
    static const enum sight_state by_page[] = {[PAGE_STARTED] = SIGHT_STARTED,
                                               [PAGE_JOINING] = SIGHT_JOINING,
                                               [PAGE_OPEN] = SIGHT_PROGRAM,
                                               [PAGE_FAILED] = SIGHT_FAILED,
                                               [PAGE_LEFT] = SIGHT_LEFT};
    enum page_state page = sight->page.state;
    if (!sight->seen)
        return SIGHT_UNSEEN;
    if (sight->process && (sight->system.state == 'T' || sight->system.state == 't'))
        return SIGHT_STOPPED;
    if (!sight->process && page == PAGE_STARTED && sight->page.child)
        return SIGHT_ENDED;
    if (!sight->process && (page == PAGE_JOINING || page == PAGE_OPEN))
        return SIGHT_ENDED;
    return page == PAGE_OPEN && sight->page.thread_count ? SIGHT_WAITS : by_page[page];
}

const struct page_request *sight_awaited(const struct sight *sight)
{
    const struct page_summary *page = &sight->page;
    for (int i = 0; i < page->thread_count; i++) {
        for (int j = 0; j < page->request_count; j++) {
            if (page->requests[j].number == page->threads[i].record)
                return &page->requests[j];
        }
    }
    return NULL;
}

/* ---- finding ------------------------------------------------------------------------------------------- */

struct host_pages *host_pages_create(void)
{
    struct host_pages *pages = calloc(1, sizeof *pages);
    if (pages && !(pages->copies = page_copies_create())) {
        free(pages);
        return NULL;
    }
    return pages;
}

void host_pages_free(struct host_pages *pages)
{
    for (int i = 0; pages && i < pages->count; i++) {
        sight_free(&pages->list[i].sight);
        close(pages->list[i].fd);
    }
    if (pages) {
        page_copies_free(pages->copies);
        free(pages->list);
    }
    free(pages);
}

static struct found *add(struct host_pages *pages, const char *path, ino_t inode)
{
    for (int i = 0; i < pages->count; i++) {
        if (pages->list[i].inode == inode)
            return &pages->list[i];
    }
    if (pages->count == pages->capacity) {
        int capacity = pages->capacity ? 2 * pages->capacity : 64;
        struct found *list = reallocarray(pages->list, (size_t)capacity, sizeof *list);
        if (!list)
            return NULL;
        pages->list = list;
        pages->capacity = capacity;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    pages->list[pages->count] = (struct found){.inode = inode, .fd = fd};
    return &pages->list[pages->count++];
}

bool host_pages_add(struct host_pages *pages, int fd)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fstat(fd, &info) == 0 && add(pages, path, info.st_ino) != NULL;
}

/* All memory files of the engine have one name; a page is recognized by its size, then by its head. */
static void visit_file(struct host_pages *pages, int process, const char *name)
{
    char path[64], target[64] = "";
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd/%.16s", process, name);
    if (readlink(path, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:horovod", 14) != 0 ||
        stat(path, &info) || info.st_size != (off_t)PAGE_BYTES)
        return;
    struct found *found = add(pages, path, info.st_ino);
    if (found && found->holder_count < HOLDERS)
        found->holders[found->holder_count++] = process;
}

static void visit_process(struct host_pages *pages, int process)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    if (stat(path, &info) || info.st_uid != geteuid())
        return;
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        visit_file(pages, process, entry->d_name);
    if (folder)
        closedir(folder);
}

void host_pages_find(struct host_pages *pages)
{
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (atoi(entry->d_name) > 0)
            visit_process(pages, atoi(entry->d_name));
    }
    if (folder)
        closedir(folder);
}

const char *host_pages_of_others(const struct host_pages *pages)
{
    return pages->other.code ? pages->other.text : NULL;
}

/* ---- looking ------------------------------------------------------------------------------------------- */

/* Returns the id by which a process knows itself, in a container possibly another one than here. */
static int own_id(int process)
{
    char path[64], line[256], *last;
    int id = process;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "NSpid:", 6) == 0 && (last = strrchr(line, '\t')))
            id = atoi(last);
    }
    if (file)
        fclose(file);
    return id;
}

static bool runs(int process, uint64_t start, struct platform_process *system)
{
    return platform_process(process, system) && system->start == start && system->state != 'Z';
}

/* Finds the process of the rank: by its id, since it may run on without its page, or, if it is in a
 * container, among those that have its page open. */
static void find_process(struct found *found)
{
    struct sight *sight = &found->sight;
    const struct page_summary *page = &sight->page;
    bool started = page->state == PAGE_STARTED;
    int id = started ? page->child : page->identity.process;
    uint64_t start = started ? page->child_start : page->identity.process_start;
    sight->process = runs(id, start, &sight->system) ? id : 0;
    for (int i = 0; !sight->process && i < found->holder_count; i++) {
        if (runs(found->holders[i], start, &sight->system) && own_id(found->holders[i]) == id)
            sight->process = found->holders[i];
    }
    if (!sight->process)
        sight->system = (struct platform_process){0};
    sight->memory_bytes = sight->system.page_count * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A wait in Horovod is mostly sleep, so it is taken from the time in which the thread neither ran nor waited
 * for a processor. */
static struct sight_times times_of(const struct sight *sight, int64_t now)
{
    const struct page_summary *page = &sight->page;
    const struct page_identity *identity = &page->identity;
    struct sight_times times = {0};
    if (!sight->process || !identity->opened)
        return times;
    int64_t left = now - identity->opened - (int64_t)page->all.wait_ns;
    if (page->thread_count)
        left -= now - page->threads[0].since;
    if (sight->system.running > identity->running)
        times.running = sight->system.running - identity->running;
    if (sight->system.runnable > identity->runnable)
        times.runnable = sight->system.runnable - identity->runnable;
    left -= (int64_t)(times.running + times.runnable);
    times.blocked = left > 0 ? (uint64_t)left : 0;
    return times;
}

bool host_pages_glance(struct host_pages *pages)
{
    bool joined = true;
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        struct page_glance glance;
        if (page_glance(found->fd, &glance, NULL))
            continue;
        found->sight.ended_before = glance.ended;
        found->glanced = clock_now();
        joined = joined && glance.state >= PAGE_JOINING;
    }
    return joined;
}

/* Of ranks in this network namespace. Without memory or the kernel's answer nothing is known of them. */
static void read_sockets(struct host_pages *pages)
{
    int *processes = pages->count ? calloc((size_t)pages->count, sizeof *processes) : NULL;
    struct sockets *sockets = pages->count ? calloc((size_t)pages->count, sizeof *sockets) : NULL;
    for (int i = 0; processes && i < pages->count; i++)
        processes[i] = pages->list[i].sight.process;
    bool known = processes && sockets && sockets_read(processes, pages->count, sockets, NULL) == HVD_OK;
    for (int i = 0; known && i < pages->count; i++) {
        sockets_free(&pages->list[i].sight.sockets);
        pages->list[i].sight.sockets = sockets[i];
    }
    free(processes);
    free(sockets);
}

void host_pages_read(struct host_pages *pages)
{
    struct platform_load load = platform_load();
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        struct sight *sight = &found->sight;
        hvd_status status;
        int64_t now = clock_now();
        hvd_code code = page_read(found->fd, pages->copies, now, &sight->page, &status);
        sight->seen = !code;
        if (code == HVD_UNSUPPORTED)
            status_copy(&pages->other, &status);
        if (code)
            continue;
        sight->seconds = found->glanced ? (double)(now - found->glanced) / CLOCK_SECOND : 0;
        find_process(found);
        sight->times = times_of(sight, now);
        sight->engine_ns = platform_thread_running(sight->process, sight->page.progress_thread);
        sight->load = load;
    }
    read_sockets(pages);
}

/* ---- stacks -------------------------------------------------------------------------------------------- */

/* Since when the rank is in its program, or its first request waits: since its last operation. */
static int64_t idle_since(const struct sight *sight)
{
    const struct page_summary *page = &sight->page;
    int64_t since = page->progress ? page->progress : page->identity.opened;
    if (page->request_count && page->requests[0].submitted < since)
        since = page->requests[0].submitted;
    return since;
}

/* Of ranks that wait, those that do it for the same request are alike. */
static bool waits_alike(const struct sight *one, const struct sight *other)
{
    const struct page_summary *a = &one->page, *b = &other->page;
    return sight_state(one) == SIGHT_WAITS && sight_state(other) == SIGHT_WAITS && a->request_count &&
           b->request_count && strcmp(a->requests[0].title, b->requests[0].title) == 0;
}

/* Returns true if the rank may be late, or be the first one that waits in a request. */
static bool is_wanted(const struct host_pages *pages, const struct found *found, int64_t now)
{
    const struct sight *sight = &found->sight;
    int late = 0;
    if (now - idle_since(sight) < IDLE)
        return false;
    for (const struct found *other = pages->list; other < found; other++) {
        if (!other->chosen || strcmp(other->sight.page.identity.job, sight->page.identity.job) != 0)
            continue;
        if (waits_alike(&other->sight, sight))
            return false;
        late += sight_state(&other->sight) == SIGHT_PROGRAM;
    }
    return sight_state(sight) == SIGHT_WAITS || late < MOST_LATE;
}

void host_pages_forget(struct host_pages *pages, const char *job)
{
    for (int i = 0; i < pages->count; i++) {
        struct sight *sight = &pages->list[i].sight;
        if (strncmp(sight->page.identity.job, job, strlen(job)) == 0)
            sight_free(sight);
    }
}

void host_pages_ask(struct host_pages *pages, enum stacks stacks, const char *job)
{
    int64_t now = clock_now();
    hvd_status status;
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        enum sight_state state = sight_state(&found->sight);
        bool runs = state == SIGHT_PROGRAM || state == SIGHT_WAITS || state == SIGHT_JOINING;
        bool named = !job || strncmp(found->sight.page.identity.job, job, strlen(job)) == 0;
        found->chosen =
            stacks != STACKS_NONE && runs && named && (stacks == STACKS_ALL || is_wanted(pages, found, now));
        if (found->chosen)
            found->asked = page_stack_ask(found->fd, &found->question, &status) == HVD_OK;
    }
}

bool host_pages_answers(struct host_pages *pages, bool last)
{
    bool whole = true;
    char *text = malloc(PAGE_STACK_TEXT);
    for (int i = 0; text && i < pages->count; i++) {
        struct found *found = &pages->list[i];
        if (!found->asked || found->sight.stack)
            continue;
        size_t length = page_stack_read(found->fd, found->question, last, text);
        found->sight.stack = length ? stack_parse(text, length) : NULL;
        whole = whole && found->sight.stack;
    }
    free(text);
    return whole;
}

void host_pages_visit(const struct host_pages *pages, void (*visit)(int fd, void *argument), void *argument)
{
    for (int i = 0; i < pages->count; i++)
        visit(pages->list[i].fd, argument);
}

struct sight *host_pages_take(struct host_pages *pages, int *count)
{
    struct sight *sights = pages->count ? calloc((size_t)pages->count, sizeof *sights) : NULL;
    *count = 0;
    for (int i = 0; sights && i < pages->count; i++) {
        struct sight *sight = &pages->list[i].sight;
        if (!sight->seen)
            continue;
        sights[(*count)++] = *sight;
        *sight = (struct sight){0};
    }
    return sights;
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
    int count = page->request_count < SIGHT_REQUESTS ? page->request_count : SIGHT_REQUESTS;
    put_number(count, body);
    for (int i = 0; i < count; i++)
        put_request(&page->requests[i], now, body);
}

static void get_requests(struct page_summary *page, int64_t now, struct wire_reader *body)
{
    int count = get_count(body, SIGHT_REQUESTS, REQUEST_BYTES);
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
    wire_put_u64(body, page->dropped + (page->request_count > SIGHT_REQUESTS));
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

static void get_stack(struct sight *sight, struct wire_reader *body)
{
    char *text = malloc(PAGE_STACK_TEXT + 1);
    if (!text || !wire_get_string(body, text, PAGE_STACK_TEXT + 1))
        body->failed = true;
    else if (*text)
        sight->stack = stack_parse(text, strlen(text));
    free(text);
}

void sight_put(const struct sight *sight, int64_t now, struct wire_writer *body)
{
    wire_put_u8(body, sight->seen);
    put_page(&sight->page, now, body);
    put_number(sight->process, body);
    wire_put_u8(body, (uint8_t)sight->system.state);
    wire_put_u64(body, sight->memory_bytes);
    wire_put_f64(body, sight->seconds);
    wire_put_u64(body, sight->ended_before);
    sockets_put(&sight->sockets, body);
    wire_put_u64(body, sight->times.running);
    wire_put_u64(body, sight->times.runnable);
    wire_put_u64(body, sight->times.blocked);
    wire_put_u64(body, sight->engine_ns);
    put_number(sight->load.runnable, body);
    put_number(sight->load.cores, body);
    wire_put_string(body, sight->stack ? sight->stack->answer : "");
}

bool sight_get(struct sight *sight, int64_t now, struct wire_reader *body)
{
    *sight = (struct sight){.seen = wire_get_u8(body)};
    get_page(&sight->page, now, body);
    sight->process = get_number(body);
    sight->system.state = (char)wire_get_u8(body);
    sight->memory_bytes = wire_get_u64(body);
    sight->seconds = get_number_up_to(1e9, body);
    sight->ended_before = wire_get_u64(body);
    if (!sockets_get(&sight->sockets, body))
        body->failed = true;
    sight->times.running = (uint64_t)get_nanoseconds(body);
    sight->times.runnable = (uint64_t)get_nanoseconds(body);
    sight->times.blocked = (uint64_t)get_nanoseconds(body);
    sight->engine_ns = (uint64_t)get_nanoseconds(body);
    sight->load.runnable = get_number(body);
    sight->load.cores = get_number(body);
    get_stack(sight, body);
    return !body->failed;
}
