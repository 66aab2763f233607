/* report.c - see report.h. */
#include "report.h"
#include "changes.h"
#include "document.h"
#include "json.h"
#include "replace_file.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES    ((off_t)256 << 10) /* of a usual report */
#define FAILURES 32

hvd_code report_check(const char *path, hvd_status *status)
{
    char name[PATH_MAX];
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return status_set(status, HVD_INVALID_ARGUMENT, "--report %s: it exists and is no file", path);
    int fd = open_beside(path, name);
    if (fd < 0)
        return status_set_errno(status, errno, "--report %s: can't write %s", path, name);
    int error = posix_fallocate(fd, 0, BYTES);
    close(fd);
    unlink(name);
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return status_set_errno(status, error, "--report %s: can't write %s", path, name);
    return HVD_OK;
}

/* ---- the outcome --------------------------------------------------------------------------------------- */

static void write_failure(const struct process *process, FILE *file)
{
    const struct output *errors = &process->outputs[OUTPUT_STDERR];
    char text[1200];
    const char *line;
    fprintf(file, "{\"rank\": %d, ", process->place.rank);
    json_put_text(file, "host", process_host(process)->name);
    fputs(", ", file);
    say_describe(process, text, sizeof text);
    json_put_text(file, "text", text);
    fputs(", \"lines\": [", file);
    for (unsigned i = 0; (line = output_last_line(errors, i)); i++) {
        fputs(i ? ", " : "", file);
        json_put_string(file, line);
    }
    fputs("]}", file);
}

/* The first cause first, then the others by rank. */
static void write_failures(const struct table *table, const struct process *first, FILE *file)
{
    int written = 0;
    fputs("\"failures\": [", file);
    if (first) {
        write_failure(first, file);
        written++;
    }
    for (int i = 0; i < table->count && written < FAILURES; i++) {
        const struct process *process = table->list[i];
        if (process == first || !process->failed)
            continue;
        fputs(written++ ? ", " : "", file);
        write_failure(process, file);
    }
    fputs("]", file);
}

/* Of an elastic job whose ranks have changed: "; its ranks changed 3 times, ..." */
static void describe_changes(const struct changes *changes, char *text, size_t capacity)
{
    int resets = 0;
    text[0] = '\0';
    for (int kind = 0; changes && kind < CHANGE_KINDS; kind++)
        resets += changes->resets[kind];
    if (resets)
        snprintf(text, capacity,
                 "; its ranks changed %d time%s (%d lost or removed, %d added), which took %.1f s", resets,
                 resets == 1 ? "" : "s", changes->lost, changes->added,
                 (double)changes->interrupted / CLOCK_SECOND);
}

static void put_changes(const struct changes *changes, FILE *file)
{
    static const char *const names[CHANGE_KINDS] = CHANGE_NAMES;
    fputs("\"elastic\": {\"resets\": {", file);
    for (int kind = 0; kind < CHANGE_KINDS; kind++)
        fprintf(file, "%s\"%s\": %d", kind ? ", " : "", names[kind], changes->resets[kind]);
    fprintf(file, "}, \"ranks_lost\": %d, \"ranks_added\": %d, \"interrupted_seconds\": %.3f}, ",
            changes->lost, changes->added, (double)changes->interrupted / CLOCK_SECOND);
}

static void put_time(FILE *file)
{
    char text[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_put_text(file, "time", text);
    fputs(", ", file);
}

/* An interrupted job ends by a signal to the launcher, and has no failure to report. */
static void write_outcome(const struct sampler *sampler, const struct outcome *outcome, FILE *file)
{
    char text[320], changed[160];
    double seconds = (double)(clock_now() - sampler->started) / CLOCK_SECOND;
    describe_changes(sampler->table->changes, changed, sizeof changed);
    if (outcome->exit_code == 0)
        snprintf(text, sizeof text, "the job ended well after %.0f s%s", seconds, changed);
    else if (outcome->interrupted)
        snprintf(text, sizeof text, "%s ended the job after %.0f s%s", signal_name(outcome->exit_code - 128),
                 seconds, changed);
    else
        snprintf(text, sizeof text, "the job ended after %.0f s with exit code %d%s", seconds,
                 outcome->exit_code, changed);
    fprintf(file, "{\"exit_code\": %d, \"interrupted\": %s, \"seconds\": %.1f, ", outcome->exit_code,
            outcome->interrupted ? "true" : "false", seconds);
    if (sampler->table->changes)
        put_changes(sampler->table->changes, file);
    put_time(file);
    json_put_text(file, "text", *outcome->verdict ? outcome->verdict : text);
    fputs(", ", file);
    write_failures(sampler->table, outcome->first, file);
    fputs("}", file);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static char *make_data(const struct sampler *sampler, const struct outcome *outcome)
{
    char *data = NULL;
    size_t length;
    FILE *file = open_memstream(&data, &length);
    if (!file)
        return NULL;
    const char *status = sampler->before_end ? sampler->before_end : sampler->status;
    fprintf(file, "{\"status\": %s, \"course\": ", status ? status : "null");
    course_write(sampler->course, file);
    fputs(", \"outcome\": ", file);
    write_outcome(sampler, outcome, file);
    fputs("}", file);
    if (!fclose(file))
        return data;
    free(data);
    return NULL;
}

void report_write(struct sampler *sampler, const struct outcome *outcome)
{
    const char *path = sampler->table->options->report;
    char *data = make_data(sampler, outcome), *text = NULL, cost[256];
    size_t length = 0;
    hvd_status status;
    FILE *file = data ? open_memstream(&text, &length) : NULL;
    if (file)
        document_write(file, data);
    hvd_code code = file && !fclose(file) ? replace_file("--report", path, text, length, &status)
                                          : status_no_memory(&status);
    course_cost(sampler->course, cost, sizeof cost);
    if (code)
        say(sampler->table, "%s; there is no report", status.text);
    else
        say(sampler->table, "report: %s (%s)", path, cost);
    free(data);
    free(text);
}
