/* traces.c - see traces.h. What ranks record survives them: their pages are kept by the process that has
 * started them, and agents send what they find there. */
#include "traces.h"
#include "collected.h"
#include "say.h"

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
#include <unistd.h>

#define FAILURE_SPAN (2 * CLOCK_SECOND)
#define KEPT         8 /* failed jobs in the folder */
#define PATTERN      "horovod-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f].json"

#define MOST_OF_FAILURE 100000 /* requests: 26 MB */

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
        most = RANK_TRACE_MOST;
    } else if (failed && wants_failures(table->settings) && table->size > 1) {
        most = MOST_OF_FAILURE;
        window.span = FAILURE_SPAN;
    }
    if (most)
        window.most = collected_share(most, table->size);
    return window;
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

/* Makes the folder and opens it; -1: errno says why not. A part that is there may be anybody's; `own`: the
 * last one may not, nor be a link. */
static int open_folder(char *path, bool own)
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
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (own ? O_NOFOLLOW : 0));
    struct stat info;
    if (folder < 0 || !own || (fstat(folder, &info) == 0 && info.st_uid == geteuid()))
        return folder;
    close(folder);
    errno = EPERM;
    return -1;
}

/* Opens the folder of the setting; that of the default may also be in the folder for temporary files. */
static int find_folder(const char *setting, char path[PATH_MAX])
{
    const char *home = getenv("HOME"), *temporary = getenv("TMPDIR");
    bool in_home = strncmp(setting, "~/", 2) == 0;
    snprintf(path, PATH_MAX, "%.2000s%.2000s", in_home && home ? home : "", setting + in_home);
    int folder = in_home && !home ? -1 : open_folder(path, false);
    if (folder >= 0 || !in_home)
        return folder;
    snprintf(path, PATH_MAX, "%.2000s/horovod-%u", temporary && *temporary ? temporary : "/tmp", geteuid());
    return open_folder(path, true);
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

static void write_file(struct table *table, const struct rank_trace *trace, bool all)
{
    char path[PATH_MAX] = "";
    struct rank_trace_size size = rank_trace_measure(trace);
    if (!all && !size.requests) /* the ranks have not used Horovod yet */
        return;
    snprintf(path, sizeof path, "%s", table->settings->timeline);
    FILE *file = all ? fopen(path, "we") : open_failure(table, size.requests, path);
    int64_t bytes = file ? rank_trace_write(trace, file) : -1;
    int error = bytes < 0 ? errno : 0;
    if (file)
        fclose(file);
    if (!error) {
        char text[PATH_MAX + 256];
        rank_trace_describe(trace, table->size, path, bytes, text, sizeof text);
        say(table, "%s", text);
        return;
    }
    if (file && !all)
        unlink(path);
    say(table, "can't write what the ranks did last to %s: %s", path, strerror(error));
}

void traces_write(struct table *table, bool failed)
{
    struct history_window window = traces_window(table, failed);
    struct collected collected;
    if (!window.most)
        return;
    collected_take(&collected, table, &window);
    struct rank_trace trace = collected_trace(&collected, table->id);
    write_file(table, &trace, wants_all(table->settings));
    collected_free(&collected);
}
