/* spawn.c - starts one rank. Every rank leads a session and process group of its own, so that one signal
 * reaches all that it has started, and the terminal's Ctrl-C reaches the launcher only. */
#include "job.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the environment of a rank ------------------------------------------------------------------------- */

#define OWN_ENTRIES 16 /* at most so many are added besides the settings */

struct environment {
    char **entries; /* "NAME=value"; ends with NULL */
    size_t own;     /* so many of them are freed with it; the others behind them are the launcher's own */
};

static bool is_named(const char *entry, const char *name, size_t length)
{
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

static bool put(struct environment *environment, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool put(struct environment *environment, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool made = vasprintf(&environment->entries[environment->own], format, arguments) >= 0;
    va_end(arguments);
    environment->own += made;
    return made;
}

static bool put_place(struct environment *environment, const struct rank *rank)
{
    const struct job *job = rank->job;
    const struct slot *slot = rank->slot;
    return put(environment, "HOROVOD_RANK=%d", slot->rank) &&
           put(environment, "HOROVOD_SIZE=%d", job->size) &&
           put(environment, "HOROVOD_LOCAL_RANK=%d", slot->local_rank) &&
           put(environment, "HOROVOD_LOCAL_SIZE=%d", slot->local_size) &&
           put(environment, "HOROVOD_CROSS_RANK=%d", slot->cross_rank) &&
           put(environment, "HOROVOD_CROSS_SIZE=%d", slot->cross_size) &&
           put(environment, "HOROVOD_HOSTNAME=%s", rank_host(rank)->name) &&
           put(environment, "HOROVOD_RENDEZVOUS=%s", job->rendezvous_address) &&
           put(environment, "HOROVOD_JOB=%s", job->id) && put(environment, "HOROVOD_SECRET=%s", job->secret);
}

static bool has_own(const struct environment *environment, const char *name, size_t length)
{
    for (size_t i = 0; i < environment->own; i++) {
        if (is_named(environment->entries[i], name, length))
            return true;
    }
    return false;
}

/* The rank's place wins over everything, options over what is inherited. */
static bool put_own(struct environment *environment, const struct rank *rank)
{
    bool done = put_place(environment, rank);
    for (int i = 0; done && i < setting_count; i++) {
        const char *name = setting_table[i].environment, *value = rank->job->options->values[i];
        if (value && !has_own(environment, name, strlen(name)))
            done = put(environment, "%s=%s", name, value);
    }
    /* Its stdout is a pipe, but lines shall come when they are printed. */
    return done && (getenv("PYTHONUNBUFFERED") || put(environment, "PYTHONUNBUFFERED=1"));
}

bool environment_is_of_a_host(const char *entry)
{
    /* Of the user and the session there, and of what the host has. */
    static const char *const patterns[] = {"HOME=*",
                                           "USER=*",
                                           "LOGNAME=*",
                                           "SHELL=*",
                                           "PWD=*",
                                           "OLDPWD=*",
                                           "HOSTNAME=*",
                                           "HOST=*",
                                           "MAIL=*",
                                           "SHLVL=*",
                                           "_=*",
                                           "TMPDIR=*",
                                           "DISPLAY=*",
                                           "XAUTHORITY=*",
                                           "XDG_*",
                                           "DBUS_*",
                                           "SSH_*",
                                           "BASH_FUNC_*",
                                           "*CUDA_VISIBLE_DEVICES=*",
                                           "HOROVOD_SECRET*",
                                           "HOROVOD_HOSTNAME=*",
                                           "HOROVOD_HOST_ID=*"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (fnmatch(patterns[i], entry, 0) == 0)
            return true;
    }
    return false;
}

/* What another starter has set, and the engine would read instead of what is set here. */
static bool is_of_another_starter(const char *entry)
{
    static const char *const names[] = {"HOROVOD_SECRET_FILE", "HOROVOD_SLOT", "HOROVOD_EPOCH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_named(entry, names[i], strlen(names[i])))
            return true;
    }
    return false;
}

/* The launcher's environment, the settings that were given, and the rank's place in the job. Free it also
 * after a failure. */
static hvd_code environment_make(struct environment *environment, const struct rank *rank, hvd_status *status)
{
    size_t count = (size_t)setting_count + OWN_ENTRIES;
    for (char **entry = environ; *entry; entry++)
        count++;
    *environment = (struct environment){.entries = calloc(count + 1, sizeof(char *))};
    if (!environment->entries || !put_own(environment, rank))
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for rank %d's environment", rank->rank);
    char **next = environment->entries + environment->own;
    for (char **entry = environ; *entry; entry++) {
        if (!has_own(environment, *entry, strcspn(*entry, "=")) && !is_of_another_starter(*entry))
            *next++ = *entry;
    }
    return HVD_OK;
}

static void environment_free(struct environment *environment)
{
    for (size_t i = 0; i < environment->own; i++)
        free(environment->entries[i]);
    free(environment->entries);
}

/* ---- the process --------------------------------------------------------------------------------------- */

hvd_code rank_open_copies(struct rank *rank, hvd_status *status)
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
    hvd_code code = rank_open_copies(rank, status);
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
        files[0] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = rank->job->input};
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
