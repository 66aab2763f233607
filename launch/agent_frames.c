/* agent_frames.c - see agent_frames.h. */
#include "agent_frames.h"
#include "agent_prepare.h"
#include "faults.h"
#include "nodes.h"
#include "rlimits.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"
#include "base/topology.h"
#include "net/addresses.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TEXT_LIMIT          4096
#define ANSWER_MILLISECONDS 3000              /* within which a busy launcher answers a signal */
#define UNSENT_LIMIT        ((size_t)1 << 20) /* bytes; the connection is too slow for more of them */

/* ---- before the start ---------------------------------------------------------------------------------- */

static void send_prepared(struct agent *agent, int exit_code, const char *text)
{
    size_t begin = frame_begin(&agent->frames, FRAME_PREPARED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)exit_code);
    wire_put_string(&agent->frames.stream.out, text);
    frame_end(&agent->frames, begin);
}

static void on_prepare(struct agent *agent, struct wire_reader *body)
{
    char text[TEXT_LIMIT] = "what the launcher has sent is malformed, or memory is out";
    int exit_code = 1;
    struct preparation preparation = {0};
    if (!agent->preparation.command && preparation_get(&preparation, body)) {
        agent->preparation = preparation;
        exit_code = agent_prepare(&agent->preparation, &agent->settings, text, sizeof text);
        agent->options.command = agent->preparation.command;
    } else {
        words_free(preparation.environment);
        words_free(preparation.command);
    }
    send_prepared(agent, exit_code, text);
}

/* The command, its folder and its environment are this node's own. */
static void prepare_node(struct agent *agent)
{
    char text[TEXT_LIMIT];
    int exit_code = agent_prepare(&agent->preparation, &agent->settings, text, sizeof text);
    agent->options.command = agent->preparation.command;
    send_prepared(agent, exit_code, text);
}

static void on_function(struct agent *agent, const struct wire_reader *body)
{
    struct table *table = &agent->table;
    size_t left = body->length - body->position;
    if (table->function < 0)
        table->function = memfd_create("function", MFD_CLOEXEC);
    agent->lost = agent->lost || table->function < 0 ||
                  write(table->function, body->bytes + body->position, left) != (ssize_t)left;
}

/* The hint is the address at which other hosts reach this one. It is used if it is an address of this host,
 * which it is not behind a translation of addresses. Loopback means that there are no other hosts. */
static void on_serve(struct agent *agent, struct wire_reader *body)
{
    char hint[SOCKET_TEXT];
    struct addresses found;
    hvd_status status = {.code = HVD_OK};
    struct table *table = &agent->table;
    if (!wire_get_string(body, table->secret, sizeof table->secret) ||
        !wire_get_string(body, hint, sizeof hint) || !wire_done(body) || table->rendezvous)
        status_set(&status, HVD_REFUSED, "what the launcher has sent is malformed");
    else if (strcmp(hint, addresses_of_loopback.list[0]) == 0)
        table_serve(table, &addresses_of_loopback, &status);
    else if (addresses_find(agent->settings.network_interface, hint, &found, &status) == HVD_OK)
        table_serve(table, &found, &status);
    size_t begin = frame_begin(&agent->frames, FRAME_SERVING);
    wire_put_string(&agent->frames.stream.out, table->rendezvous_address);
    wire_put_string(&agent->frames.stream.out, *table->rendezvous_address ? "" : status.text);
    frame_end(&agent->frames, begin);
}

static void on_epoch(struct agent *agent, struct wire_reader *body)
{
    struct epoch epoch = {0};
    hvd_status status;
    hvd_code code;
    if (!epoch_get(&epoch, body) || !agent->table.rendezvous)
        code = status_set(&status, HVD_REFUSED, "what the launcher has sent is malformed, or memory is out");
    else
        code = hvd_rendezvous_assign(agent->table.rendezvous, epoch.job, epoch.number, epoch.assignments,
                                     epoch.count, &status);
    size_t begin = frame_begin(&agent->frames, FRAME_ASSIGNED);
    wire_put_string(&agent->frames.stream.out, code ? status.text : "");
    frame_end(&agent->frames, begin);
    if (!code && faults_watch(&agent->table, epoch.job, epoch.number, &status))
        fprintf(stderr, "horovodrun: %s\n", status.text);
    epoch_free(&epoch);
}

/* ---- processes ----------------------------------------------------------------------------------------- */

static void forward(struct output *output, const void *bytes, size_t length)
{
    const struct process *process = output->owner;
    struct agent *agent = (struct agent *)process->table;
    size_t begin = frame_begin(&agent->frames, FRAME_OUTPUT);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)process->slot);
    wire_put_u8(&agent->frames.stream.out, (uint8_t)output->index);
    wire_put_raw(&agent->frames.stream.out, bytes, length);
    frame_end(&agent->frames, begin);
}

/* Returns the last process that was started in the slot, or NULL. */
static struct process *find_process(const struct agent *agent, int slot)
{
    for (int i = agent->table.count - 1; i >= 0; i--) {
        if (agent->table.list[i]->slot == slot)
            return agent->table.list[i];
    }
    return NULL;
}

/* Announces the processes that FRAME_START starts one by one; may be repeated for others. */
static void on_job(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct job_terms terms;
    if (!*agent->options.command || !job_terms_get(&terms, body) || terms.count > INT_MAX - agent->expected) {
        agent->lost = true;
        return;
    }
    memcpy(table->id, terms.id, sizeof table->id);
    if (agent->node)
        nodes_derive_secret(agent->node->secret, terms.id, table->secret);
    else
        memcpy(table->secret, terms.secret, sizeof table->secret);
    memcpy(table->rendezvous_address, terms.rendezvous, sizeof table->rendezvous_address);
    memcpy(agent->host.name, terms.host, sizeof agent->host.name);
    agent->options.verbose = terms.verbose;
    agent->at_end = terms.at_end;
    agent->at_failure = terms.at_failure;
    agent->announced = true;
    table->elastic = !terms.count;
    agent->expected += terms.count;
    agent->fault.code = rlimits_check(table, agent->expected, true, &agent->fault);
}

bool agent_may_start(const struct agent *agent)
{
    const struct table *table = &agent->table;
    return table->elastic ? !agent->released : table->count < agent->expected;
}

/* Returns NULL if the frame makes no sense, or memory is out. */
static struct process *add_process(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct start start;
    if (!agent_may_start(agent) || !start_get(&start, body))
        return NULL;
    const struct process *before = find_process(agent, start.slot);
    if (before && !before->gone)
        return NULL;
    table->epoch = start.epoch;
    table->size = start.size;
    return table_add(table, start.slot, &start.place);
}

/* After one that can't be started the others that are announced are not started either; those of elastic
 * jobs are independent of each other. */
static void on_start(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct wire_writer *out = &agent->frames.stream.out;
    struct process *process = add_process(agent, body);
    uv_file ends[2];
    if (!process) {
        agent->lost = true;
        return;
    }
    for (int i = 0; i < OUTPUTS; i++) {
        process->outputs[i].forward = forward;
        process->outputs[i].owner = process;
        process->outputs[i].credit = FRAME_WINDOW;
    }
    if (process->place.rank == 0 && process->epoch == 0 && !agent->input_given &&
        uv_pipe(ends, 0, UV_NONBLOCK_PIPE) == 0) {
        agent->input_given = true;
        table->input = ends[0];
        sink_adopt(&agent->input, &table->loop, ends[1]); /* it gets what arrives in frames */
    }
    if (table->elastic)
        agent->fault.code = rlimits_check(table, table_count_running(table) + 1, true, &agent->fault);
    if (!agent->fault.code)
        agent->fault.code = table->starter->start(process, &agent->fault);
    size_t begin = frame_begin(&agent->frames, FRAME_STARTED);
    wire_put_u32(out, (uint32_t)process->slot);
    wire_put_u32(out, (uint32_t)process->pid);
    wire_put_u32(out, (uint32_t)process->exit_code);
    wire_put_string(out, agent->fault.code ? agent->fault.text : "");
    frame_end(&agent->frames, begin);
    if (agent->fault.code)
        process_close_outputs(process);
    if (table->input != STDIN_FILENO)
        close(table->input);
    table->input = STDIN_FILENO;
}

/* ---- looks --------------------------------------------------------------------------------------------- */

void agent_send_views(struct look *look, struct rank_view *views, int count)
{
    struct agent *agent = (struct agent *)look->table;
    int64_t now = clock_now();
    for (int i = 0; i < count; i++) {
        size_t begin = frame_begin(&agent->frames, FRAME_RANK_VIEW);
        wire_put_u32(&agent->frames.stream.out, agent->look_number);
        rank_view_put(&views[i], now, &agent->frames.stream.out);
        frame_end(&agent->frames, begin);
        rank_view_free(&views[i]);
    }
    free(views);
    frame_send_numbers(&agent->frames, FRAME_LOOKED, 1, (int[]){(int)agent->look_number});
}

/* A look that is under way answers this question as well. */
static void on_look(struct agent *agent, struct wire_reader *body)
{
    uint32_t number = wire_get_u32(body), stacks = wire_get_u32(body);
    if (!wire_done(body) || stacks > STACKS_ALL || agent->frames.stream.out.length > UNSENT_LIMIT)
        return;
    agent->look_number = number;
    look_start(&agent->look, (enum stacks)stacks, NULL); /* without memory the host does not answer */
}

/* ---- records ------------------------------------------------------------------------------------------- */

void agent_send_records(struct agent *agent, const struct history_window *window)
{
    struct wire_writer *out = &agent->frames.stream.out;
    struct page_copies *copies = window->most ? page_copies_create() : NULL;
    for (int i = 0; copies && i < agent->table.count; i++) {
        const struct process *process = agent->table.list[i];
        struct history history = {0};
        hvd_status status; /* a page without records is left out */
        if (process->page >= 0)
            history_read(process->page, copies, window, clock_now(), &history, &status);
        for (int first = 0; first < history.count;) {
            size_t begin = frame_begin(&agent->frames, FRAME_RECORDS);
            wire_put_u32(out, (uint32_t)process->slot);
            wire_put_u32(out, (uint32_t)first);
            first = history_put(&history, first, FRAME_RECORDS_LIMIT, out);
            frame_end(&agent->frames, begin);
        }
        history_free(&history);
    }
    page_copies_free(copies);
}

static void on_record_query(struct agent *agent, struct wire_reader *body)
{
    int number = (int)wire_get_u32(body);
    struct history_window window;
    if (!window_get(&window, body) || !wire_done(body) || agent->frames.stream.out.length > UNSENT_LIMIT)
        return;
    agent_send_records(agent, &window);
    frame_send_numbers(&agent->frames, FRAME_RECORD_QUERIED, 1, &number);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void on_input(struct agent *agent, const struct wire_reader *body)
{
    size_t left = body->length - body->position;
    if (!agent->input_given)
        return;
    agent->input_ended = agent->input_ended || left == 0;
    sink_put(&agent->input, body->bytes + body->position, left);
    sink_flush(&agent->input);
    agent->input_taken += left;
}

static void on_credit(const struct agent *agent, struct wire_reader *body)
{
    struct process *process = find_process(agent, (int)wire_get_u32(body));
    uint32_t index = wire_get_u32(body);
    uint32_t bytes = wire_get_u32(body);
    if (!process || body->failed || index >= OUTPUTS)
        return;
    process->outputs[index].credit += bytes;
    output_resume(&process->outputs[index]);
}

static void on_signal(const struct agent *agent, struct wire_reader *body)
{
    struct process *process = find_process(agent, (int)wire_get_u32(body));
    int signal = (int)wire_get_u32(body);
    if (process && process->pid > 0 && !body->failed)
        process_signal(process, signal);
}

static void on_heartbeat(struct agent *agent, struct wire_reader *body)
{
    size_t begin = frame_begin(&agent->frames, FRAME_HEARTBEAT);
    wire_put_u64(&agent->frames.stream.out, wire_get_u64(body));
    wire_put_u64(&agent->frames.stream.out, (uint64_t)clock_now());
    frame_end(&agent->frames, begin);
}

void agent_send_ready(struct agent *agent)
{
    char identity[TOPOLOGY_HOST_LIMIT], from[SOCKET_TEXT] = "", to[SOCKET_TEXT] = "";
    const char *connection = getenv("SSH_CONNECTION"); /* client, its port, server, its port */
    agent_name_host(identity, sizeof identity, agent->node ? agent->node->hello.index : -1);
    if (agent->node) {
        socket_peer_address(agent->frames.stream.fd, from);
        socket_local_address(agent->frames.stream.fd, to);
    } else {
        if (connection)
            sscanf(connection, "%79s %*s %79s", from, to);
        wire_put_raw(&agent->frames.stream.out, FRAME_PREAMBLE, sizeof FRAME_PREAMBLE - 1);
    }
    size_t begin = frame_begin(&agent->frames, FRAME_READY);
    wire_put_string(&agent->frames.stream.out, hvd_version());
    wire_put_string(&agent->frames.stream.out, identity);
    wire_put_string(&agent->frames.stream.out, from);
    wire_put_string(&agent->frames.stream.out, to);
    frame_end(&agent->frames, begin);
}

/* Handles the frames that only a node gets. */
static void on_node_frame(struct agent *agent, enum frame_kind kind, struct wire_reader *body)
{
    const struct agent_node *node = agent->node;
    switch (kind) {
    case FRAME_WAITING:
        break;
    case FRAME_WELCOME:
        say(&agent->table, "node %d of %d; node 0 at %s prints what all ranks print", node->hello.index,
            node->hello.count, node->rendezvous);
        agent_send_ready(agent);
        break;
    case FRAME_PREPARE_NODE:
        if (!*agent->options.command)
            prepare_node(agent);
        break;
    case FRAME_SAID:
        sink_put(agent->table.err, body->bytes + body->position, body->length - body->position);
        sink_flush(agent->table.err);
        break;
    case FRAME_OUTCOME:
        agent->exit_code = (int)wire_get_u32(body);
        agent->concluded = wire_done(body);
        break;
    default:
        agent->lost = true;
    }
}

void agent_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct agent *agent = frames->owner;
    switch (kind) {
    case FRAME_PREPARE:
        on_prepare(agent, body);
        break;
    case FRAME_FUNCTION:
        on_function(agent, body);
        break;
    case FRAME_SERVE:
        on_serve(agent, body);
        break;
    case FRAME_EPOCH:
        on_epoch(agent, body);
        break;
    case FRAME_JOB:
        on_job(agent, body);
        break;
    case FRAME_START:
        on_start(agent, body);
        break;
    case FRAME_RELEASE:
        agent->released = true;
        break;
    case FRAME_INPUT:
        on_input(agent, body);
        break;
    case FRAME_CREDIT:
        on_credit(agent, body);
        break;
    case FRAME_SIGNAL:
        on_signal(agent, body);
        break;
    case FRAME_LOOK:
        on_look(agent, body);
        break;
    case FRAME_RECORD_QUERY:
        on_record_query(agent, body);
        break;
    case FRAME_HEARTBEAT:
        on_heartbeat(agent, body);
        break;
    default:
        if (agent->node)
            on_node_frame(agent, kind, body);
        else
            agent->lost = true;
    }
}

/* ---- to the launcher ----------------------------------------------------------------------------------- */

static void on_time_for_answer(uv_timer_t *timer)
{
    struct agent *agent = timer->loop->data;
    frames_catch_up(&agent->frames);
    agent->lost = agent->lost || agent->frames.last < agent->signalled;
}

/* An agent decides nothing: events become frames. */
void agent_happened(struct table *table, const struct event *event)
{
    struct agent *agent = (struct agent *)table;
    struct frames *to = &agent->frames;
    size_t begin;
    switch (event->kind) {
    case EVENT_ENDED:
        frame_send_numbers(
            to, FRAME_ENDED, 4,
            (int[]){event->process->slot, event->exit_code, event->signal, (int)event->process->killer});
        break;
    case EVENT_FAULT:
        begin = frame_begin(to, FRAME_FAULT);
        fault_put(&to->stream.out, event->fault);
        frame_end(to, begin);
        break;
    case EVENT_STALLED:
        frame_send(to, FRAME_STALLED);
        break;
    case EVENT_SIGNALLED:
        /* The launcher then ends the job on all hosts. If it can't be reached, the processes of this host are
         * killed. */
        agent->signal = event->signal;
        frame_send_numbers(to, FRAME_SIGNALLED, 1, &event->signal);
        if (uv_is_active((uv_handle_t *)&agent->answer))
            break;
        agent->signalled = clock_now();
        uv_timer_start(&agent->answer, on_time_for_answer, ANSWER_MILLISECONDS, 0);
        break;
    default:
        break;
    }
}

/* Reports which processes are gone, and how much of its stdin rank 0 has read. */
static void report_progress(struct agent *agent)
{
    for (int i = 0; i < agent->table.count; i++) {
        struct process *process = agent->table.list[i];
        if (!process->pid || !process->gone)
            continue;
        frame_send_numbers(&agent->frames, FRAME_GONE, 1, &process->slot);
        process->pid = 0;
        process->gone_reported = true;
    }
    if (!sink_idle(&agent->input))
        return;
    if (agent->input_taken > 0) {
        frame_send_numbers(&agent->frames, FRAME_TAKEN, 1, (int[]){(int)agent->input_taken});
        agent->input_taken = 0;
    }
    if (agent->input_ended)
        sink_close(&agent->input);
}

void agent_turn(struct agent *agent)
{
    struct table *table = &agent->table;
    report_progress(agent);
    if (table->elastic)
        table_release(table, NULL);
    for (int i = 0; i < table->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            output_resume(&table->list[i]->outputs[j]);
    }
}
