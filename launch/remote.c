/* remote.c - calls one host, keeps what its ssh or srun says, and explains how the connection has ended. One
 * thread, the loop's. */
#include "remote.h"
#include "child.h"
#include "nodes.h"
#include "say.h"
#include "ssh.h"

#include "base/clock.h"
#include "base/status.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERRORS_LIMIT 65536 /* bytes of what ssh writes before the agent runs */

void remote_fail(struct remote *remote, int exit_code, const char *format, ...)
{
    va_list arguments;
    if (*remote->fault)
        return;
    va_start(arguments, format);
    format_text(remote->fault, sizeof remote->fault, format, arguments);
    va_end(arguments);
    remote->fault_code = exit_code;
}

bool remote_get_release(struct remote *remote, struct wire_reader *body)
{
    char release[64];
    if (wire_get_string(body, release, sizeof release) && strcmp(release, hvd_version()) == 0)
        return true;
    remote_fail(remote, 1,
                "its horovodrun is of release %s, this one of %s; install the same release on all hosts",
                release, hvd_version());
    return false;
}

/* ---- what ssh writes ----------------------------------------------------------------------------------- */

void remote_show_errors(struct remote *remote)
{
    struct wire_writer *said = &remote->said;
    const uint8_t *last = said->length ? memrchr(said->bytes, '\n', said->length) : NULL;
    if (remote->state == REMOTE_CALLED || !last)
        return;
    size_t length = (size_t)(last - said->bytes) + 1;
    sink_put(remote->table->err, said->bytes, length);
    sink_flush(remote->table->err);
    said->length -= length;
    memmove(said->bytes, said->bytes + length, said->length);
}

static void keep_errors(struct output *errors, const void *bytes, size_t length)
{
    struct remote *remote = errors->owner;
    if (remote->said.length + length > ERRORS_LIMIT)
        remote->said.length = 0;
    wire_put_raw(&remote->said, bytes, length);
    errors->credit += length;
    remote_show_errors(remote);
}

/* ---- the call ------------------------------------------------------------------------------------------ */

/* Makes the pipes: `ends` are indexed by the child's descriptors. */
static int open_pipes(struct remote *remote, int own[2], int ends[3])
{
    hvd_status status;
    int in[2], out[2], error = uv_pipe(in, 0, UV_NONBLOCK_PIPE);
    if (error)
        return error;
    ends[0] = in[0];
    own[1] = in[1];
    error = uv_pipe(out, UV_NONBLOCK_PIPE, 0);
    if (error)
        return error;
    own[0] = out[0];
    ends[1] = out[1];
    remote->errors = (struct output){
        .index = OUTPUT_STDERR, .file = -1, .forward = keep_errors, .owner = remote, .credit = ERRORS_LIMIT};
    return output_open(&remote->errors, &remote->table->loop, &ends[2], &status) ? UV_EMFILE : 0;
}

/* remote_has_ended notices how the process ends, if there is one. */
static void on_end_of_frames(struct frames *frames)
{
    frames->last = clock_now();
    frames_shut(frames);
}

/* Returns the connection that the host has made; NULL: none. */
static struct stream *stream_of_node(const struct remote *remote)
{
    struct nodes *nodes = remote->table->hosts->nodes;
    return nodes && remote->host < nodes->count && nodes->streams[remote->host].io
               ? &nodes->streams[remote->host]
               : NULL;
}

static void welcome(struct remote *remote, struct stream *stream)
{
    remote->is_node = true;
    frames_open_stream(&remote->frames, &remote->table->loop, stream);
    *stream = (struct stream){0};
    frame_send(&remote->frames, FRAME_WELCOME);
    frames_read(&remote->frames);
}

static void call(struct remote *remote)
{
    int own[2] = {-1, -1}, ends[3] = {-1, -1, -1};
    /* SIGTERM lets srun end its tasks; guard.h describes what SIGKILL would leave behind. */
    struct child child = {
        .words = ssh_words(remote->table, remote_host(remote)), .file_count = 3, .end_signal = SIGTERM};
    int error = child.words ? open_pipes(remote, own, ends) : UV_ENOMEM;
    if (error) {
        remote_fail(remote, 1, "can't call it: %s", uv_strerror(error));
    } else {
        memcpy(child.files, ends, sizeof ends);
        remote->pid = child_start(&child, remote->table->guard);
        remote->running = remote->pid > 0;
        if (!remote->running)
            remote_fail(remote, 1, "can't start '%s' to reach it: %s", child.words[0],
                        uv_strerror(remote->pid));
    }
    words_free(child.words);
    for (int i = 0; i < 3; i++)
        socket_close(&ends[i]);
    if (remote->running) {
        frames_open(&remote->frames, &remote->table->loop, own[0], own[1]);
    } else {
        socket_close(&own[0]);
        socket_close(&own[1]);
        remote_end(remote);
    }
}

void remote_call(struct remote *remote,
                 void (*receive)(struct frames *frames, enum frame_kind kind, struct wire_reader *body))
{
    struct stream *stream = stream_of_node(remote);
    remote->frames = (struct frames){.owner = remote,
                                     .receive = receive,
                                     .ended = on_end_of_frames,
                                     .limit = FRAME_LIMIT_ANSWER,
                                     .to = -1,
                                     .awaits_preamble = !stream};
    if (stream)
        welcome(remote, stream);
    else
        call(remote);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

bool remote_has_ended(const struct remote *remote)
{
    /* Something that ssh has left behind may hold stderr open forever. */
    bool errors_open = remote->errors.open && clock_now() < remote->frames.last + CLOCK_SECOND;
    return !remote->frames.open && !remote->running && !errors_open;
}

void remote_explain(struct remote *remote, char *text, size_t capacity)
{
    if (remote->is_node) {
        snprintf(text, capacity, "its connection has ended; was horovodrun killed there?");
    } else if (remote->state == REMOTE_READY && remote->exit_code == 0) {
        snprintf(text, capacity,
                 "its agent has found its stdin closed; what starts it there must pass stdin on, as `kubectl "
                 "exec -i` does");
    } else if (remote->state >= REMOTE_PREPARED) {
        char outcome[64];
        snprintf(text, capacity, "its connection has ended: process %d, which held it, %s", (int)remote->pid,
                 say_outcome(remote->exit_code, remote->signal, outcome, sizeof outcome));
    } else {
        wire_put_u8(&remote->said, 0);
        ssh_explain(remote->table, remote_host(remote), remote->exit_code,
                    remote->said.failed ? "" : (char *)remote->said.bytes, text, capacity);
    }
}

void remote_end(struct remote *remote)
{
    remote->state = REMOTE_ENDED;
    frames_shut(&remote->frames);
}

void remote_free(struct remote *remote)
{
    frames_free(&remote->frames);
    output_free(&remote->errors);
    wire_writer_free(&remote->said);
}
