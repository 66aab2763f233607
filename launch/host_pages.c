/* host_pages.c - see host_pages.h. */
#include "host_pages.h"

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
#define MOST_LATE 8            /* ranks of a job whose stacks are requested */
#define HOLDERS   4 /* processes with the page open: the rank, its launcher, children just forked */

struct found {
    ino_t inode;
    int fd;
    int holders[HOLDERS];
    int holder_count;
    int64_t glanced; /* clock_now's; 0: it was not */
    bool chosen, requested;
    unsigned question;
    struct rank_view view;
};

struct host_pages {
    struct found *list;
    int count, capacity;
    struct page_copies *copies;
    hvd_status other; /* of a page of another version; code HVD_OK: there is none */
};

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
        rank_view_free(&pages->list[i].view);
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

/* Returns the id that a process has for itself, in a container possibly another one than here. */
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
    struct rank_view *view = &found->view;
    const struct page_summary *page = &view->page;
    bool started = page->state == PAGE_STARTED;
    int id = started ? page->child : page->identity.process;
    uint64_t start = started ? page->child_start : page->identity.process_start;
    view->process = runs(id, start, &view->system) ? id : 0;
    for (int i = 0; !view->process && i < found->holder_count; i++) {
        if (runs(found->holders[i], start, &view->system) && own_id(found->holders[i]) == id)
            view->process = found->holders[i];
    }
    if (!view->process)
        view->system = (struct platform_process){0};
    view->memory_bytes = view->system.page_count * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* A wait in Horovod is mostly sleep, so it is taken from the time in which the thread neither ran nor waited
 * for a processor. */
static struct rank_view_times times_of(const struct rank_view *view, int64_t now)
{
    const struct page_identity *identity = &view->page.identity;
    struct rank_view_times times = {0};
    if (!view->process || !identity->opened)
        return times;
    int64_t left = rank_view_outside(view, now);
    if (view->system.running > identity->running)
        times.running = view->system.running - identity->running;
    if (view->system.runnable > identity->runnable)
        times.runnable = view->system.runnable - identity->runnable;
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
        found->view.ended_before = glance.ended;
        found->glanced = clock_now();
        joined = joined && glance.state >= PAGE_JOINING;
    }
    return joined;
}

/* Of ranks in this network namespace. Without memory or the kernel's answer nothing is known of them. */
static void read_sockets(struct host_pages *pages)
{
    if (pages->count <= 0)
        return;
    int *processes = calloc((size_t)pages->count, sizeof *processes);
    struct sockets *sockets = calloc((size_t)pages->count, sizeof *sockets);
    for (int i = 0; processes && i < pages->count; i++)
        processes[i] = pages->list[i].view.process;
    bool known = processes && sockets && sockets_read(processes, pages->count, sockets, NULL) == HVD_OK;
    for (int i = 0; known && i < pages->count; i++) {
        sockets_free(&pages->list[i].view.sockets);
        pages->list[i].view.sockets = sockets[i];
    }
    free(processes);
    free(sockets);
}

void host_pages_read(struct host_pages *pages)
{
    struct platform_load load = platform_load();
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        struct rank_view *view = &found->view;
        hvd_status status;
        int64_t now = clock_now();
        hvd_code code = page_read(found->fd, pages->copies, now, &view->page, &status);
        view->seen = !code;
        if (code == HVD_UNSUPPORTED)
            status_copy(&pages->other, &status);
        if (code)
            continue;
        view->seconds = found->glanced ? (double)(now - found->glanced) / CLOCK_SECOND : 0;
        find_process(found);
        view->times = times_of(view, now);
        view->engine_ns = platform_thread_running(view->process, view->page.progress_thread);
        view->load = load;
    }
    read_sockets(pages);
}

/* ---- stacks -------------------------------------------------------------------------------------------- */

/* Since when the rank is in its program, or its first request waits: since its last operation. */
static int64_t idle_since(const struct rank_view *view)
{
    const struct page_summary *page = &view->page;
    int64_t since = page->progress ? page->progress : page->identity.opened;
    if (page->request_count && page->requests[0].submitted < since)
        since = page->requests[0].submitted;
    return since;
}

/* Of ranks that wait, those that do it for the same request are alike. */
static bool waits_alike(const struct rank_view *one, const struct rank_view *other)
{
    const struct page_summary *a = &one->page, *b = &other->page;
    return rank_view_state(one) == RANK_VIEW_WAITS && rank_view_state(other) == RANK_VIEW_WAITS &&
           a->request_count && b->request_count && strcmp(a->requests[0].title, b->requests[0].title) == 0;
}

/* Returns true if the rank may be late, or be the first one that waits in a request. */
static bool is_wanted(const struct host_pages *pages, const struct found *found, int64_t now)
{
    const struct rank_view *view = &found->view;
    int late = 0;
    if (now - idle_since(view) < IDLE)
        return false;
    for (const struct found *other = pages->list; other < found; other++) {
        if (!other->chosen || strcmp(other->view.page.identity.job, view->page.identity.job) != 0)
            continue;
        if (waits_alike(&other->view, view))
            return false;
        late += rank_view_state(&other->view) == RANK_VIEW_PROGRAM;
    }
    return rank_view_state(view) == RANK_VIEW_WAITS || late < MOST_LATE;
}

void host_pages_forget(struct host_pages *pages, const char *job)
{
    for (int i = 0; i < pages->count; i++) {
        struct rank_view *view = &pages->list[i].view;
        if (strncmp(view->page.identity.job, job, strlen(job)) == 0)
            rank_view_free(view);
    }
}

void host_pages_request(struct host_pages *pages, enum stacks stacks, const char *job)
{
    int64_t now = clock_now();
    hvd_status status;
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        enum rank_view_state state = rank_view_state(&found->view);
        bool runs = state == RANK_VIEW_PROGRAM || state == RANK_VIEW_WAITS || state == RANK_VIEW_JOINING;
        bool named = !job || strncmp(found->view.page.identity.job, job, strlen(job)) == 0;
        found->chosen =
            stacks != STACKS_NONE && runs && named && (stacks == STACKS_ALL || is_wanted(pages, found, now));
        if (found->chosen)
            found->requested = page_stack_request(found->fd, &found->question, &status) == HVD_OK;
    }
}

bool host_pages_answers(struct host_pages *pages, bool last)
{
    bool whole = true;
    char *text = malloc(PAGE_STACK_TEXT);
    for (int i = 0; text && i < pages->count; i++) {
        struct found *found = &pages->list[i];
        if (!found->requested || found->view.stack)
            continue;
        size_t length = page_stack_read(found->fd, found->question, last, text);
        found->view.stack = length ? stack_parse(text, length) : NULL;
        whole = whole && found->view.stack;
    }
    free(text);
    return whole;
}

void host_pages_visit(const struct host_pages *pages, void (*visit)(int fd, void *argument), void *argument)
{
    for (int i = 0; i < pages->count; i++)
        visit(pages->list[i].fd, argument);
}

struct rank_view *host_pages_views(struct host_pages *pages, int *count)
{
    struct rank_view *views = pages->count ? calloc((size_t)pages->count, sizeof *views) : NULL;
    *count = 0;
    for (int i = 0; views && i < pages->count; i++) {
        struct rank_view *view = &pages->list[i].view;
        if (!view->seen)
            continue;
        views[(*count)++] = *view;
        *view = (struct rank_view){0};
    }
    return views;
}
