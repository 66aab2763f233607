/* spawn.c - starts one rank: its environment, its files, and what it means when the command can't be started.
 */
#include "local.h"
#include "child.h"
#include "environment.h"
#include "say.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the process --------------------------------------------------------------------------------------- */

hvd_code rank_open_copies(struct rank *rank, hvd_status *status)
{
    const struct options *options = rank->job->options;
    char path[PATH_MAX];
    hvd_code code = HVD_OK;
    if (options->task) {
        snprintf(path, sizeof path, "%s/report.%d", options->task, rank->rank);
        code = output_copy_to(&rank->outputs[OUTPUT_RESULT], path, status);
    }
    if (code || !options->output)
        return code;
    int digits = snprintf(NULL, 0, "%d", rank->job->size - 1);
    int length = snprintf(path, sizeof path, "%s/rank.%0*d", options->output, digits, rank->rank);
    if (length < 0 || (size_t)length + sizeof "/stdout" > sizeof path)
        return status_set(status, HVD_INVALID_ARGUMENT, "--output-filename: the path is too long");
    if ((mkdir(options->output, 0777) && errno != EEXIST) || (mkdir(path, 0777) && errno != EEXIST))
        return status_set_errno(status, errno, "--output-filename: can't make the folder %s", path);
    for (int i = 0; !code && i < OUTPUT_RESULT; i++) {
        snprintf(path + length, sizeof path - (size_t)length, "/%s", output_name(&rank->outputs[i]));
        code = output_copy_to(&rank->outputs[i], path, status);
    }
    return code;
}

static int output_count(const struct job *job)
{
    return job->function >= 0 ? OUTPUTS : OUTPUT_RESULT;
}

/* Descriptors of a rank: stdin, and what it writes to. */
static hvd_code open_files(struct rank *rank, int ends[CHILD_FILES], hvd_status *status)
{
    struct job *job = rank->job;
    hvd_code code = rank_open_copies(rank, status);
    for (int i = 0; !code && i < output_count(job); i++)
        code = output_open(&rank->outputs[i], &job->loop, &ends[1 + i], status);
    return code;
}

static hvd_code explain(struct rank *rank, int error, hvd_status *status)
{
    const char *command = rank->job->options->command[0];
    rank->exit_code = error == UV_ENOENT ? 127 : 126;
    if (error == UV_ENOENT)
        return status_set(
            status, HVD_SYSTEM,
            strchr(command, '/') && access(command, F_OK) == 0
                ? "can't start rank %d: '%s' needs an interpreter that is not there; see its first line"
                : "can't start rank %d: '%s' was not found; is it on the PATH?",
            rank->rank, command);
    if (error == UV_EMFILE)
        return status_set(status, HVD_SYSTEM, "can't start rank %d: too many open files; raise `ulimit -n`",
                          rank->rank);
    if (error == UV_EAGAIN)
        return status_set(status, HVD_SYSTEM,
                          "can't start rank %d: Resource temporarily unavailable: too many processes and "
                          "threads; raise `ulimit -u` or the container's limit",
                          rank->rank);
    return status_set_errno(status, -error, "can't start rank %d: '%s'", rank->rank, command);
}

/* Linux shares each core among sessions first (sched_autogroup). A rank that waits yields its core to a peer,
 * which only reaches one of its own session while programs of others want that core, too. Ranks that have a
 * core each get more of it in a session of their own. */
static bool share_cores(const struct job *job)
{
    int cores = platform_cores();
    return cores && job->count > cores;
}

static pid_t spawn(const struct rank *rank, char **environment, const int ends[CHILD_FILES])
{
    const struct job *job = rank->job;
    struct child child = {.words = job->options->command,
                          .environment = environment,
                          .file_count = 1 + output_count(job),
                          .end_signal = SIGKILL,
                          .shares_session = share_cores(job)};
    memcpy(child.files, ends, sizeof child.files);
    /* One reader of stdin at most; the others read an empty one. */
    if (job->function >= 0)
        child.files[0] = job->function;
    else if (rank->rank == 0)
        child.files[0] = job->input;
    return child_start(&child, job->guard);
}

hvd_code rank_start(struct rank *rank, hvd_status *status)
{
    int ends[CHILD_FILES] = {-1, -1, -1, -1};
    struct environment environment = {0};
    hvd_code code = environment_of_rank(&environment, rank, status);
    if (!code)
        code = open_files(rank, ends, status);
    if (!code) {
        pid_t pid = spawn(rank, environment.entries, ends);
        if (pid < 0) {
            code = explain(rank, pid, status);
        } else {
            rank->pid = pid;
            rank->running = true;
            rank->gone = false;
            rank->started = clock_now();
            say_rank_start(rank, environment.entries);
        }
    }
    /* The rank has its own by now. With ours open its output would never end. */
    for (int i = 0; i < CHILD_FILES; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    environment_free(&environment);
    return code;
}
