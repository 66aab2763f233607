/* traces.c - see traces.h. What ranks record survives them: their pages are kept by the process that has
 * started them, and agents send what they find there. */
#include "traces.h"
#include "clocks.h"
#include "rank_trace.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define FAILURE_SPAN (2 * CLOCK_SECOND)
#define KEPT         8 /* failed jobs in the folder */
#define PATTERN      "horovod-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f].json"

/* Requests in all files: about 26 and 104 MB. The smallest share of a rank shows what it did last. */
enum { MOST_OF_FAILURE = 100000, MOST_OF_ALL = 400000, LEAST_OF_RANK = 16 };

#define ROOM 8 /* times the size of the file must be free */

/* ---- settings ------------------------------------------------------------------------------------------ */

static bool wants_all(const struct settings *settings)
{
    return strcmp(settings->timeline_ranks, "all") == 0;
}

static bool wants_failures(const struct settings *settings)
{
    return *settings->failure_timeline && strcmp(settings->failure_timeline, "off") != 0;
}

hvd_code traces_check(const struct settings *settings, hvd_status *status)
{
    bool has_file = *settings->timeline && strcmp(settings->timeline, "DYNAMIC") != 0;
    if (!wants_all(settings) && strcmp(settings->timeline_ranks, "0") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--timeline-ranks %s: it is '0' (rank 0 writes all that happens) or 'all' "
                          "(horovodrun writes what all ranks did last)",
                          settings->timeline_ranks);
    if (wants_all(settings) && !has_file)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--timeline-ranks all needs the name of a file: --timeline-filename F");
    return HVD_OK;
}

hvd_code traces_prepare(const struct settings *settings, hvd_status *status)
{
    if (!wants_all(settings))
        return HVD_OK;
    int file = open(settings->timeline, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
    if (file < 0)
        return status_set_errno(status, errno, "can't open the timeline file %s", settings->timeline);
    close(file);
    return HVD_OK;
}

struct history_window traces_window(const struct table *table, bool failed)
{
    struct history_window window = {0};
    int most = 0;
    if (wants_all(table->settings)) {
        most = MOST_OF_ALL;
    } else if (failed && wants_failures(table->settings) && table->size > 1) {
        most = MOST_OF_FAILURE;
        window.span = FAILURE_SPAN;
    }
    if (most)
        most = most / table->size > LEAST_OF_RANK ? most / table->size : LEAST_OF_RANK;
    window.most = most < PAGE_RECORDS ? most : PAGE_RECORDS;
    return window;
}

/* ---- what is written ----------------------------------------------------------------------------------- */

struct collected {
    struct traced_rank *ranks; /* [count] */
    struct history *own;       /* [count]: read here */
    int count;
};

static void add_process(struct collected *collected, const struct process *process,
                        const struct history_window *window, struct page_copies *copies)
{
    struct traced_rank *rank = &collected->ranks[collected->count];
    struct history *own = &collected->own[collected->count++];
    hvd_status status; /* a page without records is left out */
    *rank = (struct traced_rank){
        .rank = process->place.rank, .host = process_host(process)->name, .history = &process->history};
    if (process->page >= 0) {
        history_read(process->page, copies, window, clock_now(), own, &status);
        rank->history = own;
    }
    if (process->running || !process->exit_code)
        return;
    rank->ended = process->ended;
    say_outcome(process->exit_code, process->signal, rank->end, sizeof rank->end);
}

/* Finds out by how much the clocks of the ranks' hosts are ahead. Without memory they stay as they are. */
static void align(const struct table *table, struct collected *collected)
{
    struct clock_rank *clocks = calloc((size_t)collected->count + 1, sizeof *clocks);
    int64_t *ahead = calloc((size_t)table->hosts->count + 1, sizeof *ahead);
    hvd_status status;
    for (int i = 0; clocks && ahead && i < collected->count; i++) {
        int host = table->starter->clock(table->list[i], &collected->ranks[i].ahead);
        clocks[i] = (struct clock_rank){.host = host, .history = collected->ranks[i].history};
        ahead[host] = collected->ranks[i].ahead;
    }
    if (clocks && ahead &&
        clocks_correct(clocks, collected->count, ahead, table->hosts->count, &status) == HVD_OK) {
        for (int i = 0; i < collected->count; i++)
            collected->ranks[i].ahead = ahead[clocks[i].host];
    }
    free(clocks);
    free(ahead);
}

static void collect(const struct table *table, const struct history_window *window,
                    struct collected *collected)
{
    struct page_copies *copies = page_copies_create();
    collected->ranks = calloc((size_t)table->count + 1, sizeof *collected->ranks);
    collected->own = calloc((size_t)table->count + 1, sizeof *collected->own);
    for (int i = 0; copies && collected->ranks && collected->own && i < table->count; i++)
        add_process(collected, table->list[i], window, copies);
    if (table->starter->clock)
        align(table, collected);
    page_copies_free(copies);
}

static void collected_free(struct collected *collected)
{
    for (int i = 0; i < collected->count; i++)
        history_free(&collected->own[i]);
    free(collected->own);
    free(collected->ranks);
}

/* ---- the folder of failures ---------------------------------------------------------------------------- */

/* Removes the oldest traces beyond those that are kept. */
static void remove_oldest(int folder)
{
    for (;;) {
        char oldest[NAME_MAX + 1] = "";
        struct stat info, first = {0};
        int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
        DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
        for (const struct dirent *entry; stream && (entry = readdir(stream));) {
            if (fnmatch(PATTERN, entry->d_name, 0) ||
                fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode) ||
                info.st_uid != geteuid())
                continue;
            count++;
            if (*oldest && info.st_mtim.tv_sec >= first.st_mtim.tv_sec)
                continue;
            first = info;
            snprintf(oldest, sizeof oldest, "%s", entry->d_name);
        }
        if (stream)
            closedir(stream);
        if (count < KEPT || unlinkat(folder, oldest, 0))
            return;
    }
}

/* Makes the folder and opens it; -1: errno says why not. A part that is there may be anybody's. */
static int open_folder(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *at = '/';
        if (!made)
            return -1;
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Opens the folder of the setting; that of the default may also be in the folder for temporary files. */
static int find_folder(const char *setting, char path[PATH_MAX])
{
    const char *home = getenv("HOME"), *temporary = getenv("TMPDIR");
    bool in_home = strncmp(setting, "~/", 2) == 0;
    snprintf(path, PATH_MAX, "%.2000s%.2000s", in_home && home ? home : "", setting + in_home);
    int folder = in_home && !home ? -1 : open_folder(path);
    if (folder >= 0 || !in_home)
        return folder;
    snprintf(path, PATH_MAX, "%.2000s/horovod-%u", temporary && *temporary ? temporary : "/tmp", geteuid());
    return open_folder(path);
}

static bool has_room(int folder, int64_t requests)
{
    struct statvfs system;
    return fstatvfs(folder, &system) || /* unknown: a full disk is noticed then */
           (double)system.f_bavail * (double)system.f_frsize >
               (double)ROOM * RANK_TRACE_BYTES * (double)requests;
}

/* Makes the file of a failed job; path gets its name. NULL: errno says why not. */
static FILE *open_failure(const struct table *table, int64_t requests, char path[PATH_MAX])
{
    char name[64];
    int folder = find_folder(table->settings->failure_timeline, path), file = -1;
    FILE *stream = NULL;
    if (folder < 0)
        return NULL;
    snprintf(name, sizeof name, "horovod-%.8s.json", table->id);
    remove_oldest(folder);
    if (has_room(folder, requests))
        file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    else
        errno = ENOSPC;
    if (file >= 0)
        stream = fdopen(file, "w");
    int error = errno;
    close(folder);
    append_text(path, PATH_MAX, "/%s", name);
    errno = error;
    return stream;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static int64_t nanoseconds_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

static void say_written(struct table *table, const struct rank_trace_size *size, int64_t bytes,
                        const char *path)
{
    char some[32] = "";
    if (size->ranks < table->size)
        snprintf(some, sizeof some, "%d of ", size->ranks);
    say(table, "the last %.2g s of %s%d ranks are in %s (%.1f MB); open it in https://ui.perfetto.dev",
        (double)size->span / CLOCK_SECOND, some, table->size, path, (double)bytes / 1e6);
}

static void write_file(struct table *table, const struct rank_trace *trace, bool all)
{
    char path[PATH_MAX] = "";
    struct rank_trace_size size = rank_trace_measure(trace);
    if (!all && !size.requests) /* the ranks have not used Horovod yet */
        return;
    snprintf(path, sizeof path, "%s", table->settings->timeline);
    FILE *file = all ? fopen(path, "we") : open_failure(table, size.requests, path);
    bool done = file && rank_trace_write(trace, file) && fflush(file) == 0 && !ferror(file);
    int error = done ? 0 : errno;
    int64_t bytes = file ? ftell(file) : 0;
    if (file)
        fclose(file);
    if (done) {
        say_written(table, &size, bytes, path);
        return;
    }
    if (file && !all)
        unlink(path);
    say(table, "can't write what the ranks did last to %s: %s", path, strerror(error));
}

void traces_write(struct table *table, bool failed)
{
    struct history_window window = traces_window(table, failed);
    struct collected collected = {0};
    if (!window.most)
        return;
    collect(table, &window, &collected);
    struct rank_trace trace = {.job = table->id,
                               .ranks = collected.ranks,
                               .count = collected.count,
                               .now = clock_now(),
                               .now_at = nanoseconds_since_1970()};
    write_file(table, &trace, wants_all(table->settings));
    collected_free(&collected);
}
