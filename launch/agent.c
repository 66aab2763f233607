/* agent.c - runs horovodrun --agent: starts the processes of one host for a launcher elsewhere, passes on
 * what they print, and signals them, by frames over its stdin and stdout. One thread, the loop's. An agent
 * decides nothing. It kills all processes when its stdin ends, when no heartbeat has arrived for a multiple
 * of --timeout-seconds, and when the launcher does not answer a signal. */
#include "agent.h"
#include "environment.h"
#include "faults.h"
#include "frames.h"
#include "guard.h"
#include "options.h"
#include "processes.h"
#include "rlimits.h"
#include "starter.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"
#include "base/topology.h"
#include "net/addresses.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LIMIT          4096
#define ANSWER_MILLISECONDS 1000 /* within which the launcher answers a signal */

struct agent {
    struct table table; /* the first member: a pointer to one is a pointer to the other */
    struct options options;
    struct settings settings;
    struct host host; /* this one */
    struct hosts hosts;
    struct preparation preparation;
    struct frames frames;
    struct sink input; /* of rank 0 */
    size_t input_taken;
    bool input_ended;
    int expected;     /* processes that the launcher has announced */
    hvd_status fault; /* why no process is started any longer */
    bool lost;
    uv_timer_t answer; /* ends the time for the launcher's answer */
    int64_t signalled; /* when the launcher was sent a signal, clock_now's */
};

/* ---- the environment of the launcher ------------------------------------------------------------------- */

/* Returns false if the environment before --host-setup can't be read. */
static bool read_first_environment(struct wire_writer *text)
{
    char piece[4096];
    ssize_t count;
    while ((count = read(AGENT_ENVIRONMENT, piece, sizeof piece)) > 0)
        wire_put_raw(text, piece, (size_t)count);
    close(AGENT_ENVIRONMENT);
    wire_put_u8(text, 0);
    return count == 0 && !text->failed && text->length > 1;
}

static bool holds(const struct wire_writer *text, const char *entry)
{
    for (size_t at = 0; at < text->length; at += strlen((char *)text->bytes + at) + 1) {
        if (strcmp((char *)text->bytes + at, entry) == 0)
            return true;
    }
    return false;
}

/* Returns the entries that --host-setup has changed; a name alone is a variable that it has unset. Their text
 * is in `first`, the environment before it. Returns NULL if that can't be read. */
static char **changes_of_setup(struct wire_writer *first)
{
    size_t count = 0, next = 0, length;
    if (!read_first_environment(first))
        return NULL;
    while (environ[count])
        count++;
    char **changes = calloc(count + first->length + 1, sizeof *changes);
    for (size_t i = 0; changes && i < count; i++) {
        if (!holds(first, environ[i]))
            changes[next++] = environ[i];
    }
    for (size_t at = 0; changes && at < first->length; at += length + 1) {
        char *entry = (char *)first->bytes + at;
        length = strlen(entry);
        entry[strcspn(entry, "=")] = '\0';
        if (*entry && !getenv(entry))
            changes[next++] = entry;
    }
    return changes;
}

/* Variables that --host-setup has changed take precedence over those of the launcher, and these over those of
 * this host. */
static bool take_environment(const struct agent *agent)
{
    struct wire_writer first = {0};
    char **changes = agent->preparation.setup ? changes_of_setup(&first) : calloc(1, sizeof *changes);
    char **merged = NULL;
    if (changes)
        merged =
            environment_merge((char *const *const[]){changes, agent->preparation.environment, environ, NULL});
    if (merged)
        environ = merged;
    free(changes);
    wire_writer_free(&first);
    return merged;
}

/* ---- before the start ---------------------------------------------------------------------------------- */

/* Returns a shell's exit code: 0, 126 (the file can't be executed) or 127 (there is none). */
static int check_program(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return errno == EACCES ? 126 : 127;
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? 0 : 126;
}

/* Searches as execvp does. */
static int check_command(const char *command)
{
    const char *path = getenv("PATH");
    int found = 127;
    if (strchr(command, '/'))
        return check_program(command);
    for (path = path ? path : "/bin:/usr/bin";; path++) {
        char candidate[PATH_LIMIT];
        int length = (int)strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s%s%s", length, path, length ? "/" : "", command);
        int exit_code = check_program(candidate);
        found = exit_code < found ? exit_code : found;
        path += length;
        if (!exit_code || !*path)
            return found;
    }
}

static void answer_prepared(struct agent *agent, int exit_code, const char *format, const char *what)
{
    char text[PATH_LIMIT];
    snprintf(text, sizeof text, format, what);
    size_t begin = frame_begin(&agent->frames, FRAME_PREPARED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)exit_code);
    wire_put_string(&agent->frames.stream.out, text);
    frame_end(&agent->frames, begin);
}

static void prepare(struct agent *agent, struct wire_reader *body)
{
    struct preparation *preparation = &agent->preparation;
    struct addresses addresses;
    hvd_status status;
    if (preparation->command || !preparation_take(preparation, body)) {
        answer_prepared(agent, 1, "%s", "what the launcher has sent is malformed, or memory is out");
        return;
    }
    if (!take_environment(agent)) {
        answer_prepared(
            agent, 1, "%s",
            "can't tell what --host-setup has changed: there is no program `env` that knows -0, or "
            "memory is out");
        return;
    }
    agent->options.command = preparation->command;
    if (settings_load_environment(&agent->settings, &status)) {
        answer_prepared(agent, 2, "%s", status.text);
    } else if (chdir(preparation->folder)) {
        answer_prepared(agent, 1,
                        "there is no folder %s, in which horovodrun was started; make it, or start from one "
                        "that all hosts have",
                        preparation->folder);
    } else if (addresses_find(agent->settings.network_interface, "", &addresses, &status)) {
        answer_prepared(agent, 1, "%s", status.text);
    } else {
        static const char *const texts[] = {
            "'%s' can't be executed there; is it a file, and has it the permission? chmod +x sets it",
            "'%s' was not found; is it on the PATH there? --host-setup can set it for each host"};
        int exit_code = check_command(*preparation->command);
        if (exit_code)
            answer_prepared(agent, exit_code, texts[exit_code - 126], *preparation->command);
        else
            answer_prepared(agent, 0, "%s", "");
    }
}

static void take_function(struct agent *agent, const struct wire_reader *body)
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
static hvd_code start_rendezvous(struct agent *agent, const char *hint, hvd_status *status)
{
    struct addresses found;
    if (strcmp(hint, addresses_of_loopback.list[0]) == 0)
        return table_serve(&agent->table, &addresses_of_loopback, status);
    TRY(addresses_find(agent->settings.network_interface, hint, &found, status));
    return table_serve(&agent->table, &found, status);
}

static void serve(struct agent *agent, struct wire_reader *body)
{
    char hint[SOCKET_TEXT];
    hvd_status status = {.code = HVD_OK};
    struct table *table = &agent->table;
    if (!wire_get_string(body, table->secret, sizeof table->secret) ||
        !wire_get_string(body, hint, sizeof hint) || !wire_done(body))
        status_set(&status, HVD_REFUSED, "what the launcher has sent is malformed");
    else
        start_rendezvous(agent, hint, &status);
    size_t begin = frame_begin(&agent->frames, FRAME_SERVING);
    wire_put_string(&agent->frames.stream.out, table->rendezvous_address);
    wire_put_string(&agent->frames.stream.out, *table->rendezvous_address ? "" : status.text);
    frame_end(&agent->frames, begin);
}

static void assign(struct agent *agent, struct wire_reader *body)
{
    struct epoch epoch = {0};
    hvd_status status;
    hvd_code code;
    if (!epoch_take(&epoch, body) || !agent->table.rendezvous)
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

static void send_started(struct agent *agent, const struct process *process, const char *fault)
{
    size_t begin = frame_begin(&agent->frames, FRAME_STARTED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)process->slot);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)process->pid);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)process->exit_code);
    wire_put_string(&agent->frames.stream.out, fault);
    frame_end(&agent->frames, begin);
}

static void send_ended(struct agent *agent, const struct event *event)
{
    size_t begin = frame_begin(&agent->frames, FRAME_ENDED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)event->process->slot);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)event->exit_code);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)event->signal);
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

/* Makes the pipe through which rank 0 reads what arrives in frames. */
static void open_input(struct agent *agent)
{
    uv_file ends[2];
    if (uv_pipe(ends, 0, UV_NONBLOCK_PIPE))
        return;
    agent->table.input = ends[0];
    sink_take(&agent->input, &agent->table.loop, ends[1]);
}

/* Announces the processes that FRAME_START starts one by one; may be repeated for others. */
static void take_job(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct job_terms terms;
    if (!agent->options.command || !job_terms_take(&terms, body)) {
        agent->lost = true;
        return;
    }
    memcpy(table->id, terms.id, sizeof table->id);
    memcpy(table->secret, terms.secret, sizeof table->secret);
    memcpy(table->rendezvous_address, terms.rendezvous, sizeof table->rendezvous_address);
    memcpy(agent->host.name, terms.host, sizeof agent->host.name);
    agent->options.verbose = terms.verbose;
    agent->expected += terms.count;
    agent->fault.code = rlimits_check(table, agent->expected, true, &agent->fault);
}

/* Returns NULL if the frame makes no sense, or memory is out. */
static struct process *add_process(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct start start;
    if (table->count == agent->expected || !start_take(&start, body))
        return NULL;
    const struct process *before = find_process(agent, start.slot);
    if (before && !before->gone)
        return NULL;
    table->epoch = start.epoch;
    table->size = start.size;
    return table_add(table, start.slot, &start.place);
}

/* After one that can't be started the others that are announced are not started either. */
static void start(struct agent *agent, struct wire_reader *body)
{
    struct table *table = &agent->table;
    struct process *process = add_process(agent, body);
    if (!process) {
        agent->lost = true;
        return;
    }
    for (int i = 0; i < OUTPUTS; i++) {
        process->outputs[i].forward = forward;
        process->outputs[i].owner = process;
        process->outputs[i].credit = FRAME_WINDOW;
    }
    if (process->place.rank == 0)
        open_input(agent);
    if (!agent->fault.code)
        agent->fault.code = table->starter->start(process, &agent->fault);
    send_started(agent, process, agent->fault.code ? agent->fault.text : "");
    if (agent->fault.code)
        process_close_outputs(process);
    if (table->input != STDIN_FILENO)
        close(table->input);
    table->input = STDIN_FILENO;
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void take_input(struct agent *agent, const struct wire_reader *body)
{
    size_t left = body->length - body->position;
    agent->input_ended = agent->input_ended || left == 0;
    sink_put(&agent->input, body->bytes + body->position, left);
    sink_flush(&agent->input);
    agent->input_taken += left;
}

static void take_credit(const struct agent *agent, struct wire_reader *body)
{
    struct process *process = find_process(agent, (int)wire_get_u32(body));
    uint32_t index = wire_get_u32(body);
    uint32_t bytes = wire_get_u32(body);
    if (!process || body->failed || index >= OUTPUTS)
        return;
    process->outputs[index].credit += bytes;
    output_resume(&process->outputs[index]);
}

static void take_signal(const struct agent *agent, struct wire_reader *body)
{
    struct process *process = find_process(agent, (int)wire_get_u32(body));
    int signal = (int)wire_get_u32(body);
    if (process && process->pid > 0 && !body->failed)
        process_signal(process, signal);
}

static void on_frame(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct agent *agent = frames->owner;
    switch (kind) {
    case FRAME_PREPARE:
        prepare(agent, body);
        break;
    case FRAME_FUNCTION:
        take_function(agent, body);
        break;
    case FRAME_SERVE:
        serve(agent, body);
        break;
    case FRAME_EPOCH:
        assign(agent, body);
        break;
    case FRAME_JOB:
        take_job(agent, body);
        break;
    case FRAME_START:
        start(agent, body);
        break;
    case FRAME_INPUT:
        take_input(agent, body);
        break;
    case FRAME_CREDIT:
        take_credit(agent, body);
        break;
    case FRAME_SIGNAL:
        take_signal(agent, body);
        break;
    case FRAME_HEARTBEAT:
        frame_send(&agent->frames, FRAME_HEARTBEAT);
        break;
    default:
        agent->lost = true;
    }
}

static void on_time_for_answer(uv_timer_t *timer)
{
    struct agent *agent = timer->loop->data;
    agent->lost = agent->lost || agent->frames.last < agent->signalled;
}

/* The launcher then ends the job on all hosts. If it can't be reached, the processes of this host are killed.
 */
static void send_signalled(struct agent *agent, int signal)
{
    frame_send_numbers(&agent->frames, FRAME_SIGNALLED, 1, &signal);
    if (uv_is_active((uv_handle_t *)&agent->answer))
        return;
    agent->signalled = clock_now();
    uv_timer_start(&agent->answer, on_time_for_answer, ANSWER_MILLISECONDS, 0);
}

static void send_fault(struct agent *agent, const hvd_fault *fault)
{
    size_t begin = frame_begin(&agent->frames, FRAME_FAULT);
    fault_put(&agent->frames.stream.out, fault);
    frame_end(&agent->frames, begin);
}

/* An agent decides nothing: events become frames. */
static void happened(struct table *table, const struct event *event)
{
    struct agent *agent = (struct agent *)table;
    if (event->kind == EVENT_ENDED)
        send_ended(agent, event);
    else if (event->kind == EVENT_FAULT)
        send_fault(agent, event->fault);
    else if (event->kind == EVENT_SIGNALLED)
        send_signalled(agent, event->signal);
}

static void on_end_of_frames(struct frames *frames)
{
    struct agent *agent = frames->owner;
    agent->lost = true;
}

static void on_watch(uv_timer_t *timer)
{
    struct agent *agent = timer->loop->data;
    double limit = AGENT_PATIENCE * agent->settings.timeout_seconds;
    agent->lost = agent->lost || frames_silent(&agent->frames, limit);
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

/* Reports which processes are gone, and how much of its stdin rank 0 has read. */
static void report_progress(struct agent *agent)
{
    for (int i = 0; i < agent->table.count; i++) {
        struct process *process = agent->table.list[i];
        if (!process->pid || !process->gone)
            continue;
        frame_send_numbers(&agent->frames, FRAME_GONE, 1, &process->slot);
        process->pid = 0;
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

/* Containers may share a network, but no processes. Ranks inherit the name, and so agree with the launcher on
 * which of them share a host. */
static void name_host(char *identity, size_t capacity)
{
    const char *given = getenv("HOROVOD_HOST_ID");
    struct stat processes = {0};
    topology_own_host(given ? given : "", identity, capacity);
    if (given && *given)
        return;
    stat("/proc/self/ns/pid", &processes);
    append_text(identity, capacity, "/%llu", (unsigned long long)processes.st_ino);
    setenv("HOROVOD_HOST_ID", identity, 1);
}

static void send_ready(struct agent *agent)
{
    char identity[TOPOLOGY_HOST_LIMIT], from[SOCKET_TEXT] = "", to[SOCKET_TEXT] = "";
    const char *connection = getenv("SSH_CONNECTION"); /* client, its port, server, its port */
    name_host(identity, sizeof identity);
    if (connection)
        sscanf(connection, "%79s %*s %79s", from, to);
    wire_put_raw(&agent->frames.stream.out, FRAME_PREAMBLE, sizeof FRAME_PREAMBLE - 1);
    size_t begin = frame_begin(&agent->frames, FRAME_READY);
    wire_put_string(&agent->frames.stream.out, hvd_version());
    wire_put_string(&agent->frames.stream.out, identity);
    wire_put_string(&agent->frames.stream.out, from);
    wire_put_string(&agent->frames.stream.out, to);
    frame_end(&agent->frames, begin);
}

/* Ranks, and programs that run on this host for them, must not inherit the stream. */
static hvd_code take_stream(struct agent *agent, hvd_status *status)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || in < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return status_set_errno(status, errno, "can't set up stdin and stdout");
    close(null);
    agent->frames =
        (struct frames){.owner = agent, .take = on_frame, .ended = on_end_of_frames, .limit = FRAME_LIMIT};
    frames_open(&agent->frames, &agent->table.loop, in, out);
    return HVD_OK;
}

static bool finished(struct agent *agent)
{
    return agent->expected && agent->table.count == agent->expected && table_finished(&agent->table);
}

static void agent_loop(struct agent *agent)
{
    struct table *table = &agent->table;
    send_ready(agent);
    while (!agent->lost && !finished(agent)) {
        uv_run(&table->loop, UV_RUN_ONCE);
        report_progress(agent);
        for (int i = 0; i < table->count; i++) {
            for (int j = 0; j < OUTPUTS; j++)
                output_resume(&table->list[i]->outputs[j]);
        }
    }
    if (agent->lost)
        guard_kill_descendants(table->guard);
    bool failed = false;
    for (int i = 0; i < table->count; i++) {
        process_close_outputs(table->list[i]);
        failed = failed || table->list[i]->failed;
    }
    faults_read(table, failed ? FAULTS_LAST_SECONDS : 0);
    report_progress(agent);
    while (!agent->lost && !frames_idle(&agent->frames))
        uv_run(&table->loop, UV_RUN_ONCE);
}

int agent_run(struct guard *guard)
{
    struct agent agent = {0};
    struct table *table = &agent.table;
    uv_timer_t watch;
    hvd_status status;
    char *no_words[] = {NULL};
    agent.hosts.list = &agent.host;
    agent.hosts.count = 1;
    *table = (struct table){.options = &agent.options,
                            .settings = &agent.settings,
                            .hosts = &agent.hosts,
                            .starter = &local_starter,
                            .guard = guard,
                            .input = STDIN_FILENO,
                            .function = -1,
                            .happened = happened};
    if (options_parse(&agent.options, no_words, &status) || settings_init(&agent.settings, &status) ||
        uv_loop_init(&table->loop) || take_stream(&agent, &status) || table_open(table, &status)) {
        fprintf(stderr, "horovodrun: can't start the agent\n");
        return 1;
    }
    table->loop.data = &agent;
    uv_timer_init(&table->loop, &agent.answer);
    uv_timer_init(&table->loop, &watch);
    uv_timer_start(&watch, on_watch, 1000, 1000);
    agent_loop(&agent);
    frames_close(&agent.frames);
    sink_close(&agent.input);
    table_close(table);
    frames_free(&agent.frames);
    sink_free(&agent.input);
    words_free(agent.preparation.command);
    words_free(agent.preparation.environment);
    options_free(&agent.options);
    settings_free(&agent.settings);
    return 0;
}
