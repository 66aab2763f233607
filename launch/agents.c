/* agents.c - the starter `agents`: processes on any number of hosts, by one agent on each. One thread, the
 * loop's. Hosts are called (ssh) at the same time. Each becomes prepared or faulty, and the faults of all are
 * reported together. Entries that name one host are merged; the first host serves the rendezvous. Once
 * processes have been started, the frames of agents are reported as events. */
#include "agents.h"
#include "child.h"
#include "environment.h"
#include "guard.h"
#include "rlimits.h"
#include "say.h"
#include "ssh.h"
#include "starter.h"

#include "base/clock.h"
#include "base/fault.h"
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
#define DRAIN_SILENCE     10.0  /* of a connection that only passes on output */
#define ERRORS_LIMIT      65536 /* bytes of what ssh writes before the agent runs */
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

/* Valid once entries of one host are merged. */
static struct remote *remote_of(const struct process *process)
{
    return process->table->agents->of_host[process->place.host];
}

/* Shows lines of the agent and of ssh as they are. Before the agent runs, they may explain why it does not.
 */
static void remote_pass_on_errors(struct remote *remote)
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

/* ---- stdin of rank 0 ---------------------------------------------------------------------------------- */

static void read_input(struct table *table)
{
    struct agents *agents = table->agents;
    struct frames *to = &agents->list[0].frames;
    uint8_t bytes[16384];
    while (!agents->input_ended && agents->input_credit > 0 &&
           poll(&(struct pollfd){.fd = table->input, .events = POLLIN}, 1, 0) > 0) {
        size_t limit = agents->input_credit < sizeof bytes ? agents->input_credit : sizeof bytes;
        ssize_t count = read(table->input, bytes, limit);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        count = count > 0 ? count : 0;
        size_t begin = frame_begin(to, FRAME_INPUT);
        wire_put_raw(&to->stream.out, bytes, (size_t)count);
        frame_end(to, begin);
        agents->input_credit -= (size_t)count;
        agents->input_ended = count == 0;
    }
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_input(poll->data); /* without credit, a later turn reads */
}

static void input_open(struct table *table)
{
    struct agents *agents = table->agents;
    int flags = fcntl(table->input, F_GETFL);
    agents->input_credit = FRAME_WINDOW;
    agents->input_polled = uv_poll_init(&table->loop, &agents->input, table->input) == 0;
    agents->input.data = table;
    fcntl(table->input, F_SETFL, flags); /* libuv has made it non-blocking for all processes that share it */
}

/* Regular files can't be polled, and are always readable. */
static void input_watch(struct table *table)
{
    struct agents *agents = table->agents;
    bool wanted = !agents->input_ended && agents->input_credit > 0;
    if (!agents->input_polled && wanted)
        read_input(table);
    else if (agents->input_polled && wanted && !uv_is_active((uv_handle_t *)&agents->input))
        uv_poll_start(&agents->input, UV_READABLE, on_input);
    else if (agents->input_polled && !wanted)
        uv_poll_stop(&agents->input);
}

/* ---- preparing ----------------------------------------------------------------------------------------- */

static void send_prepare(struct remote *remote)
{
    const struct table *table = remote->table;
    struct environment environment = {0};
    hvd_status status;
    struct preparation preparation = {.setup = table->options->host_setup,
                                      .command = table->options->command};
    if (environment_for_hosts(&environment, table->options, &status))
        remote_fail(remote, 1, "%s", status.text);
    preparation.environment = environment.entries;
    memcpy(preparation.folder, table->agents->folder, sizeof preparation.folder);
    if (preparation.environment) {
        size_t begin = frame_begin(&remote->frames, FRAME_PREPARE);
        preparation_put(&preparation, &remote->frames.stream.out);
        frame_end(&remote->frames, begin);
    }
    environment_free(&environment);
}

static void take_ready(struct remote *remote, struct wire_reader *body)
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
    if (!remote->table->options->verbose) /* they are banners */
        remote->said.length = 0;
    remote_pass_on_errors(remote);
    send_prepare(remote);
}

static void take_prepared(struct remote *remote, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int exit_code = (int)wire_get_u32(body);
    wire_get_string(body, text, sizeof text);
    if (exit_code || body->failed)
        remote_fail(remote, exit_code ? exit_code : 1, "%s", text);
    remote->state = REMOTE_PREPARED;
}

static void send_function(struct remote *remote)
{
    const struct agents *agents = remote->table->agents;
    uint8_t bytes[FUNCTION_PIECE];
    while (remote->function_sent < agents->function_size && frames_idle(&remote->frames)) {
        ssize_t count = pread(remote->table->function, bytes, sizeof bytes, remote->function_sent);
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

/* Returns the entry as the user has given it: two entries of one name differ in user or port. */
static const char *name_of_entry(const struct host *host, char *text, size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "%s%s%s", host->user, *host->user ? "@" : "", host->name);
    if (host->port)
        append_text(text, capacity, " port %d", host->port);
    return text;
}

static void fail_hosts(struct table *table, int exit_code)
{
    table->happened(table, &(struct event){.kind = EVENT_HOST_FAILED, .exit_code = exit_code});
}

/* Reports the faults of all hosts, before anything is started. */
static void report_faults(struct table *table)
{
    int exit_code = 0;
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = &table->agents->list[i];
        if (!*remote->fault)
            continue;
        char name[sizeof remote->host->name + sizeof remote->host->user + 16];
        say(table, "host %s: %s", name_of_entry(remote->host, name, sizeof name), remote->fault);
        exit_code = exit_code ? exit_code : remote->fault_code;
    }
    fail_hosts(table, exit_code);
}

/* Merges entries that name one host, and ends the agents of those that get no ranks. */
static hvd_code merge_hosts(struct table *table, hvd_status *status)
{
    struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        for (int j = i + 1; j < agents->count; j++) {
            struct remote *earlier = &agents->list[i], *later = &agents->list[j];
            if (!earlier->host || !later->host || strcmp(earlier->identity, later->identity) != 0)
                continue;
            hosts_merge(table->hosts, (int)(earlier->host - table->hosts->list),
                        (int)(later->host - table->hosts->list));
            later->host = NULL;
            for (int k = j + 1; k < agents->count; k++)
                agents->list[k].host -= agents->list[k].host != NULL;
        }
    }
    hvd_code code = hosts_layout(table->hosts, table->size, status);
    for (int i = 0; !code && i < agents->count; i++) {
        struct remote *remote = &agents->list[i];
        if (remote->host && remote->host->ranks)
            agents->of_host[remote->host - table->hosts->list] = remote;
        else
            remote_end(remote);
    }
    return code;
}

/* Returns the address at which the others reach the first host: the one at which its sshd was reached, or, if
 * it is this host, the one that others see. If it is empty, the agent finds an address itself. */
static const char *rendezvous_hint(const struct agents *agents)
{
    const struct remote *first = &agents->list[0];
    int active = 0;
    for (int i = 0; i < agents->count; i++)
        active += agents->list[i].state == REMOTE_PREPARED;
    if (active == 1)
        return "127.0.0.1";
    for (int i = 1; first->host->local && i < agents->count; i++) {
        if (agents->list[i].state == REMOTE_PREPARED)
            return agents->list[i].launcher_address;
    }
    return first->address;
}

/* Opens the outputs of all processes, or of none. */
static hvd_code open_outputs(struct table *table, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < table->count; i++) {
        struct process *process = table->list[i];
        code = process_copy_outputs(process, status);
        for (int j = 0; !code && j < (table->options->task ? OUTPUTS : OUTPUT_RESULT); j++)
            code = output_open_fed(&process->outputs[j], status);
    }
    for (int i = 0; code && i < table->count; i++)
        process_close_outputs(table->list[i]);
    return code;
}

/* The first host serves the rendezvous, and publishes the assignments there. */
static hvd_code agents_assign(struct table *table, const struct epoch *epoch, hvd_status *status)
{
    struct frames *to = &table->agents->list[0].frames;
    TRY(open_outputs(table, status));
    size_t begin = frame_begin(to, FRAME_SERVE);
    wire_put_string(&to->stream.out, table->secret);
    wire_put_string(&to->stream.out, rendezvous_hint(table->agents));
    frame_end(to, begin);
    begin = frame_begin(to, FRAME_EPOCH);
    epoch_put(epoch, &to->stream.out);
    frame_end(to, begin);
    table->agents->assigning = true;
    return HVD_OK;
}

static void take_serving(struct remote *remote, struct wire_reader *body)
{
    struct table *table = remote->table;
    char fault[FAULT_LIMIT] = "malformed answer";
    if (wire_get_string(body, table->rendezvous_address, sizeof table->rendezvous_address) &&
        wire_get_string(body, fault, sizeof fault) && !*fault)
        return;
    say(table, "host %s: can't serve the rendezvous there: %s", remote->host->name, fault);
    fail_hosts(table, 1);
}

static void take_assigned(struct remote *remote, struct wire_reader *body)
{
    struct table *table = remote->table;
    char fault[FAULT_LIMIT] = "malformed answer";
    if (!wire_get_string(body, fault, sizeof fault) || *fault) {
        say(table, "host %s: can't publish which process is which rank: %s", remote->host->name, fault);
        fail_hosts(table, 1);
        return;
    }
    table->agents->started = true;
    table->happened(table, &(struct event){.kind = EVENT_ASSIGNED});
    input_open(table);
}

/* Sends what all processes of the host have in common, and their number. */
static void send_job(struct remote *remote)
{
    const struct table *table = remote->table;
    struct job_terms terms = {.verbose = table->options->verbose, .count = remote->host->ranks};
    memcpy(terms.id, table->id, sizeof terms.id);
    memcpy(terms.secret, table->secret, sizeof terms.secret);
    memcpy(terms.rendezvous, table->rendezvous_address, sizeof terms.rendezvous);
    memcpy(terms.host, remote->host->name, sizeof terms.host);
    size_t begin = frame_begin(&remote->frames, FRAME_JOB);
    job_terms_put(&terms, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    remote->state = REMOTE_STARTED;
}

static hvd_code agents_start(struct process *process, hvd_status *status)
{
    const struct table *table = process->table;
    struct remote *remote = remote_of(process);
    struct start start = {
        .slot = process->slot, .epoch = table->epoch, .size = table->size, .place = process->place};
    (void)status;
    if (remote->state == REMOTE_PREPARED)
        send_job(remote);
    size_t begin = frame_begin(&remote->frames, FRAME_START);
    start_put(&start, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    process->gone = false;
    return HVD_OK;
}

static void check_deadline(struct remote *remote)
{
    const struct table *table = remote->table;
    if (clock_now() > table->agents->deadline)
        remote_fail(remote, 1,
                    "it has not answered within %g s (--start-timeout); is it up, and can ssh log in "
                    "without a question?%s",
                    table->settings->start_timeout_seconds,
                    table->options->host_setup ? " Does --host-setup end?" : "");
}

/* Returns true while a host is still to be prepared. A faulty host is not waited for. */
static bool preparing(struct table *table)
{
    const struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = &agents->list[i];
        if (remote->state < REMOTE_PREPARED)
            check_deadline(remote);
        if (!*remote->fault &&
            (remote->state < REMOTE_PREPARED || remote->function_sent < agents->function_size))
            return true;
    }
    return false;
}

/* Continues the start. Hosts may be lost until the first one has published the assignments. */
static void advance(struct table *table)
{
    struct agents *agents = table->agents;
    bool faulty = false;
    hvd_status status;
    if (agents->assigning)
        check_deadline(&agents->list[0]);
    else if (preparing(table))
        return;
    for (int i = 0; i < agents->count; i++)
        faulty = faulty || *agents->list[i].fault;
    if (faulty) {
        report_faults(table);
    } else if (!agents->assigning && merge_hosts(table, &status)) {
        say(table, "%s", status.text);
        fail_hosts(table, 1);
    } else if (!agents->assigning) {
        table->happened(table, &(struct event){.kind = EVENT_PREPARED});
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

static void agents_child_ended(struct table *table, pid_t pid, int exit_code, int signal)
{
    for (int i = 0; i < table->agents->count; i++) {
        struct remote *remote = &table->agents->list[i];
        if (!remote->running || remote->pid != pid)
            continue;
        remote->running = false;
        remote->exit_code = exit_code;
        remote->signal = signal;
        guard_remove(table->guard, pid);
    }
}

/* check_end notices how the process ends. */
static void on_end_of_frames(struct frames *frames)
{
    frames->last = clock_now();
    frames_shut(frames);
}

/* SIGTERM lets srun end its tasks; guard.h describes what SIGKILL would leave behind. */
static int spawn(struct remote *remote, char **words, const int ends[3])
{
    struct child child = {.words = words, .file_count = 3, .end_signal = SIGTERM};
    memcpy(child.files, ends, 3 * sizeof *ends);
    remote->pid = child_start(&child, remote->table->guard);
    return remote->pid < 0 ? remote->pid : 0;
}

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
        .index = OUTPUT_STDERR, .file = -1, .forward = take_errors, .owner = remote, .credit = ERRORS_LIMIT};
    return output_open(&remote->errors, &remote->table->loop, &ends[2], &status) ? UV_EMFILE : 0;
}

static void call_host(struct remote *remote)
{
    int own[2] = {-1, -1}, ends[3] = {-1, -1, -1};
    char **words = ssh_words(remote->table, remote->host);
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
        frames_open(&remote->frames, &remote->table->loop, own[0], own[1]);
    }
}

/* ---- while ranks run ----------------------------------------------------------------------------------- */

static void agents_signal(const struct process *process, int signal)
{
    frame_send_numbers(&remote_of(process)->frames, FRAME_SIGNAL, 2, (int[]){process->slot, signal});
}

static void take_started(struct process *process, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int pid = (int)wire_get_u32(body), exit_code = (int)wire_get_u32(body);
    if (!wire_get_string(body, text, sizeof text) || *text) {
        struct event event = {
            .kind = EVENT_NOT_STARTED, .process = process, .exit_code = exit_code, .text = text};
        process->table->happened(process->table, &event);
        return;
    }
    process->pid = pid;
    process->running = true;
    process->started = clock_now();
}

static void take_output(struct process *process, struct wire_reader *body)
{
    uint8_t index = wire_get_u8(body);
    if (body->failed || index >= OUTPUTS)
        return;
    struct output *output = &process->outputs[index];
    if (body->length == body->position)
        output_close(output);
    else
        output_feed(output, body->bytes + body->position, body->length - body->position);
}

static void take_event(struct process *process, enum frame_kind kind, struct wire_reader *body)
{
    struct event event = {.kind = EVENT_ENDED, .process = process};
    switch (kind) {
    case FRAME_STARTED:
        take_started(process, body);
        break;
    case FRAME_OUTPUT:
        take_output(process, body);
        break;
    case FRAME_ENDED:
        event.exit_code = (int)wire_get_u32(body);
        event.signal = (int)wire_get_u32(body);
        if (!process->running)
            break;
        process_ended(process, event.exit_code, event.signal);
        process->table->happened(process->table, &event);
        break;
    default: /* FRAME_GONE */
        process->running = false;
        process->gone = true;
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
    frame_send(&remote->frames, FRAME_HEARTBEAT); /* the agent waits for an answer */
    remote->table->happened(remote->table,
                            &(struct event){.kind = EVENT_SIGNALLED, .signal = signal, .text = where});
}

void remote_take(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    struct table *table = remote->table;
    bool assigns = remote == &table->agents->list[0] && table->agents->assigning && !table->agents->started &&
                   !table->ending;
    hvd_fault fault;
    uint32_t slot;
    switch (kind) {
    case FRAME_READY:
        if (remote->state == REMOTE_CALLED)
            take_ready(remote, body);
        break;
    case FRAME_PREPARED:
        if (remote->state == REMOTE_READY)
            take_prepared(remote, body);
        break;
    case FRAME_SERVING:
        if (assigns)
            take_serving(remote, body);
        break;
    case FRAME_ASSIGNED:
        if (assigns)
            take_assigned(remote, body);
        break;
    case FRAME_STARTED:
    case FRAME_OUTPUT:
    case FRAME_ENDED:
    case FRAME_GONE:
        slot = wire_get_u32(body);
        if (!body->failed && slot < (uint32_t)table->count && remote_of(table->list[slot]) == remote)
            take_event(table->list[slot], kind, body);
        break;
    case FRAME_FAULT:
        if (remote == &table->agents->list[0] && fault_get(body, &fault))
            table->happened(table, &(struct event){.kind = EVENT_FAULT, .fault = &fault});
        break;
    case FRAME_SIGNALLED:
        take_signalled(remote, body);
        break;
    case FRAME_TAKEN:
        table->agents->input_credit += wire_get_u32(body);
        break;
    default: /* FRAME_HEARTBEAT: nothing to do, its receipt is recorded */
        break;
    }
}

/* ---- lost hosts ---------------------------------------------------------------------------------------- */

/* Its processes count as gone: an agent without its launcher kills them. */
static void lose(struct remote *remote, enum event_kind kind, const char *why)
{
    struct table *table = remote->table;
    int first = -1, last = -1;
    remote_end(remote);
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (process_host(process) != remote->host)
            continue;
        process_close_outputs(process);
        if (process->gone)
            continue;
        first = first < 0 ? process->place.rank : first;
        last = process->place.rank;
        process->running = false;
        process->gone = true;
    }
    if (first < 0)
        return;
    if (!table->ending)
        say(table, "lost host %s with rank%s %d%s%.0d: %s", remote->host->name, first < last ? "s" : "",
            first, first < last ? " to " : "", first < last ? last : 0, why);
    hvd_fault fault = {.struct_size = sizeof fault, .rank = -1};
    status_set(&fault.status, HVD_PEER_LOST, "lost host %s: %s", remote->host->name, why);
    status_blame(&fault.status, HVD_CAUSE_HOST, first, remote->host->name);
    table->happened(table, &(struct event){.kind = kind, .fault = &fault});
}

/* Returns true if the other hosts are silent as well. Heartbeats are frequent enough that a host which can be
 * reached is never silent for half of the limit. */
static bool others_are_silent(const struct table *table, double limit)
{
    int count = 0;
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = &table->agents->list[i];
        if (remote->state != REMOTE_STARTED || remote->host->local)
            continue;
        if (!frames_silent(&remote->frames, limit / 2))
            return false;
        count++;
    }
    return count > 1;
}

/* Checks whether the process and its two streams have ended, or have been silent for too long. */
static void check_end(struct remote *remote)
{
    char why[FAULT_LIMIT];
    enum event_kind kind = EVENT_HOST_LOST;
    /* Patience has no use once the job is ending. */
    double limit = remote->table->settings->timeout_seconds * (remote->table->ending ? 1 : LAUNCHER_PATIENCE);
    if (remote->state == REMOTE_ENDED)
        return;
    if (remote->state > REMOTE_CALLED && frames_silent(&remote->frames, limit)) {
        if (remote->running)
            kill(remote->pid, SIGKILL);
        kind = EVENT_HOST_SILENT;
        snprintf(why, sizeof why, "it has been silent for %g s%s", limit,
                 others_are_silent(remote->table, limit)
                     ? ", as all others: this host is cut off; is its network up?"
                     : "");
    } else if (remote->frames.open || remote->running ||
               (remote->errors.open && clock_now() < remote->frames.last + CLOCK_SECOND)) {
        return; /* something that ssh has left behind may hold stderr open forever */
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
        ssh_explain(remote->table, remote->host, remote->exit_code,
                    remote->said.failed ? "" : (char *)remote->said.bytes, why, sizeof why);
    }
    if (remote->state == REMOTE_STARTED) {
        lose(remote, kind, why);
    } else {
        remote_fail(remote, 1, "%s", why);
        remote_end(remote);
    }
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static void give_credit(const struct process *process, struct output *output)
{
    if (output->owed < FRAME_WINDOW / 2 || output_full(output) || !output->open)
        return;
    frame_send_numbers(&remote_of(process)->frames, FRAME_CREDIT, 3,
                       (int[]){process->slot, output->index, (int)output->owed});
    output->owed = 0;
}

/* Every answer wakes this loop, which would never sleep without a pause in between. */
static int64_t heartbeat_after(double timeout)
{
    double pause = HEARTBEAT_SHARE * timeout;
    if (timeout <= 0)
        return CLOCK_NEVER;
    return clock_after(pause > HEARTBEAT_PAUSE ? pause : HEARTBEAT_PAUSE);
}

/* Ends the stdin of all agents, which end then. */
static void agents_close(struct table *table)
{
    for (int i = 0; table->agents && i < table->agents->count; i++)
        frames_shut(&table->agents->list[i].frames);
}

static void agents_turn(struct table *table)
{
    struct agents *agents = table->agents;
    bool heartbeat = clock_now() > agents->next_heartbeat;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = &agents->list[i];
        check_end(remote);
        if (remote->state == REMOTE_PREPARED)
            send_function(remote);
        if (heartbeat && remote->state > REMOTE_CALLED)
            frame_send(&remote->frames, FRAME_HEARTBEAT);
    }
    if (heartbeat)
        agents->next_heartbeat = heartbeat_after(table->settings->timeout_seconds);
    if (!agents->started && !table->ending)
        advance(table);
    if (!agents->started) {
        if (table->ending)
            agents_close(table);
        return;
    }
    for (int i = 0; i < table->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            give_credit(table->list[i], &table->list[i]->outputs[j]);
    }
    input_watch(table);
}

/* Only wakes the loop: agents_turn reads the clock. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

/* Returns 0 if there is none. */
static off_t size_of_function(const struct table *table)
{
    struct stat info = {0};
    if (table->function >= 0)
        fstat(table->function, &info);
    return info.st_size;
}

static void raise_file_limit(struct table *table)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        table->file_limit = files.rlim_cur == RLIM_INFINITY ? 0 : files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static hvd_code agents_open(struct table *table, hvd_status *status)
{
    int count = table->hosts->count;
    struct agents *agents = calloc(1, sizeof *agents);
    struct remote *list = calloc((size_t)count, sizeof *list);
    struct remote **of_host = calloc((size_t)count, sizeof(struct remote *));
    if (!agents || !list || !of_host) {
        free(agents);
        free(list);
        free(of_host);
        return status_no_memory(status);
    }
    *agents = (struct agents){.list = list,
                              .of_host = of_host,
                              .function_size = size_of_function(table),
                              .deadline = clock_after(table->settings->start_timeout_seconds)};
    table->agents = agents;
    if (!getcwd(agents->folder, sizeof agents->folder))
        return status_set_errno(
            status, errno,
            "can't tell in which folder horovodrun was started; has it been removed? Start "
            "it in one that all hosts have");
    raise_file_limit(table);
    if (rlimits_check(table, table->size, false, status))
        return status->code;
    uv_timer_init(&table->loop, &agents->timer);
    uv_timer_start(&agents->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (int i = 0; i < count && table->hosts->list[i].ranks; i++) {
        struct remote *remote = &list[agents->count++];
        remote->table = table;
        remote->host = &table->hosts->list[i];
        remote->errors.file = -1;
        call_host(remote);
    }
    return HVD_OK;
}

static void agents_free(struct table *table)
{
    if (!table->agents)
        return;
    for (int i = 0; i < table->agents->count; i++) {
        struct remote *remote = &table->agents->list[i];
        frames_free(&remote->frames);
        output_free(&remote->errors);
        wire_writer_free(&remote->said);
    }
    free(table->agents->list);
    free(table->agents->of_host);
    free(table->agents);
}

static bool agents_connected(const struct table *table)
{
    for (int i = 0; i < table->agents->count; i++) {
        if (table->agents->list[i].running)
            return true;
    }
    return false;
}

/* Agents wait no longer for output than the launcher does, and then end. Output that is already on its way
 * takes as long as a slow connection needs. */
static bool agents_sending(const struct table *table)
{
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = &table->agents->list[i];
        if (remote->state == REMOTE_STARTED && remote->running && remote->frames.open &&
            !frames_silent(&remote->frames, DRAIN_SILENCE))
            return true;
    }
    return false;
}

/* Only the agent knows, and sends FRAME_GONE. */
static bool agents_gone(const struct process *process, bool given_up)
{
    (void)process;
    return given_up;
}

const struct starter_ops agents_starter = {.open = agents_open,
                                           .assign = agents_assign,
                                           .start = agents_start,
                                           .signal = agents_signal,
                                           .gone = agents_gone,
                                           .child_ended = agents_child_ended,
                                           .turn = agents_turn,
                                           .connected = agents_connected,
                                           .sending = agents_sending,
                                           .close = agents_close,
                                           .free = agents_free};
