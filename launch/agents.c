/* agents.c - the launcher's side of agents: one command (ssh) per host, all at once. Each host ends up
 * prepared or with a fault, and all faults are reported together; names of one host become one; the first
 * host serves the rendezvous; ranks start. From then on the frames of agents are events of the ranks. One
 * thread, the loop's. */
#include "agents.h"
#include "child.h"
#include "environment.h"
#include "guard.h"
#include "local.h"
#include "rlimits.h"
#include "say.h"
#include "ssh.h"
#include "stop.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_MILLISECONDS 200
#define HEARTBEAT_SHARE   0.1 /* of the time after which silence counts */
#define HEARTBEAT_PAUSE   0.02
#define DRAIN_SILENCE     10.0  /* of a connection that has only output to bring */
#define ERRORS_LIMIT      65536 /* of what ssh writes before the agent is there */
#define FUNCTION_PIECE    65536

static void remote_fail(struct remote *remote, int exit_code, const char *format, ...)
{
    va_list arguments;
    if (*remote->fault)
        return;
    va_start(arguments, format);
    format_text(remote->fault, sizeof remote->fault, format, arguments);
    va_end(arguments);
    remote->fault_code = exit_code;
}

static void remote_end(struct remote *remote)
{
    remote->state = REMOTE_ENDED;
    frames_shut(&remote->frames);
}

/* Once the start has begun. */
static struct remote *remote_of(const struct rank *rank)
{
    return rank->job->remotes->of_host[rank->slot->host];
}

/* Lines of the agent and of ssh are shown as they are; before the agent is there they may explain why not. */
static void remote_pass_on_errors(struct remote *remote)
{
    struct wire_writer *said = &remote->said;
    const uint8_t *last = said->length ? memrchr(said->bytes, '\n', said->length) : NULL;
    if (remote->state == REMOTE_CALLED || !last)
        return;
    size_t length = (size_t)(last - said->bytes) + 1;
    sink_put(remote->job->err, said->bytes, length);
    sink_flush(remote->job->err);
    said->length -= length;
    memmove(said->bytes, said->bytes + length, said->length);
}

/* ---- stdin of rank 0 ---------------------------------------------------------------------------------- */

static void read_input(struct job *job)
{
    struct remotes *remotes = job->remotes;
    struct frames *to = &remotes->list[0].frames;
    uint8_t bytes[16384];
    while (!remotes->input_ended && remotes->input_credit > 0 &&
           poll(&(struct pollfd){.fd = job->input, .events = POLLIN}, 1, 0) > 0) {
        size_t limit = remotes->input_credit < sizeof bytes ? remotes->input_credit : sizeof bytes;
        ssize_t count = read(job->input, bytes, limit);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        count = count > 0 ? count : 0;
        size_t begin = frame_begin(to, FRAME_INPUT);
        wire_put_raw(&to->stream.out, bytes, (size_t)count);
        frame_end(to, begin);
        remotes->input_credit -= (size_t)count;
        remotes->input_ended = count == 0;
    }
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_input(poll->data); /* without credit the next turn reads, when there is some */
}

static void input_open(struct job *job)
{
    struct remotes *remotes = job->remotes;
    int flags = fcntl(job->input, F_GETFL);
    remotes->input_credit = FRAME_WINDOW;
    remotes->input_polled = uv_poll_init(&job->loop, &remotes->input, job->input) == 0;
    remotes->input.data = job;
    fcntl(job->input, F_SETFL, flags); /* libuv has made it non-blocking for all processes that share it */
}

/* Regular files can't be polled, and need not be: they are always readable. */
static void input_watch(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool wanted = !remotes->input_ended && remotes->input_credit > 0;
    if (!remotes->input_polled && wanted)
        read_input(job);
    else if (remotes->input_polled && wanted && !uv_is_active((uv_handle_t *)&remotes->input))
        uv_poll_start(&remotes->input, UV_READABLE, on_input);
    else if (remotes->input_polled && !wanted)
        uv_poll_stop(&remotes->input);
}

/* ---- preparing ----------------------------------------------------------------------------------------- */

static void send_prepare(struct remote *remote)
{
    const struct job *job = remote->job;
    struct environment environment = {0};
    hvd_status status;
    struct preparation preparation = {.setup = job->options->host_setup, .command = job->options->command};
    if (environment_for_hosts(&environment, job, &status))
        remote_fail(remote, 1, "%s", status.text);
    preparation.environment = environment.entries;
    memcpy(preparation.folder, job->remotes->folder, sizeof preparation.folder);
    if (preparation.environment) {
        size_t begin = frame_begin(&remote->frames, FRAME_PREPARE);
        preparation_put(&preparation, &remote->frames.stream.out);
        frame_end(&remote->frames, begin);
    }
    environment_free(&environment);
}

static void prepare_take_ready(struct remote *remote, struct wire_reader *body)
{
    char release[64];
    if (!wire_get_string(body, release, sizeof release) || strcmp(release, hvd_version()) != 0) {
        remote_fail(remote, 1,
                    "its horovodrun is of release %s, this one of %s; install the same release on all hosts",
                    release, hvd_version());
        return;
    }
    wire_get_string(body, remote->identity, sizeof remote->identity);
    wire_get_string(body, remote->launcher_address, sizeof remote->launcher_address);
    wire_get_string(body, remote->address, sizeof remote->address);
    if (!wire_done(body))
        remote_fail(remote, 1, "what its agent sends is malformed");
    remote->state = REMOTE_READY;
    if (!remote->job->options->verbose) /* banners */
        remote->said.length = 0;
    remote_pass_on_errors(remote);
    send_prepare(remote);
}

static void prepare_take_prepared(struct remote *remote, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int exit_code = (int)wire_get_u32(body);
    wire_get_string(body, text, sizeof text);
    if (exit_code || body->failed)
        remote_fail(remote, exit_code ? exit_code : 1, "%s", text);
    remote->state = REMOTE_PREPARED;
}

static void prepare_send_function(struct remote *remote)
{
    const struct remotes *remotes = remote->job->remotes;
    uint8_t bytes[FUNCTION_PIECE];
    while (remote->function_sent < remotes->function_size && frames_idle(&remote->frames)) {
        ssize_t count = pread(remote->job->function, bytes, sizeof bytes, remote->function_sent);
        if (count <= 0) {
            remote_fail(remote, 1, "can't read the function: %s", count ? strerror(errno) : "it is cut");
            return;
        }
        size_t begin = frame_begin(&remote->frames, FRAME_FUNCTION);
        wire_put_raw(&remote->frames.stream.out, bytes, (size_t)count);
        frame_end(&remote->frames, begin);
        remote->function_sent += count;
    }
}

/* ---- the start ----------------------------------------------------------------------------------------- */

/* As the user has given it: two entries of one name differ in user or port. */
static const char *name_of_entry(const struct host *host, char *text, size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "%s%s%s", host->user, *host->user ? "@" : "", host->name);
    if (host->port)
        append_text(text, capacity, " port %d", host->port);
    return text;
}

/* All of them, before anything is started. */
static void report_faults(struct job *job)
{
    int exit_code = 0;
    for (int i = 0; i < job->remotes->count; i++) {
        const struct remote *remote = &job->remotes->list[i];
        if (!*remote->fault)
            continue;
        char name[sizeof remote->host->name + sizeof remote->host->user + 16];
        job_say(job, "host %s: %s", name_of_entry(remote->host, name, sizeof name), remote->fault);
        exit_code = exit_code ? exit_code : remote->fault_code;
    }
    job_decide(job, exit_code);
}

/* Entries that name one host become one; those that got no ranks are not needed any more. */
static hvd_code merge_hosts(struct job *job, hvd_status *status)
{
    struct remotes *remotes = job->remotes;
    for (int i = 0; i < remotes->count; i++) {
        for (int j = i + 1; j < remotes->count; j++) {
            struct remote *earlier = &remotes->list[i], *later = &remotes->list[j];
            if (!earlier->host || !later->host || strcmp(earlier->identity, later->identity) != 0)
                continue;
            hosts_merge(job->hosts, (int)(earlier->host - job->hosts->list),
                        (int)(later->host - job->hosts->list));
            later->host = NULL;
            for (int k = j + 1; k < remotes->count; k++)
                remotes->list[k].host -= remotes->list[k].host != NULL;
        }
    }
    hvd_code code = hosts_layout(job->hosts, job->size, status);
    for (int i = 0; !code && i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        if (remote->host && remote->host->ranks)
            remotes->of_host[remote->host - job->hosts->list] = remote;
        else
            remote_end(remote);
    }
    return code;
}

/* Where the others reach the first host: as its sshd was reached, or as the others see this host, if it is
 * the first. The agent finds an address itself if there is none here. */
static const char *rendezvous_hint(const struct remotes *remotes)
{
    const struct remote *first = &remotes->list[0];
    int active = 0;
    for (int i = 0; i < remotes->count; i++)
        active += remotes->list[i].state == REMOTE_PREPARED;
    if (active == 1)
        return "127.0.0.1";
    for (int i = 1; first->host->local && i < remotes->count; i++) {
        if (remotes->list[i].state == REMOTE_PREPARED)
            return remotes->list[i].launcher_address;
    }
    return first->address;
}

static void send_serve(struct job *job)
{
    struct frames *to = &job->remotes->list[0].frames;
    size_t begin = frame_begin(to, FRAME_SERVE);
    wire_put_string(&to->stream.out, job->secret);
    wire_put_string(&to->stream.out, rendezvous_hint(job->remotes));
    frame_end(to, begin);
    job->remotes->serving = true;
}

static void send_start(struct remote *remote)
{
    const struct job *job = remote->job;
    const struct host *host = remote->host;
    struct start start = {.size = job->size, .verbose = job->options->verbose, .count = host->ranks};
    memcpy(start.id, job->id, sizeof start.id);
    memcpy(start.secret, job->secret, sizeof start.secret);
    memcpy(start.rendezvous, job->rendezvous_address, sizeof start.rendezvous);
    memcpy(start.host, host->name, sizeof start.host);
    start.slots = job->hosts->slots; /* those of a host follow each other */
    while (start.slots->host != (int)(host - job->hosts->list))
        start.slots++;
    size_t begin = frame_begin(&remote->frames, FRAME_START);
    start_put(&start, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    remote->state = REMOTE_STARTED;
}

/* All or none: a rank that is not gone is waited for. */
static hvd_code open_ranks(struct job *job, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        code = rank_open_copies(rank, status);
        for (int j = 0; !code && j < (job->options->task ? OUTPUTS : OUTPUT_RESULT); j++)
            code = output_open_fed(&rank->outputs[j], status);
    }
    for (int i = 0; i < job->count; i++) {
        if (code)
            job_close_outputs(&job->ranks[i]);
        else
            job->ranks[i].gone = false;
    }
    return code;
}

static void prepare_take_serving(struct remote *remote, struct wire_reader *body)
{
    struct job *job = remote->job;
    hvd_status status;
    char fault[FAULT_LIMIT] = "malformed answer";
    if (!wire_get_string(body, job->rendezvous_address, sizeof job->rendezvous_address) ||
        !wire_get_string(body, fault, sizeof fault) || *fault) {
        job_say(job, "host %s: can't serve the rendezvous there: %s", remote->host->name, fault);
        job_decide(job, 1);
        return;
    }
    if (open_ranks(job, &status)) {
        job_say(job, "%s", status.text);
        job_decide(job, 1);
        return;
    }
    say_job(job);
    for (int i = 0; i < job->remotes->count; i++) {
        if (job->remotes->list[i].state == REMOTE_PREPARED)
            send_start(&job->remotes->list[i]);
    }
    job->remotes->started = true;
    input_open(job);
}

static void check_deadline(struct remote *remote)
{
    const struct job *job = remote->job;
    if (clock_now() > job->remotes->deadline)
        remote_fail(remote, 1,
                    "it has not answered within %g s (--start-timeout); is it up, and can ssh log in "
                    "without a question?%s",
                    job->settings->start_timeout_seconds,
                    job->options->host_setup ? " Does --host-setup end?" : "");
}

/* Until the first host serves the rendezvous others may still be lost. */
static void watch_serving(struct job *job)
{
    const struct remotes *remotes = job->remotes;
    bool faulty = false;
    check_deadline(&remotes->list[0]);
    for (int i = 0; i < remotes->count; i++)
        faulty = faulty || *remotes->list[i].fault;
    if (faulty)
        report_faults(job);
}

static void prepare_advance(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool faulty = false;
    hvd_status status;
    if (remotes->serving) {
        watch_serving(job);
        return;
    }
    for (int i = 0; i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        if (remote->state < REMOTE_PREPARED)
            check_deadline(remote);
        if (!*remote->fault &&
            (remote->state < REMOTE_PREPARED || remote->function_sent < remotes->function_size))
            return;
        faulty = faulty || *remote->fault;
    }
    if (faulty) {
        report_faults(job);
    } else if (merge_hosts(job, &status)) {
        job_say(job, "%s", status.text);
        job_decide(job, 1);
    } else {
        send_serve(job);
    }
}

/* ---- the process that calls the host ------------------------------------------------------------------- */

static void take_errors(struct output *errors, const void *bytes, size_t length)
{
    struct remote *remote = errors->owner;
    if (remote->said.length + length > ERRORS_LIMIT)
        remote->said.length = 0;
    wire_put_raw(&remote->said, bytes, length);
    errors->credit += length;
    remote_pass_on_errors(remote);
}

void remotes_child_ended(struct job *job, pid_t pid, int exit_code, int signal)
{
    for (int i = 0; i < job->remotes->count; i++) {
        struct remote *remote = &job->remotes->list[i];
        if (!remote->running || remote->pid != pid)
            continue;
        remote->running = false;
        remote->exit_code = exit_code;
        remote->signal = signal;
        guard_remove(job->guard, pid);
    }
}

/* It is lost, but what it still does is seen by check_end. */
static void on_end_of_frames(struct frames *frames)
{
    frames->last = clock_now();
    frames_shut(frames);
}

/* SIGTERM lets srun end its tasks; what SIGKILL would leave behind is described in guard.h. */
static int spawn(struct remote *remote, char **words, const int ends[3])
{
    struct child child = {.words = words, .file_count = 3, .end_signal = SIGTERM};
    memcpy(child.files, ends, 3 * sizeof *ends);
    remote->pid = child_start(&child, remote->job->guard);
    return remote->pid < 0 ? remote->pid : 0;
}

/* Ends of the pipes by the child's descriptors. */
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
        .index = OUTPUT_STDERR, .file = -1, .forward = take_errors, .owner = remote, .credit = ERRORS_LIMIT};
    return output_open(&remote->errors, &remote->job->loop, &ends[2], &status) ? UV_EMFILE : 0;
}

static void call_host(struct remote *remote)
{
    int own[2] = {-1, -1}, ends[3] = {-1, -1, -1};
    char **words = ssh_words(remote->job, remote->host);
    int error = words ? open_pipes(remote, own, ends) : UV_ENOMEM;
    if (error)
        remote_fail(remote, 1, "can't call it: %s", uv_strerror(error));
    else if ((error = spawn(remote, words, ends)))
        remote_fail(remote, 1, "can't start '%s' to reach it: %s", words[0], uv_strerror(error));
    remote->running = !error;
    words_free(words);
    for (int i = 0; i < 3; i++)
        socket_close(&ends[i]);
    remote->frames = (struct frames){.owner = remote,
                                     .take = remote_take,
                                     .ended = on_end_of_frames,
                                     .limit = FRAME_LIMIT_ANSWER,
                                     .to = -1,
                                     .awaits_preamble = true};
    if (error) {
        socket_close(&own[0]);
        socket_close(&own[1]);
        remote_end(remote);
    } else {
        frames_open(&remote->frames, &remote->job->loop, own[0], own[1]);
    }
}

/* ---- while ranks run ----------------------------------------------------------------------------------- */

void remote_signal(const struct rank *rank, int signal)
{
    struct frames *to = &remote_of(rank)->frames;
    size_t begin = frame_begin(to, FRAME_SIGNAL);
    wire_put_u32(&to->stream.out, (uint32_t)rank->rank);
    wire_put_u32(&to->stream.out, (uint32_t)signal);
    frame_end(to, begin);
}

static void take_started(struct rank *rank, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int pid = (int)wire_get_u32(body), exit_code = (int)wire_get_u32(body);
    if (!wire_get_string(body, text, sizeof text) || *text) {
        job_rank_failed_to_start(rank, exit_code, text);
        return;
    }
    rank->pid = pid;
    rank->running = true;
    rank->started = clock_now();
}

static void take_output(struct rank *rank, struct wire_reader *body)
{
    uint8_t index = wire_get_u8(body);
    if (body->failed || index >= OUTPUTS)
        return;
    struct output *output = &rank->outputs[index];
    if (body->length == body->position)
        output_close(output);
    else
        output_feed(output, body->bytes + body->position, body->length - body->position);
}

static void take_event(struct rank *rank, enum frame_kind kind, struct wire_reader *body)
{
    int exit_code, signal;
    switch (kind) {
    case FRAME_STARTED:
        take_started(rank, body);
        break;
    case FRAME_OUTPUT:
        take_output(rank, body);
        break;
    case FRAME_ENDED:
        exit_code = (int)wire_get_u32(body);
        signal = (int)wire_get_u32(body);
        if (rank->running)
            job_rank_ended(rank, exit_code, signal);
        break;
    default: /* FRAME_GONE */
        rank->running = false;
        rank->gone = true;
    }
}

static void take_signalled(struct remote *remote, struct wire_reader *body)
{
    int signal = (int)wire_get_u32(body);
    char where[sizeof remote->host->name + 32];
    if (!wire_done(body) || (signal != SIGINT && signal != SIGTERM && signal != SIGHUP))
        return;
    snprintf(where, sizeof where, "host %s: its agent ",
             remote->host ? remote->host->name : remote->identity);
    frame_send(&remote->frames, FRAME_HEARTBEAT); /* the agent waits for an answer, whatever follows */
    stop_by_signal(remote->job, where, signal);
}

void remote_take(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    struct job *job = remote->job;
    uint32_t rank;
    switch (kind) {
    case FRAME_READY:
        if (remote->state == REMOTE_CALLED)
            prepare_take_ready(remote, body);
        break;
    case FRAME_PREPARED:
        if (remote->state == REMOTE_READY)
            prepare_take_prepared(remote, body);
        break;
    case FRAME_SERVING:
        if (remote == &job->remotes->list[0] && job->remotes->serving && remotes_pending(job))
            prepare_take_serving(remote, body);
        break;
    case FRAME_STARTED:
    case FRAME_OUTPUT:
    case FRAME_ENDED:
    case FRAME_GONE:
        rank = wire_get_u32(body);
        if (!body->failed && rank < (uint32_t)job->count && remote_of(&job->ranks[rank]) == remote)
            take_event(&job->ranks[rank], kind, body);
        break;
    case FRAME_SIGNALLED:
        take_signalled(remote, body);
        break;
    case FRAME_TAKEN:
        job->remotes->input_credit += wire_get_u32(body);
        break;
    default: /* FRAME_HEARTBEAT: that it came is all */
        break;
    }
}

/* ---- lost hosts ---------------------------------------------------------------------------------------- */

/* Its ranks are gone, for all that can be known: without its launcher an agent kills them. */
static void lose(struct remote *remote, enum rank_step step, const char *why)
{
    struct job *job = remote->job;
    int first = -1, last = -1;
    remote_end(remote);
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        if (rank_host(rank) != remote->host)
            continue;
        job_close_outputs(rank);
        if (rank->gone)
            continue;
        first = first < 0 ? i : first;
        last = i;
        rank->running = false;
        rank->gone = true;
    }
    if (first < 0)
        return;
    if (!job->ending)
        job_say(job, "lost host %s with rank%s %d%s%.0d: %s", remote->host->name, first < last ? "s" : "",
                first, first < last ? " to " : "", first < last ? last : 0, why);
    job_decide(job, 1);
    stop_all(job, step);
}

/* Heartbeats come often enough that nobody else can have been silent for half that time, too. */
static bool others_are_silent(const struct job *job, double limit)
{
    int count = 0;
    for (int i = 0; i < job->remotes->count; i++) {
        const struct remote *remote = &job->remotes->list[i];
        if (remote->state != REMOTE_STARTED || remote->host->local)
            continue;
        if (!frames_silent(&remote->frames, limit / 2))
            return false;
        count++;
    }
    return count > 1;
}

/* The process and its two streams have ended, or have been silent for too long. */
static void check_end(struct remote *remote)
{
    char why[FAULT_LIMIT];
    enum rank_step step = STEP_OWN;
    /* Once the job ends there is nothing to be patient for. */
    double limit = remote->job->settings->timeout_seconds * (remote->job->ending ? 1 : LAUNCHER_PATIENCE);
    if (remote->state == REMOTE_ENDED)
        return;
    if (remote->state > REMOTE_CALLED && frames_silent(&remote->frames, limit)) {
        if (remote->running)
            kill(remote->pid, SIGKILL);
        /* Ranks that reach that host must have ended when its agent kills its ranks; those of a job that
         * ends already have their own time. */
        step = remote->job->ending ? STEP_OWN : STEP_TERM;
        snprintf(why, sizeof why, "it has been silent for %g s%s", limit,
                 others_are_silent(remote->job, limit)
                     ? ", as all others: this host is cut off; is its network up?"
                     : "");
    } else if (remote->frames.open || remote->running ||
               (remote->errors.open && clock_now() < remote->frames.last + CLOCK_SECOND)) {
        return; /* something that ssh has left behind may hold stderr open for ever */
    } else if (remote->state == REMOTE_READY && remote->exit_code == 0) {
        snprintf(why, sizeof why,
                 "its agent has found its stdin closed; what starts it there must pass stdin on, as `kubectl "
                 "exec -i` does");
    } else if (remote->state >= REMOTE_PREPARED) {
        char outcome[64];
        snprintf(why, sizeof why, "its connection has ended: process %d, which held it, %s", (int)remote->pid,
                 say_outcome(remote->exit_code, remote->signal, outcome, sizeof outcome));
    } else {
        wire_put_u8(&remote->said, 0);
        ssh_explain(remote->job, remote->host, remote->exit_code,
                    remote->said.failed ? "" : (char *)remote->said.bytes, why, sizeof why);
    }
    if (remote->state == REMOTE_STARTED) {
        lose(remote, step, why);
    } else {
        remote_fail(remote, 1, "%s", why);
        remote_end(remote);
    }
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static void give_credit(struct frames *to, struct output *output)
{
    if (output->owed < FRAME_WINDOW / 2 || output_full(output) || !output->open)
        return;
    size_t begin = frame_begin(to, FRAME_CREDIT);
    wire_put_u32(&to->stream.out, (uint32_t)output->rank);
    wire_put_u8(&to->stream.out, (uint8_t)output->index);
    wire_put_u32(&to->stream.out, (uint32_t)output->owed);
    frame_end(to, begin);
    output->owed = 0;
}

/* Every answer wakes this loop again: without a pause in between it would never sleep. */
static int64_t heartbeat_after(double timeout)
{
    double pause = HEARTBEAT_SHARE * timeout;
    if (timeout <= 0)
        return CLOCK_NEVER;
    return clock_after(pause > HEARTBEAT_PAUSE ? pause : HEARTBEAT_PAUSE);
}

void remotes_turn(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool heartbeat = clock_now() > remotes->next_heartbeat;
    for (int i = 0; i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        check_end(remote);
        if (remote->state == REMOTE_PREPARED)
            prepare_send_function(remote);
        if (heartbeat && remote->state > REMOTE_CALLED)
            frame_send(&remote->frames, FRAME_HEARTBEAT);
    }
    if (heartbeat)
        remotes->next_heartbeat = heartbeat_after(job->settings->timeout_seconds);
    if (!remotes->started && !job->ending)
        prepare_advance(job);
    if (!remotes->started) {
        if (job->ending)
            remotes_close(job);
        return;
    }
    for (int i = 0; i < job->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            give_credit(&remote_of(&job->ranks[i])->frames, &job->ranks[i].outputs[j]);
    }
    input_watch(job);
}

/* It only wakes the loop: remotes_turn looks at the clock. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

/* Returns 0 if there is none. */
static off_t size_of_function(const struct job *job)
{
    struct stat info = {0};
    if (job->function >= 0)
        fstat(job->function, &info);
    return info.st_size;
}

static void raise_file_limit(struct job *job)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        job->file_limit = files.rlim_cur == RLIM_INFINITY ? 0 : files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

hvd_code remotes_start(struct job *job, hvd_status *status)
{
    int count = job->hosts->count;
    struct remotes *remotes = calloc(1, sizeof *remotes);
    struct remote *list = calloc((size_t)count, sizeof *list);
    struct remote **of_host = calloc((size_t)count, sizeof(struct remote *));
    if (!remotes || !list || !of_host) {
        free(remotes);
        free(list);
        free(of_host);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %d hosts", count);
    }
    *remotes = (struct remotes){.list = list,
                                .of_host = of_host,
                                .function_size = size_of_function(job),
                                .deadline = clock_after(job->settings->start_timeout_seconds)};
    job->remotes = remotes;
    if (!getcwd(remotes->folder, sizeof remotes->folder))
        return status_set_errno(
            status, errno,
            "can't tell in which folder horovodrun was started; has it been removed? Start "
            "it in one that all hosts have");
    raise_file_limit(job);
    if (limits_check(job, false, status))
        return status->code;
    for (int i = 0; i < job->count; i++)
        job->ranks[i].remote = true;
    uv_timer_init(&job->loop, &remotes->timer);
    uv_timer_start(&remotes->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (int i = 0; i < count && job->hosts->list[i].ranks; i++) {
        struct remote *remote = &list[remotes->count++];
        remote->job = job;
        remote->host = &job->hosts->list[i];
        call_host(remote);
    }
    return HVD_OK;
}

void remotes_close(struct job *job)
{
    for (int i = 0; i < job->remotes->count; i++)
        frames_shut(&job->remotes->list[i].frames);
}

void remotes_free(struct job *job)
{
    if (!job->remotes)
        return;
    for (int i = 0; i < job->remotes->count; i++) {
        struct remote *remote = &job->remotes->list[i];
        frames_free(&remote->frames);
        output_free(&remote->errors);
        wire_writer_free(&remote->said);
    }
    free(job->remotes->list);
    free(job->remotes->of_host);
    free(job->remotes);
}

bool remotes_pending(const struct job *job)
{
    return !job->remotes->started && !job->ending;
}

bool remotes_connected(const struct job *job)
{
    for (int i = 0; i < job->remotes->count; i++) {
        if (job->remotes->list[i].running)
            return true;
    }
    return false;
}

/* Agents wait no longer for output than the launcher does, and end then; what is under way by then takes as
 * long as a slow connection needs. */
bool remotes_sending(const struct job *job)
{
    for (int i = 0; i < job->remotes->count; i++) {
        const struct remote *remote = &job->remotes->list[i];
        if (remote->state == REMOTE_STARTED && remote->running && remote->frames.open &&
            !frames_silent(&remote->frames, DRAIN_SILENCE))
            return true;
    }
    return false;
}
