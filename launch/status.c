/* status.c - finds the pages of ranks on this host, reads each twice, and prints a table and a verdict for
 * each job. One thread.
 *
 * It asks nobody: pages are open files of the processes that write them, and of the launcher or agent that
 * has made them, and the system lists those of this user in /proc. */
#include "status.h"
#include "verdict.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BETWEEN_LOOKS (CLOCK_SECOND / 10)
#define HOLDERS       4 /* processes with the page open: the rank, its launcher, children just forked */

struct found {
    ino_t inode;
    int fd;
    int holders[HOLDERS];
    int holder_count;
    struct sight sight;
    bool readable;
};

struct pages {
    struct found *list;
    int count, capacity;
    hvd_status other; /* of a page of another version; code HVD_OK: there is none */
};

/* ---- finding ------------------------------------------------------------------------------------------- */

static struct found *add(struct pages *pages, const char *path, ino_t inode)
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

/* All memory files of the engine have one name; a page is recognized by its size, then by its head. */
static void visit_file(struct pages *pages, int process, const char *name)
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

static void visit_process(struct pages *pages, int process)
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

static void find(struct pages *pages)
{
    DIR *folder = opendir("/proc");
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (atoi(entry->d_name) > 0)
            visit_process(pages, atoi(entry->d_name));
    }
    if (folder)
        closedir(folder);
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
}

static void look(struct pages *pages, struct page_copies *copies)
{
    for (int i = 0; i < pages->count; i++) {
        struct found *found = &pages->list[i];
        hvd_status status;
        uint64_t before = found->sight.page.succeeded + found->sight.page.failed;
        page_summary_free(&found->sight.page);
        hvd_code code = page_read(found->fd, copies, clock_now(), &found->sight.page, &status);
        found->readable = !code;
        found->sight.ended_before = before;
        if (code == HVD_UNSUPPORTED)
            status_copy(&pages->other, &status);
        if (found->readable)
            find_process(found);
    }
}

/* ---- printing ------------------------------------------------------------------------------------------ */

struct row {
    char state[PAGE_TITLE + 32];
    int first; /* the first rank with this state */
    int count;
    double in_horovod; /* sum of shares */
    double memory;     /* the largest, in bytes */
};

static double share_in_horovod(const struct page_summary *page, int64_t now)
{
    uint64_t waits = page->wait_ns;
    for (int i = 0; i < page->thread_count && i < 1; i++)
        waits += (uint64_t)(now - page->threads[i].since);
    int64_t age = now - page->identity.opened;
    double share = age > 0 ? (double)waits / (double)age : 0;
    return share < 1 ? share : 1;
}

/* Equal ranks are one row. Returns the number of rows; `of` has the row of each rank. */
static int make_rows(const struct sight *ranks, int count, int64_t now, struct row *rows, uint8_t *of)
{
    int made = 0;
    for (int i = 0; i < count; i++) {
        struct row row = {.first = i};
        int at = 0;
        verdict_state(&ranks[i], row.state, sizeof row.state);
        while (at < made && strcmp(rows[at].state, row.state) != 0)
            at++;
        if (at == UINT8_MAX)
            at--;
        if (at == made)
            rows[made++] = row;
        double memory = (double)ranks[i].system.page_count * (double)sysconf(_SC_PAGESIZE);
        rows[at].count++;
        rows[at].in_horovod += share_in_horovod(&ranks[i].page, now);
        rows[at].memory = memory > rows[at].memory ? memory : rows[at].memory;
        of[i] = (uint8_t)at;
    }
    return made;
}

static void print_row(const struct sight *ranks, int count, const struct row *row, const uint8_t *of, int at,
                      bool late)
{
    char list[64];
    verdict_ranks(ranks, count, of, at, list, sizeof list);
    printf("%-12s %-52s %6.0f %%  %5.2f GB%s\n", list, row->state, 100 * row->in_horovod / row->count,
           row->memory / 1e9, late ? "   <- late" : "");
}

/* The rows of few ranks come first. */
static void print_table(const struct sight *ranks, int count, const struct page_waitings *waitings,
                        int64_t now)
{
    struct row *rows = calloc((size_t)count, sizeof *rows);
    uint8_t *of = calloc((size_t)count, 1);
    const uint8_t *parts = waitings->count ? waitings->list[0].parts : NULL;
    int made = rows && of ? make_rows(ranks, count, now, rows, of) : 0;
    printf("%-12s %-52s %8s  %8s\n", "rank", "state", "in Horovod", "memory");
    for (int members = 1; made && members <= count; members++) {
        for (int i = 0; i < made; i++) {
            if (rows[i].count == members)
                print_row(ranks, count, &rows[i], of, i, parts && parts[rows[i].first] == PART_MISSING);
        }
    }
    free(rows);
    free(of);
}

static void print_waiting(const struct page_waitings *waitings, int64_t now)
{
    if (!waitings->count)
        return;
    printf("waiting      ");
    for (int i = 0; i < waitings->count && i < 3; i++)
        printf("%s%s", i ? ", " : "", waitings->list[i].request->title);
    printf("%s (%d in all, the first for %.1f s)\n", waitings->count > 3 ? ", ..." : "", waitings->count,
           (double)(now - waitings->list[0].since) / CLOCK_SECOND);
}

static int print_job(const struct sight *ranks, int count, double seconds)
{
    char text[VERDICT_TEXT];
    struct page_waitings waitings;
    hvd_status status;
    int64_t now = clock_now();
    const struct page_identity *identity = &ranks->page.identity;
    struct page_summary *pages = calloc((size_t)count, sizeof *pages);
    if (!pages)
        return VERDICT_BROKEN;
    for (int i = 0; i < count; i++)
        pages[i] = ranks[i].page;
    enum verdict verdict = VERDICT_BROKEN;
    if (page_waitings_find(pages, count, &waitings, &status)) {
        printf("%s\n", status.text);
    } else {
        verdict = verdict_write(ranks, count, &waitings, now, seconds, text, sizeof text);
        printf("%s\n\njob %s  %d of its %d ranks on host %s  epoch %d  step %u\n", text, identity->job, count,
               identity->size, identity->host, identity->epoch, ranks->page.steps);
        print_waiting(&waitings, now);
        putchar('\n');
        print_table(ranks, count, &waitings, now);
    }
    page_waitings_free(&waitings);
    free(pages);
    return (int)verdict;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

/* By job, then by epoch, the newest first, then by rank, the newest process of a rank first. */
static int compare(const void *one, const void *other)
{
    const struct found *a = one, *b = other;
    const struct page_identity *x = &a->sight.page.identity, *y = &b->sight.page.identity;
    if (a->readable != b->readable)
        return a->readable ? -1 : 1;
    int order = strcmp(x->job, y->job);
    if (!order)
        order = (x->epoch < y->epoch) - (x->epoch > y->epoch);
    if (!order)
        order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->opened < y->opened) - (x->opened > y->opened);
}

/* Prints the job of the first page. Returns how many pages are of that job. */
static int print_first(const struct found *list, int count, const char *job, double seconds, int *worst)
{
    const struct page_identity *first = &list->sight.page.identity;
    int end = 0, ranks = 0;
    struct sight *sights = calloc((size_t)count, sizeof *sights);
    for (; end < count && list[end].readable; end++) {
        const struct page_identity *each = &list[end].sight.page.identity;
        if (strcmp(each->job, first->job) != 0)
            break;
        bool newest =
            each->epoch == first->epoch && (!ranks || sights[ranks - 1].page.identity.rank != each->rank);
        if (sights && newest)
            sights[ranks++] = list[end].sight;
    }
    if (ranks && (!job || strncmp(first->job, job, strlen(job)) == 0)) {
        if (*worst >= 0)
            putchar('\n');
        int verdict = print_job(sights, ranks, seconds);
        *worst = verdict > *worst ? verdict : *worst;
    }
    free(sights);
    return end;
}

int status_print(const char *job)
{
    struct pages pages = {0};
    struct page_copies *copies = page_copies_create();
    struct timespec wait = {0, BETWEEN_LOOKS};
    int worst = -1;
    if (!copies)
        return VERDICT_NO_JOB;
    find(&pages);
    look(&pages, copies);
    int64_t first = clock_now();
    nanosleep(&wait, NULL);
    look(&pages, copies);
    double seconds = (double)(clock_now() - first) / CLOCK_SECOND;
    qsort(pages.list, (size_t)pages.count, sizeof *pages.list, compare);
    for (int i = 0; i < pages.count && pages.list[i].readable;)
        i += print_first(&pages.list[i], pages.count - i, job, seconds, &worst);
    if (pages.other.code)
        fprintf(stderr, "horovodrun: %s\n", pages.other.text);
    if (worst < 0)
        fprintf(stderr, "horovodrun: no job %s%sof this user runs on this host\n", job ? job : "",
                job ? " " : "");
    for (int i = 0; i < pages.count; i++) {
        page_summary_free(&pages.list[i].sight.page);
        close(pages.list[i].fd);
    }
    free(pages.list);
    page_copies_free(copies);
    return worst < 0 ? VERDICT_NO_JOB : worst;
}
