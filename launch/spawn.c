/* spawn.c - see spawn.h. Every rank leads a session and process group of its own, so that one signal reaches
 * all that it has started, and the terminal's Ctrl-C reaches the launcher only. */
#include "spawn.h"

#include "base/clock.h"
#include "base/status.h"
#include "environment.h"
#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes FOLDER/rank.<rank>, with as many digits for every rank, and the two files in it. */
static hvd_code open_copies(struct rank *rank, hvd_status *status)
{
    const char *folder = rank->job->options->output;
    if (!folder)
        return HVD_OK;
    char path[2048];
    int digits = snprintf(NULL, 0, "%d", rank->job->size - 1);
    int length = snprintf(path, sizeof path, "%s/rank.%0*d", folder, digits, rank->rank);
    if (length < 0 || (size_t)length >= sizeof path)
        return status_set(status, HVD_INVALID_ARGUMENT, "--output-filename: the path is too long");
    if ((mkdir(folder, 0777) && errno != EEXIST) || (mkdir(path, 0777) && errno != EEXIST))
        return status_set_errno(status, errno, "--output-filename: can't make the folder %s", path);
    hvd_code code = output_copy_to(&rank->out, path, status);
    return code ? code : output_copy_to(&rank->err, path, status);
}

static hvd_code open_outputs(struct rank *rank, int ends[2], hvd_status *status)
{
    struct job *job = rank->job;
    hvd_code code = open_copies(rank, status);
    if (!code)
        code = output_open(&rank->out, &job->loop, &ends[0], status);
    if (!code)
        code = output_open(&rank->err, &job->loop, &ends[1], status);
    return code;
}

static hvd_code explain(struct rank *rank, int error, hvd_status *status)
{
    const char *command = rank->job->options->command[0];
    rank->exit_code = error == UV_ENOENT ? 127 : 126;
    if (error == UV_ENOENT)
        return status_set(status, HVD_SYSTEM, "can't start rank %d: '%s' was not found; is it on the PATH?",
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

static int spawn(struct rank *rank, char **environment, const int ends[2], uv_exit_cb ended)
{
    uv_stdio_container_t files[3] = {
        {.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD}, {.flags = UV_INHERIT_FD}};
    /* One reader of stdin at most; the others read an empty one. */
    if (rank->rank == 0)
        files[0] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = STDIN_FILENO};
    files[1].data.fd = ends[0];
    files[2].data.fd = ends[1];
    uv_process_options_t options = {
        .exit_cb = ended,
        .file = rank->job->options->command[0],
        .args = rank->job->options->command,
        .env = environment,
        .flags = UV_PROCESS_DETACHED, /* calls setsid */
        .stdio_count = 3,
        .stdio = files,
    };
    return uv_spawn(&rank->job->loop, &rank->process, &options);
}

hvd_code rank_start(struct rank *rank, uv_exit_cb ended, hvd_status *status)
{
    int ends[2] = {-1, -1};
    struct environment environment;
    hvd_code code = environment_make(&environment, rank, status);
    if (!code)
        code = open_outputs(rank, ends, status);
    if (!code) {
        int error = spawn(rank, environment.entries, ends, ended);
        /* In time: `ended` is called by the loop, not by uv_spawn. */
        rank->process.data = rank;
        if (error) {
            code = explain(rank, error, status);
        } else {
            rank->pid = rank->process.pid;
            rank->running = true;
            rank->gone = false;
            rank->started = clock_now();
            report_rank_start(rank, environment.entries);
        }
    }
    /* The rank has its own by now. With ours open its output would never end. */
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    environment_free(&environment);
    return code;
}
