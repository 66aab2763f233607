/* agents.c - the starter `agents`: processes on any number of hosts, by one agent on each. The first host
 * serves the rendezvous; that of an elastic job, whose hosts come and go, is served by this process. Once
 * processes have been started, the frames of agents are reported as events. One thread, the loop's. */
#include "agents.h"
#include "agents_hosts.h"
#include "agents_input.h"
#include "agents_look.h"
#include "agents_lost.h"
#include "agents_nodes.h"
#include "agents_prepare.h"
#include "guard.h"
#include "record_query.h"
#include "rlimits.h"
#include "say.h"
#include "starter.h"
#include "traces.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_MILLISECONDS 200
#define HEARTBEAT_SHARE   0.1 /* of the time after which silence counts */
#define HEARTBEAT_PAUSE   0.02
#define DRAIN_SILENCE     10.0 /* of a connection that only passes on output */
#define LOOKS             8    /* at the clock of a host, one after the other */

/* ---- the start ----------------------------------------------------------------------------------------- */

/* Returns the address at which the others reach the first host: the one at which its sshd was reached, or, if
 * it is this host, the one that others see. If it is empty, the agent finds an address itself. */
static const char *rendezvous_hint(const struct agents *agents)
{
    const struct remote *first = agents->list[0];
    int active = 0;
    for (int i = 0; i < agents->count; i++)
        active += agents->list[i]->state == REMOTE_PREPARED;
    if (active == 1)
        return "127.0.0.1";
    for (int i = 1; remote_host(first)->local && i < agents->count; i++) {
        if (agents->list[i]->state == REMOTE_PREPARED)
            return agents->list[i]->launcher_address;
    }
    return first->address;
}

/* The first host serves the rendezvous, and publishes the assignments there, unless this process does. */
static hvd_code agents_assign(struct table *table, const struct epoch *epoch, hvd_status *status)
{
    if (table->rendezvous)
        return local_starter.assign(table, epoch, status);
    struct frames *to = &table->agents->list[0]->frames;
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

/* Handles FRAME_SERVING and FRAME_ASSIGNED. */
static void on_assigned(struct remote *remote, enum frame_kind kind, struct wire_reader *body)
{
    struct table *table = remote->table;
    bool serving = kind == FRAME_SERVING;
    char fault[FAULT_LIMIT];
    if (serving)
        wire_get_string(body, table->rendezvous_address, sizeof table->rendezvous_address);
    if (!wire_get_string(body, fault, sizeof fault) || *fault) {
        say(table, "host %s: can't %s: %s", remote_host(remote)->name,
            serving ? "serve the rendezvous there" : "publish which process is which rank",
            *fault ? fault : "its answer is malformed");
        table->happened(table, &(struct event){.kind = EVENT_HOST_FAILED, .exit_code = 1});
    } else if (!serving) {
        table->agents->started = true;
        table->happened(table, &(struct event){.kind = EVENT_ASSIGNED});
    }
}

static void send_heartbeat(struct remote *remote)
{
    size_t begin = frame_begin(&remote->frames, FRAME_HEARTBEAT);
    wire_put_u64(&remote->frames.stream.out, (uint64_t)clock_now());
    frame_end(&remote->frames, begin);
}

/* Clocks drift, so that a trace needs looks at the start and at the end. */
static void look_at_clock(struct remote *remote)
{
    remote->looks_left = LOOKS - 1;
    send_heartbeat(remote);
}

/* Sends what all processes of the host have in common, and their number. */
static void send_job(struct remote *remote)
{
    const struct table *table = remote->table;
    struct job_terms terms = {.verbose = table->options->verbose,
                              .count = table->elastic ? 0 : remote_host(remote)->ranks,
                              .at_end = traces_window(table, false),
                              .at_failure = traces_window(table, true)};
    memcpy(terms.id, table->id, sizeof terms.id);
    if (!remote->is_node) /* which makes it itself */
        memcpy(terms.secret, table->secret, sizeof terms.secret);
    memcpy(terms.rendezvous, table->rendezvous_address, sizeof terms.rendezvous);
    memcpy(terms.host, remote_host(remote)->name, sizeof terms.host);
    size_t begin = frame_begin(&remote->frames, FRAME_JOB);
    job_terms_put(&terms, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    remote->state = REMOTE_STARTED;
    look_at_clock(remote);
}

static hvd_code agents_start(struct process *process, hvd_status *status)
{
    struct table *table = process->table;
    struct remote *remote = agents_of_host(table->agents, process->place.host);
    struct start start = {
        .slot = process->slot, .epoch = process->epoch, .size = process->size, .place = process->place};
    TRY(process_copy_outputs(process, status));
    for (int i = 0; i < (table->options->task ? OUTPUTS : OUTPUT_RESULT); i++)
        TRY(output_open_fed(&process->outputs[i], status));
    process->remote = remote;
    if (remote->state == REMOTE_PREPARED)
        send_job(remote);
    if (process->place.rank == 0 && !table->agents->input_to) {
        table->agents->input_to = remote;
        agents_input_open(table);
    }
    size_t begin = frame_begin(&remote->frames, FRAME_START);
    start_put(&start, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    process->gone = false;
    return HVD_OK;
}

static void agents_child_ended(struct table *table, pid_t pid, int exit_code, int signal)
{
    for (int i = 0; i < table->agents->count; i++) {
        struct remote *remote = table->agents->list[i];
        if (!remote->running || remote->pid != pid)
            continue;
        remote->running = false;
        remote->exit_code = exit_code;
        remote->signal = signal;
        guard_remove(table->guard, pid);
    }
}

/* ---- while ranks run ----------------------------------------------------------------------------------- */

static void agents_signal(const struct process *process, int signal)
{
    frame_send_numbers(&process->remote->frames, FRAME_SIGNAL, 2, (int[]){process->slot, signal});
}

static void on_started(struct process *process, struct wire_reader *body)
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

static void on_output(struct process *process, struct wire_reader *body)
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

/* Parts follow each other; the first one replaces what was sent earlier. */
static void on_records(struct process *process, struct wire_reader *body)
{
    struct history *history = &process->history;
    uint32_t first = wire_get_u32(body);
    if (!first)
        history_free(history);
    if (first != (uint32_t)history->count || !history_get(history, body))
        history_free(history);
}

/* Handles the frames that concern one process. */
static void on_process(struct process *process, enum frame_kind kind, struct wire_reader *body)
{
    struct event event = {.kind = EVENT_ENDED, .process = process};
    switch (kind) {
    case FRAME_STARTED:
        on_started(process, body);
        break;
    case FRAME_OUTPUT:
        on_output(process, body);
        break;
    case FRAME_ENDED:
        event.exit_code = (int)wire_get_u32(body);
        event.signal = (int)wire_get_u32(body);
        process->killer = (enum killer)wire_get_u32(body);
        if (!process->running)
            break;
        process_ended(process, event.exit_code, event.signal);
        if (!process->remote->looks_left)
            look_at_clock(process->remote);
        process->table->happened(process->table, &event);
        break;
    case FRAME_RECORDS:
        on_records(process, body);
        break;
    default: /* FRAME_GONE */
        process->running = false;
        process->gone = true;
    }
}

/* The next look follows at once, or with the next heartbeat. */
static void on_heartbeat(struct remote *remote, struct wire_reader *body)
{
    int64_t sent = (int64_t)wire_get_u64(body), theirs = (int64_t)wire_get_u64(body);
    if (!wire_done(body))
        return;
    clock_look_add(&remote->look, sent, theirs, clock_now());
    if (remote->looks_left > 0) {
        remote->looks_left--;
        send_heartbeat(remote);
    }
}

/* An elastic job goes on without the host: its ranks leave, and the second time they are lost. */
static void leave(struct remote *remote, int signal)
{
    char why[64];
    struct table *table = remote->table;
    if (signal == SIGTERM && !remote->leaving) {
        remote->leaving = true;
        say(table, "host %s: its agent got SIGTERM; its ranks leave the job", remote_host(remote)->name);
        table->happened(table, &(struct event){.kind = EVENT_HOST_LEAVES, .host = remote->host});
        return;
    }
    snprintf(why, sizeof why, "its agent got %s", signal_name(signal));
    agents_lose(remote, EVENT_HOST_LOST, why);
}

static void on_signalled(struct remote *remote, struct wire_reader *body)
{
    int signal = (int)wire_get_u32(body);
    char where[sizeof remote->identity + sizeof remote_host(remote)->name];
    if (!wire_done(body) || (signal != SIGINT && signal != SIGTERM && signal != SIGHUP))
        return;
    snprintf(where, sizeof where, "host %s: its agent ",
             remote->host >= 0 ? remote_host(remote)->name : remote->identity);
    send_heartbeat(remote); /* the agent waits for an answer */
    if (remote->table->elastic) {
        if (!remote->released)
            leave(remote, signal);
        return;
    }
    remote->table->happened(remote->table,
                            &(struct event){.kind = EVENT_SIGNALLED, .signal = signal, .text = where});
}

void agents_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    struct table *table = remote->table;
    bool assigns = remote == table->agents->list[0] && table->agents->assigning && !table->agents->started &&
                   !table->ending;
    struct process *process;
    hvd_fault fault;
    uint32_t slot;
    switch (kind) {
    case FRAME_READY:
        if (remote->state == REMOTE_CALLED)
            agents_prepare_host(remote, body);
        break;
    case FRAME_PREPARED:
        if (remote->state == REMOTE_READY)
            agents_prepare_answer(remote, body);
        break;
    case FRAME_SERVING:
    case FRAME_ASSIGNED:
        if (assigns)
            on_assigned(remote, kind, body);
        break;
    case FRAME_STARTED:
    case FRAME_OUTPUT:
    case FRAME_ENDED:
    case FRAME_GONE:
    case FRAME_RECORDS:
        slot = wire_get_u32(body);
        process = body->failed ? NULL : table_find(table, (int)slot);
        if (process && process->remote == remote)
            on_process(process, kind, body);
        break;
    case FRAME_RANK_VIEW:
    case FRAME_LOOKED:
        agents_look_receive(remote, kind, body);
        break;
    case FRAME_RECORD_QUERIED:
        slot = wire_get_u32(body);
        if (remote->host >= 0 && wire_done(body))
            record_query_host_done(table->record_query, slot, remote->host);
        break;
    case FRAME_FAULT:
        if (remote == table->agents->list[0] && !table->elastic && fault_get(body, &fault))
            table->happened(table, &(struct event){.kind = EVENT_FAULT, .fault = &fault});
        break;
    case FRAME_STALLED:
        table->happened(table, &(struct event){.kind = EVENT_STALLED});
        break;
    case FRAME_DONE:
        remote->done = remote->is_node;
        break;
    case FRAME_SIGNALLED:
        on_signalled(remote, body);
        break;
    case FRAME_TAKEN:
        agents_input_taken(remote, wire_get_u32(body));
        break;
    case FRAME_HEARTBEAT:
        on_heartbeat(remote, body);
        break;
    default:
        break;
    }
}

/* ---- turns --------------------------------------------------------------------------------------------- */

/* Ends the stdin of agents, which end then, and the connections of nodes. */
static void shut(struct table *table, bool nodes)
{
    for (int i = 0; table->agents && i < table->agents->count; i++) {
        struct remote *remote = table->agents->list[i];
        if (nodes || !remote->is_node)
            frames_shut(&remote->frames);
    }
}

static void agents_close(struct table *table)
{
    shut(table, true);
}

static void send_heartbeats(struct table *table)
{
    struct agents *agents = table->agents;
    double pause = HEARTBEAT_SHARE * table->settings->timeout_seconds;
    if (clock_now() <= agents->next_heartbeat)
        return;
    for (int i = 0; i < agents->count; i++) {
        if (agents->list[i]->state > REMOTE_CALLED)
            send_heartbeat(agents->list[i]);
    }
    /* Every answer wakes this loop, which would never sleep without a pause in between. */
    agents->next_heartbeat =
        pause > 0 ? clock_after(pause > HEARTBEAT_PAUSE ? pause : HEARTBEAT_PAUSE) : CLOCK_NEVER;
}

/* Lets the process write as much more as has been passed on of its output. */
static void give_credit(struct process *process)
{
    for (int i = 0; i < OUTPUTS; i++) {
        struct output *output = &process->outputs[i];
        if (output->owed < FRAME_WINDOW / 2 || output_full(output) || !output->open || !process->remote)
            continue;
        frame_send_numbers(&process->remote->frames, FRAME_CREDIT, 3,
                           (int[]){process->slot, i, (int)output->owed});
        output->owed = 0;
    }
}

static void agents_turn(struct table *table)
{
    struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        frames_awake(&agents->list[i]->frames, TICK_MILLISECONDS / 1000.0);
        agents_check_end(agents->list[i]);
    }
    send_heartbeats(table);
    if (table->elastic)
        agents_hosts_turn(table);
    if (!agents->started && !table->ending)
        agents_prepare_turn(table);
    if (!agents->started) {
        if (table->ending)
            shut(table, false); /* nodes end with agents_conclude */
        return;
    }
    for (int i = 0; i < table->count; i++)
        give_credit(table->list[i]);
    agents_input_turn(table);
}

/* Only wakes the loop: agents_turn reads the clock. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

/* Elastic jobs: EVENT_HOST_PREPARED or EVENT_HOST_UNUSABLE follows. */
static hvd_code agents_prepare(struct table *table, int host, hvd_status *status)
{
    struct remote *remote = agents_add(table, host);
    if (!remote)
        return status_no_memory(status);
    remote_call(remote, agents_receive);
    return HVD_OK;
}

/* The hosts of an elastic job are called one by one, and reach the rendezvous of this process. */
static hvd_code open_elastic(struct table *table, hvd_status *status)
{
    struct addresses addresses;
    TRY(addresses_find(table->settings->network_interface, "", &addresses, status));
    TRY(table_serve(table, &addresses, status));
    table->agents->started = true;
    table->happened(table, &(struct event){.kind = EVENT_PREPARED});
    return HVD_OK;
}

static hvd_code agents_open(struct table *table, hvd_status *status)
{
    struct agents *agents = calloc(1, sizeof *agents);
    struct stat function = {0};
    struct rlimit files;
    if (!agents)
        return status_no_memory(status);
    table->agents = agents;
    if (!getcwd(agents->folder, sizeof agents->folder))
        return status_set_errno(
            status, errno,
            "can't find out in which folder horovodrun was started; has it been removed? Start "
            "it in one that all hosts have");
    if (table->function >= 0)
        fstat(table->function, &function);
    agents->function_size = function.st_size;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        table->file_limit = files.rlim_cur == RLIM_INFINITY ? 0 : files.rlim_cur;
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    TRY(rlimits_check(table, table->size, false, status));
    uv_timer_init(&table->loop, &agents->timer);
    uv_timer_start(&agents->timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    if (table->elastic)
        return open_elastic(table, status);
    for (int i = 0; i < table->hosts->count && table->hosts->list[i].ranks; i++)
        TRY(agents_prepare(table, i, status));
    return HVD_OK;
}

static void agents_free(struct table *table)
{
    if (!table->agents)
        return;
    for (int i = 0; i < table->agents->count; i++) {
        remote_free(table->agents->list[i]);
        free(table->agents->list[i]);
    }
    free(table->agents->list);
    free(table->agents);
}

static bool is_connected(const struct remote *remote)
{
    bool may_send = remote->state == REMOTE_STARTED && remote->frames.open && !remote->done;
    return remote->is_node ? may_send : remote->running;
}

static bool agents_connected(const struct table *table)
{
    for (int i = 0; i < table->agents->count; i++) {
        if (is_connected(table->agents->list[i]))
            return true;
    }
    return false;
}

/* Agents wait no longer for output than the launcher does, and then end. Output that is already on its way
 * takes as long as a slow connection needs. */
static bool agents_sending(const struct table *table)
{
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = table->agents->list[i];
        if (remote->state == REMOTE_STARTED && is_connected(remote) && remote->frames.open &&
            !frames_silent(&remote->frames, DRAIN_SILENCE))
            return true;
    }
    return false;
}

/* Only the agent sees that, and sends FRAME_GONE. */
static bool agents_gone(const struct process *process, bool given_up)
{
    (void)process;
    return given_up;
}

static bool agents_record_query(const struct table *table, int host, uint32_t number,
                                const struct history_window *window)
{
    struct remote *remote = agents_of_host(table->agents, host);
    if (!remote || remote->state != REMOTE_STARTED)
        return false;
    if (!remote->looks_left)
        look_at_clock(remote);
    size_t begin = frame_begin(&remote->frames, FRAME_RECORD_QUERY);
    wire_put_u32(&remote->frames.stream.out, number);
    window_put(window, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    return true;
}

static int agents_clock(const struct process *process, int64_t *ahead)
{
    *ahead = process->remote ? process->remote->look.ahead : process_host(process)->ahead;
    return process->place.host;
}

const struct starter_ops agents_starter = {.open = agents_open,
                                           .prepare = agents_prepare,
                                           .release = agents_release,
                                           .assign = agents_assign,
                                           .start = agents_start,
                                           .signal = agents_signal,
                                           .gone = agents_gone,
                                           .clock = agents_clock,
                                           .child_ended = agents_child_ended,
                                           .look = agents_look,
                                           .record_query = agents_record_query,
                                           .silent = agents_silent,
                                           .turn = agents_turn,
                                           .connected = agents_connected,
                                           .sending = agents_sending,
                                           .said = agents_said,
                                           .conclude = agents_conclude,
                                           .close = agents_close,
                                           .free = agents_free};
