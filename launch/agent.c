/* agent.c - horovodrun --agent: starts the ranks of one host for a launcher elsewhere, passes on what they
 * print, and signals them, by frames over its stdin and stdout. It decides nothing. When its stdin ends, or
 * no frame has come for HEARTBEAT_TIMEOUT, it kills all ranks. */
#include "frames.h"
#include "job.h"

#include "base/clock.h"
#include "base/socket.h"
#include "base/status.h"
#include "base/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LIMIT 4096

struct agent {
    struct job job; /* the first member: what points to one points to the other */
    pid_t shell;
    struct options options;
    struct settings settings;
    struct host host; /* this one */
    struct hosts hosts;
    struct frame_source in;
    struct sink out;
    struct sink input; /* of rank 0 */
    size_t input_taken;
    bool input_ended;
    char interface[256];
    bool started, lost;
};

static struct agent *agent_of(const struct frame_source *source)
{
    return source->owner;
}

/* ---- the environment of the launcher ------------------------------------------------------------------- */

static bool file_holds(const struct wire_writer *file, const char *entry)
{
    for (size_t at = 0; at < file->length; at += strlen((char *)file->bytes + at) + 1) {
        if (strcmp((char *)file->bytes + at, entry) == 0)
            return true;
    }
    return false;
}

/* With a NUL behind it; empty when it can't be read. */
static void read_whole(const char *path, struct wire_writer *file)
{
    char piece[4096];
    FILE *source = fopen(path, "re");
    if (!source)
        return;
    for (size_t count; (count = fread(piece, 1, sizeof piece, source)) > 0;)
        wire_put_raw(file, piece, count);
    wire_put_u8(file, 0);
    fclose(source);
}

/* The part of this environment that --host-setup has changed: what was not the same when the shell that ran
 * it started. Ends with NULL; NULL: out of memory. */
static char **set_by_setup(pid_t shell)
{
    char path[64];
    struct wire_writer before = {0};
    size_t count = 0;
    for (char **entry = environ; *entry; entry++)
        count++;
    char **set = calloc(count + 1, sizeof *set);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)shell);
    read_whole(path, &before);
    count = 0;
    for (char **entry = environ; set && *entry; entry++) {
        if (!file_holds(&before, *entry))
            set[count++] = *entry;
    }
    wire_writer_free(&before);
    return set;
}

static bool is_listed(char *const *list, const char *entry)
{
    size_t length = strcspn(entry, "=");
    for (; *list; list++) {
        if (strncmp(entry, *list, length) == 0 && (*list)[length] == '=')
            return true;
    }
    return false;
}

/* The variables of the launcher, but those in `set`; `merged` has room for them and a NULL. */
static size_t take_variables(char **merged, uint32_t count, char *const *set, struct wire_reader *body)
{
    size_t taken = 0;
    for (; count > 0 && !body->failed; count--) {
        uint32_t length;
        const uint8_t *bytes = wire_get_blob(body, FRAME_LIMIT, &length);
        /* It becomes part of the environment, and is never freed. */
        char *entry = bytes ? strndup((const char *)bytes, length) : NULL;
        if (entry && !is_listed(set, entry))
            merged[taken++] = entry;
        else
            free(entry);
    }
    return taken;
}

/* The launcher's variables take precedence over those of this host, and those that --host-setup has set over
 * both.
 */
static bool take_environment(const struct agent *agent, bool setup, struct wire_reader *body)
{
    char *none = NULL, **set = setup ? set_by_setup(agent->shell) : &none;
    uint32_t count = wire_get_u32(body);
    size_t own = 0;
    while (environ[own])
        own++;
    char **merged = count <= body->length ? calloc(own + count + 1, sizeof *merged) : NULL;
    if (set && merged) {
        size_t next = take_variables(merged, count, set, body);
        for (size_t i = 0; i < own; i++) {
            if (!is_listed(merged, environ[i]))
                merged[next++] = environ[i];
        }
        environ = merged;
    } else {
        free(merged);
    }
    if (set != &none)
        free(set);
    return set && merged && !body->failed;
}

/* ---- before the start ---------------------------------------------------------------------------------- */

/* As execvp finds it. */
static bool command_is_found(const char *command)
{
    const char *path = getenv("PATH");
    if (strchr(command, '/'))
        return access(command, F_OK) == 0;
    for (path = path ? path : "/bin:/usr/bin";; path++) {
        char candidate[PATH_LIMIT];
        int length = (int)strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s%s%s", length, path, length ? "/" : "", command);
        if (access(candidate, F_OK) == 0)
            return true;
        path += length;
        if (!*path)
            return false;
    }
}

static bool take_command(struct agent *agent, struct wire_reader *body)
{
    uint32_t words = wire_get_u32(body);
    if (body->failed || words == 0 || words > FRAME_LIMIT)
        return false;
    agent->options.command = calloc((size_t)words + 1, sizeof(char *));
    for (uint32_t i = 0; agent->options.command && i < words; i++) {
        uint32_t length;
        const uint8_t *bytes = wire_get_blob(body, FRAME_LIMIT, &length);
        agent->options.command[i] = bytes ? strndup((const char *)bytes, length) : NULL;
        if (!agent->options.command[i])
            return false;
    }
    return agent->options.command && wire_done(body);
}

static void answer_prepared(struct agent *agent, int exit_code, const char *format, const char *what)
{
    char text[PATH_LIMIT];
    snprintf(text, sizeof text, format, what);
    size_t begin = frame_begin(&agent->out, FRAME_PREPARED);
    wire_put_u32(&agent->out.waiting, (uint32_t)exit_code);
    wire_put_string(&agent->out.waiting, text);
    frame_end(&agent->out, begin);
}

static void prepare(struct agent *agent, struct wire_reader *body)
{
    char folder[PATH_LIMIT], address[SOCKET_TEXT];
    hvd_status status;
    bool setup = wire_get_u8(body);
    if (!wire_get_string(body, folder, sizeof folder) ||
        !wire_get_string(body, agent->interface, sizeof agent->interface) ||
        !take_environment(agent, setup, body) || !take_command(agent, body)) {
        answer_prepared(agent, 1, "%s", "what the launcher has sent is malformed, or memory is out");
    } else if (settings_load_environment(&agent->settings, &status)) {
        answer_prepared(agent, 2, "%s", status.text);
    } else if (chdir(folder)) {
        answer_prepared(agent, 1,
                        "there is no folder %s, in which horovodrun was started; make it, or start from one "
                        "that all hosts have",
                        folder);
    } else if (*agent->interface && socket_interface_address(agent->interface, address, &status)) {
        answer_prepared(agent, 1, "%s", status.text);
    } else if (!command_is_found(agent->options.command[0])) {
        answer_prepared(agent, 127,
                        "'%s' was not found; is it on the PATH there? --host-setup can set it for each host",
                        agent->options.command[0]);
    } else {
        answer_prepared(agent, 0, "%s", "");
    }
}

/* The first address that is not the loopback interface's: for starters that do not say how this host is
 * reached.
 */
static bool first_address(char text[SOCKET_TEXT])
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (int family = 0; !found && family < 2; family++) {
        for (struct ifaddrs *each = list; each && !found; each = each->ifa_next) {
            int wanted = family == 0 ? AF_INET : AF_INET6;
            if (each->ifa_addr && each->ifa_addr->sa_family == wanted && (each->ifa_flags & IFF_UP) &&
                !(each->ifa_flags & IFF_LOOPBACK))
                found =
                    getnameinfo(each->ifa_addr,
                                wanted == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                                text, SOCKET_TEXT, NULL, 0, NI_NUMERICHOST) == 0;
        }
    }
    freeifaddrs(list);
    return found;
}

/* Where ssh has reached this host, if that is an address of its own: behind a translation of addresses it is
 * not.
 */
static hvd_code start_rendezvous(struct agent *agent, const char *hint, hvd_status *status)
{
    char address[SOCKET_TEXT] = "";
    if (*agent->interface && strcmp(hint, "127.0.0.1") != 0) {
        hvd_code code = socket_interface_address(agent->interface, address, status);
        return code ? code : job_serve(&agent->job, address, status);
    }
    if (*hint && job_serve(&agent->job, hint, status) == HVD_OK)
        return HVD_OK;
    return first_address(address)
               ? job_serve(&agent->job, address, status)
               : status_set(status, HVD_SYSTEM, "there is no network interface but the loopback");
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
    size_t begin = frame_begin(&agent->out, FRAME_SERVING);
    wire_put_string(&agent->out.waiting, job->rendezvous_address);
    wire_put_string(&agent->out.waiting, *job->rendezvous_address ? "" : status.text);
    frame_end(&agent->out, begin);
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static void forward(struct output *output, const void *bytes, size_t length)
{
    struct agent *agent = output->pipe.loop->data;
    size_t begin = frame_begin(&agent->out, FRAME_OUTPUT);
    wire_put_u32(&agent->out.waiting, (uint32_t)output->rank);
    wire_put_u8(&agent->out.waiting, output->stream[3] == 'e'); /* "stderr" */
    wire_put_raw(&agent->out.waiting, bytes, length);
    frame_end(&agent->out, begin);
}

static void send_started(struct agent *agent, const struct rank *rank, const char *fault)
{
    size_t begin = frame_begin(&agent->out, FRAME_STARTED);
    wire_put_u32(&agent->out.waiting, (uint32_t)rank->rank);
    wire_put_u32(&agent->out.waiting, (uint32_t)rank->pid);
    wire_put_u32(&agent->out.waiting, (uint32_t)rank->exit_code);
    wire_put_string(&agent->out.waiting, fault);
    frame_end(&agent->out, begin);
}

static void send_gone(struct agent *agent, struct rank *rank)
{
    size_t begin = frame_begin(&agent->out, FRAME_GONE);
    wire_put_u32(&agent->out.waiting, (uint32_t)rank->rank);
    frame_end(&agent->out, begin);
    rank->pid = 0;
}

static void on_end(uv_process_t *process, int64_t exit_code, int signal)
{
    struct rank *rank = process->data;
    struct agent *agent = rank->job->loop.data;
    rank->running = false;
    size_t begin = frame_begin(&agent->out, FRAME_ENDED);
    wire_put_u32(&agent->out.waiting, (uint32_t)rank->rank);
    wire_put_u32(&agent->out.waiting, signal ? 128U + (uint32_t)signal : (uint32_t)exit_code);
    wire_put_u32(&agent->out.waiting, (uint32_t)signal);
    frame_end(&agent->out, begin);
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

static bool take_places(struct agent *agent, struct wire_reader *body)
{
    struct job *job = &agent->job;
    uint32_t verbose, count;
    bool taken = wire_get_string(body, job->id, sizeof job->id) &&
                 wire_get_string(body, job->secret, sizeof job->secret) &&
                 wire_get_string(body, job->rendezvous_address, sizeof job->rendezvous_address) &&
                 wire_get_string(body, agent->host.name, sizeof agent->host.name);
    job->size = (int)wire_get_u32(body);
    verbose = wire_get_u8(body);
    count = wire_get_u32(body);
    if (!taken || body->failed || count == 0 || count > FRAME_LIMIT)
        return false;
    agent->options.verbose = verbose;
    agent->hosts.slots = calloc(count, sizeof *agent->hosts.slots);
    for (uint32_t i = 0; agent->hosts.slots && i < count; i++) {
        struct slot *slot = &agent->hosts.slots[i];
        slot->rank = (int)wire_get_u32(body);
        slot->local_rank = (int)wire_get_u32(body);
        slot->local_size = (int)wire_get_u32(body);
        slot->cross_rank = (int)wire_get_u32(body);
        slot->cross_size = (int)wire_get_u32(body);
    }
    agent->hosts.size = (int)count;
    return agent->hosts.slots && wire_done(body);
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
    hvd_status status;
    if (agent->started || !take_places(agent, body) ||
        job_add_ranks(job, agent->hosts.slots, agent->hosts.size, &status)) {
        agent->lost = true;
        return;
    }
    agent->started = true;
    if (job->ranks[0].rank == 0)
        open_input(agent);
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        rank->out.forward = rank->err.forward = forward;
        rank->out.credit = rank->err.credit = FRAME_WINDOW;
        hvd_code code = rank_start(rank, on_end, &status);
        send_started(agent, rank, code ? status.text : "");
        if (code) {
            output_close(&rank->out);
            output_close(&rank->err);
            rank->gone = true;
        }
    }
    if (job->input != STDIN_FILENO)
        close(job->input);
}

/* ---- frames -------------------------------------------------------------------------------------------- */

static void take_input(struct agent *agent, const struct wire_reader *body)
{
    if (body->length == 0)
        agent->input_ended = true;
    sink_put(&agent->input, body->bytes, body->length);
    sink_flush(&agent->input);
    agent->input_taken += body->length;
}

static void take_credit(const struct agent *agent, struct wire_reader *body)
{
    struct rank *rank = rank_named(agent, body);
    bool of_stderr = wire_get_u8(body);
    uint32_t bytes = wire_get_u32(body);
    if (!rank || body->failed)
        return;
    struct output *output = of_stderr ? &rank->err : &rank->out;
    output->credit += bytes;
    output_resume(output);
}

static void take_signal(const struct agent *agent, struct wire_reader *body)
{
    const struct rank *rank = rank_named(agent, body);
    int signal = (int)wire_get_u32(body);
    if (rank && !rank->gone && rank->pid > 0 && !body->failed)
        kill(-rank->pid, signal);
}

static void on_frame(struct frame_source *source, enum frame_kind kind, struct wire_reader *body)
{
    struct agent *agent = agent_of(source);
    switch (kind) {
    case FRAME_PREPARE:
        prepare(agent, body);
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
        frame_send(&agent->out, FRAME_HEARTBEAT);
        break;
    default:
        agent->lost = true;
    }
}

static void on_end_of_frames(struct frame_source *source)
{
    agent_of(source)->lost = true;
}

static void on_watch(uv_timer_t *timer)
{
    struct agent *agent = timer->loop->data;
    agent->lost = agent->lost || clock_now() > agent->in.last + HEARTBEAT_TIMEOUT;
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
        size_t begin = frame_begin(&agent->out, FRAME_TAKEN);
        wire_put_u32(&agent->out.waiting, (uint32_t)agent->input_taken);
        frame_end(&agent->out, begin);
        agent->input_taken = 0;
    }
    if (agent->input_ended)
        sink_close(&agent->input);
}

static void send_ready(struct agent *agent)
{
    char identity[TOPOLOGY_HOST_LIMIT], from[SOCKET_TEXT] = "", to[SOCKET_TEXT] = "";
    const char *connection = getenv("SSH_CONNECTION"); /* client, its port, server, its port */
    struct stat processes = {0};
    topology_own_host("", identity, sizeof identity);
    stat("/proc/self/ns/pid", &processes); /* containers may share a network, but no processes */
    append_text(identity, sizeof identity, "/%llu", (unsigned long long)processes.st_ino);
    if (connection)
        sscanf(connection, "%79s %*s %79s", from, to);
    sink_put(&agent->out, FRAME_PREAMBLE, sizeof FRAME_PREAMBLE - 1);
    size_t begin = frame_begin(&agent->out, FRAME_READY);
    wire_put_string(&agent->out.waiting, hvd_version());
    wire_put_string(&agent->out.waiting, identity);
    wire_put_string(&agent->out.waiting, from);
    wire_put_string(&agent->out.waiting, to);
    frame_end(&agent->out, begin);
}

/* Ranks and what runs on this host for them must not have the stream. */
static hvd_code take_stream(struct agent *agent, hvd_status *status)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || in < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return status_set_errno(status, errno, "can't set up stdin and stdout");
    close(null);
    sink_take(&agent->out, &agent->job.loop, out);
    agent->in = (struct frame_source){.owner = agent, .take = on_frame, .ended = on_end_of_frames};
    frame_source_open(&agent->in, &agent->job.loop, in);
    return HVD_OK;
}

static void agent_loop(struct agent *agent)
{
    struct job *job = &agent->job;
    send_ready(agent);
    while (!agent->lost && !(agent->started && stop_finished(job))) {
        uv_run(&job->loop, UV_RUN_ONCE);
        stop_reap(job);
        report_progress(agent);
        for (int i = 0; i < job->count; i++) {
            output_resume(&job->ranks[i].out);
            output_resume(&job->ranks[i].err);
        }
    }
    if (agent->lost)
        guard_kill_descendants();
    for (int i = 0; i < job->count; i++) {
        output_close(&job->ranks[i].out);
        output_close(&job->ranks[i].err);
    }
    report_progress(agent);
    while (!agent->lost && !sink_idle(&agent->out))
        uv_run(&job->loop, UV_RUN_ONCE);
}

int agent_run(struct guard *guard, pid_t shell)
{
    struct agent agent = {.shell = shell};
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
                        .failed = -1};
    if (options_parse(&agent.options, no_words, &status) || settings_init(&agent.settings, &status) ||
        uv_loop_init(&job->loop) || take_stream(&agent, &status) || job_open(job, &status)) {
        fprintf(stderr, "horovodrun: can't start the agent\n");
        return 1;
    }
    job->loop.data = &agent;
    uv_timer_init(&job->loop, &watch);
    uv_timer_start(&watch, on_watch, 1000, 1000);
    agent_loop(&agent);
    frame_source_close(&agent.in);
    sink_close(&agent.input);
    sink_close(&agent.out);
    job_close(job);
    frame_source_free(&agent.in);
    sink_free(&agent.input);
    sink_free(&agent.out);
    for (char **word = agent.options.command; word && *word; word++)
        free(*word);
    if (agent.options.command != no_words)
        free(agent.options.command);
    options_free(&agent.options);
    free(agent.hosts.slots);
    settings_free(&agent.settings);
    return 0;
}
