/* agent.c - horovodrun --agent: starts the ranks of one host for a launcher elsewhere, passes on what they
 * print, and signals them, by frames over its stdin and stdout. It decides nothing. When its stdin ends, no
 * heartbeat has come for some multiple of --timeout-seconds, or no answer to a signal, it kills all ranks. */
#include "agent.h"
#include "environment.h"
#include "frames.h"
#include "guard.h"
#include "job.h"
#include "local.h"
#include "options.h"
#include "rlimits.h"
#include "say.h"
#include "stop.h"

#include "base/clock.h"
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
#define ANSWER_MILLISECONDS 1000 /* for the launcher, after a signal was announced to it */

struct agent {
    struct job job; /* the first member: what points to one points to the other */
    struct options options;
    struct settings settings;
    struct host host; /* this one */
    struct hosts hosts;
    struct preparation preparation;
    struct start start;
    struct frames frames;
    struct sink input; /* of rank 0 */
    size_t input_taken;
    bool input_ended;
    bool started, lost;
    uv_timer_t answer; /* until then the launcher must have answered */
    int64_t signalled; /* when a signal was announced to it, clock_now's */
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

/* What --host-setup has changed; a name alone is a variable that it has unset. Its text is in `first`, what
 * there was before. NULL: it is unknown. */
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

/* What --host-setup has changed wins, then the variables of the launcher, then those of this host. */
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

/* A shell's exit code: 0, 126 (it can't be executed), 127 (it is not there). */
static int check_program(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return errno == EACCES ? 126 : 127;
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? 0 : 126;
}

/* As execvp finds it. */
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
    struct job *job = &agent->job;
    size_t left = body->length - body->position;
    if (job->function < 0)
        job->function = memfd_create("function", MFD_CLOEXEC);
    agent->lost = agent->lost || job->function < 0 ||
                  write(job->function, body->bytes + body->position, left) != (ssize_t)left;
}

/* The hint: where other hosts reach this one, if that is an address of its own: behind a translation of
 * addresses it is not. Loopback: there are no other hosts. */
static hvd_code start_rendezvous(struct agent *agent, const char *hint, hvd_status *status)
{
    struct addresses found;
    if (strcmp(hint, addresses_of_loopback.list[0]) == 0)
        return job_serve(&agent->job, &addresses_of_loopback, status);
    hvd_code code = addresses_find(agent->settings.network_interface, hint, &found, status);
    return code ? code : job_serve(&agent->job, &found, status);
}

static void serve(struct agent *agent, struct wire_reader *body)
{
    char hint[SOCKET_TEXT];
    hvd_status status = {.code = HVD_OK};
    struct job *job = &agent->job;
    if (!wire_get_string(body, job->secret, sizeof job->secret) ||
        !wire_get_string(body, hint, sizeof hint) || !wire_done(body))
        status_set(&status, HVD_REFUSED, "what the launcher has sent is malformed");
    else
        start_rendezvous(agent, hint, &status);
    size_t begin = frame_begin(&agent->frames, FRAME_SERVING);
    wire_put_string(&agent->frames.stream.out, job->rendezvous_address);
    wire_put_string(&agent->frames.stream.out, *job->rendezvous_address ? "" : status.text);
    frame_end(&agent->frames, begin);
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static void forward(struct output *output, const void *bytes, size_t length)
{
    struct agent *agent = output->owner;
    size_t begin = frame_begin(&agent->frames, FRAME_OUTPUT);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)output->rank);
    wire_put_u8(&agent->frames.stream.out, (uint8_t)output->index);
    wire_put_raw(&agent->frames.stream.out, bytes, length);
    frame_end(&agent->frames, begin);
}

static void send_started(struct agent *agent, const struct rank *rank, const char *fault)
{
    size_t begin = frame_begin(&agent->frames, FRAME_STARTED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)rank->rank);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)rank->pid);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)rank->exit_code);
    wire_put_string(&agent->frames.stream.out, fault);
    frame_end(&agent->frames, begin);
}

static void send_gone(struct agent *agent, struct rank *rank)
{
    size_t begin = frame_begin(&agent->frames, FRAME_GONE);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)rank->rank);
    frame_end(&agent->frames, begin);
    rank->pid = 0;
}

static void on_end_of_rank(struct rank *rank, int exit_code, int signal)
{
    struct agent *agent = rank->job->loop.data;
    rank->running = false;
    size_t begin = frame_begin(&agent->frames, FRAME_ENDED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)rank->rank);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)exit_code);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)signal);
    frame_end(&agent->frames, begin);
    stop_rest(rank);
}

static struct rank *rank_named(const struct agent *agent, struct wire_reader *body)
{
    int rank = (int)wire_get_u32(body);
    for (int i = 0; i < agent->job.count; i++) {
        if (agent->job.ranks[i].rank == rank)
            return &agent->job.ranks[i];
    }
    return NULL;
}

/* Rank 0 reads what comes by frames. */
static void open_input(struct agent *agent)
{
    uv_file ends[2];
    if (uv_pipe(ends, 0, UV_NONBLOCK_PIPE))
        return;
    agent->job.input = ends[0];
    sink_take(&agent->input, &agent->job.loop, ends[1]);
}

static void start(struct agent *agent, struct wire_reader *body)
{
    struct job *job = &agent->job;
    const struct start *start = &agent->start;
    hvd_status status;
    if (agent->started || !agent->options.command || !start_take(&agent->start, body) ||
        job_add_ranks(job, start->slots, start->count, &status)) {
        agent->lost = true;
        return;
    }
    memcpy(job->id, start->id, sizeof job->id);
    memcpy(job->secret, start->secret, sizeof job->secret);
    memcpy(job->rendezvous_address, start->rendezvous, sizeof job->rendezvous_address);
    memcpy(agent->host.name, start->host, sizeof agent->host.name);
    job->size = start->size;
    agent->options.verbose = start->verbose;
    agent->started = true;
    if (job->ranks[0].rank == 0)
        open_input(agent);
    hvd_code code = limits_check(job, true, &status);
    /* Those behind one that fails are not started either. */
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        for (int j = 0; j < OUTPUTS; j++) {
            rank->outputs[j].forward = forward;
            rank->outputs[j].owner = agent;
            rank->outputs[j].credit = FRAME_WINDOW;
        }
        if (!code)
            code = rank_start(rank, &status);
        send_started(agent, rank, code ? status.text : "");
        if (code)
            job_close_outputs(rank);
    }
    if (job->input != STDIN_FILENO)
        close(job->input);
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
    struct rank *rank = rank_named(agent, body);
    uint8_t index = wire_get_u8(body);
    uint32_t bytes = wire_get_u32(body);
    if (!rank || body->failed || index >= OUTPUTS)
        return;
    rank->outputs[index].credit += bytes;
    output_resume(&rank->outputs[index]);
}

static void take_signal(const struct agent *agent, struct wire_reader *body)
{
    const struct rank *rank = rank_named(agent, body);
    int signal = (int)wire_get_u32(body);
    if (rank && !rank->gone && rank->pid > 0 && !body->failed)
        kill(-rank->pid, signal);
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

/* The launcher ends the job, here and on all other hosts; if it is cut off the ranks of this one end. */
static void on_signal(struct job *job, int signal)
{
    struct agent *agent = job->loop.data;
    size_t begin = frame_begin(&agent->frames, FRAME_SIGNALLED);
    wire_put_u32(&agent->frames.stream.out, (uint32_t)signal);
    frame_end(&agent->frames, begin);
    if (uv_is_active((uv_handle_t *)&agent->answer))
        return;
    agent->signalled = clock_now();
    uv_timer_start(&agent->answer, on_time_for_answer, ANSWER_MILLISECONDS, 0);
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

/* Passes on which ranks are gone, and what rank 0 has taken of its stdin. */
static void report_progress(struct agent *agent)
{
    for (int i = 0; i < agent->job.count; i++) {
        struct rank *rank = &agent->job.ranks[i];
        if (rank->pid && rank->gone)
            send_gone(agent, rank);
    }
    if (!sink_idle(&agent->input))
        return;
    if (agent->input_taken > 0) {
        size_t begin = frame_begin(&agent->frames, FRAME_TAKEN);
        wire_put_u32(&agent->frames.stream.out, (uint32_t)agent->input_taken);
        frame_end(&agent->frames, begin);
        agent->input_taken = 0;
    }
    if (agent->input_ended)
        sink_close(&agent->input);
}

/* Containers may share a network, but no processes. Ranks take the name, too, and so agree with the launcher
 * on who is where. */
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

/* Ranks and what runs on this host for them must not have the stream. */
static hvd_code take_stream(struct agent *agent, hvd_status *status)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || in < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return status_set_errno(status, errno, "can't set up stdin and stdout");
    close(null);
    agent->frames =
        (struct frames){.owner = agent, .take = on_frame, .ended = on_end_of_frames, .limit = FRAME_LIMIT};
    frames_open(&agent->frames, &agent->job.loop, in, out);
    return HVD_OK;
}

static void agent_loop(struct agent *agent)
{
    struct job *job = &agent->job;
    send_ready(agent);
    while (!agent->lost && !(agent->started && stop_finished(job))) {
        uv_run(&job->loop, UV_RUN_ONCE);
        report_progress(agent);
        for (int i = 0; i < job->count; i++) {
            for (int j = 0; j < OUTPUTS; j++)
                output_resume(&job->ranks[i].outputs[j]);
        }
    }
    if (agent->lost)
        guard_kill_descendants(agent->job.guard);
    for (int i = 0; i < job->count; i++)
        job_close_outputs(&job->ranks[i]);
    report_progress(agent);
    while (!agent->lost && !frames_idle(&agent->frames))
        uv_run(&job->loop, UV_RUN_ONCE);
}

int agent_run(struct guard *guard)
{
    struct agent agent = {0};
    struct job *job = &agent.job;
    uv_timer_t watch;
    hvd_status status;
    char *no_words[] = {NULL};
    agent.hosts.list = &agent.host;
    agent.hosts.count = 1;
    *job = (struct job){.options = &agent.options,
                        .settings = &agent.settings,
                        .hosts = &agent.hosts,
                        .guard = guard,
                        .input = STDIN_FILENO,
                        .function = -1,
                        .rank_ended = on_end_of_rank,
                        .signal_came = on_signal,
                        .failed = -1};
    if (options_parse(&agent.options, no_words, &status) || settings_init(&agent.settings, &status) ||
        uv_loop_init(&job->loop) || take_stream(&agent, &status) || job_open(job, &status)) {
        fprintf(stderr, "horovodrun: can't start the agent\n");
        return 1;
    }
    job->loop.data = &agent;
    uv_timer_init(&job->loop, &agent.answer);
    uv_timer_init(&job->loop, &watch);
    uv_timer_start(&watch, on_watch, 1000, 1000);
    agent_loop(&agent);
    frames_close(&agent.frames);
    sink_close(&agent.input);
    job_close(job);
    frames_free(&agent.frames);
    sink_free(&agent.input);
    words_free(agent.preparation.command);
    words_free(agent.preparation.environment);
    free(agent.start.slots);
    options_free(&agent.options);
    settings_free(&agent.settings);
    return 0;
}
