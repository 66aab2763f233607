/* fuzz_launcher.c - any bytes as the frames that a launcher sends to an agent, and as the question of
 * `horovodrun --status` to a launcher. Processes are pretended: they print when they are started, and end by
 * a signal. First byte: to whom. */
#include "pieces.h"

#include "base/status.h"
#include "launch/agent_frames.h"
#include "launch/monitor.h"
#include "launch/record_query.h"
#include "launch/starter.h"
#include "launch/status_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TO_AGENT, TO_NODE, TO_STATUS_SERVER, MODES };
enum { FIRST_PID = 1 << 22 }; /* above those of the system */

struct source {
    struct agent agent;
    struct pieces pieces;
};

/* ---- what the host would do (the linker's --wrap) --------------------------------------------------------
 */

int __wrap_agent_prepare(const struct preparation *preparation, struct settings *settings, char *text,
                         size_t capacity);
void __wrap_host_pages_find(struct host_pages *pages);

/* The host has whatever is asked for. */
int __wrap_agent_prepare(const struct preparation *preparation, struct settings *settings, char *text,
                         size_t capacity)
{
    (void)settings;
    (void)capacity;
    if (!*preparation->command)
        abort();
    *text = '\0';
    return preparation->setup;
}

void __wrap_host_pages_find(struct host_pages *pages)
{
    (void)pages;
}

/* Some print a line, others more than they have credit for. */
static hvd_code start(struct process *process, hvd_status *status)
{
    static const char text[FRAME_WINDOW];
    size_t length = process->slot % 3 == 0 ? sizeof text : 10;
    for (int i = 0; i < OUTPUT_RESULT; i++) {
        int end = -1;
        TRY(output_open(&process->outputs[i], &process->table->loop, &end, status));
        fcntl(end, F_SETFL, O_NONBLOCK);
        if (write(end, text, length) < 0)
            abort();
        close(end);
    }
    process->pid = FIRST_PID + process->slot;
    process->running = true;
    process->gone = false;
    return HVD_OK;
}

static void ignore_signal(const struct process *process, int signal)
{
    (void)signal;
    if (process->pid < FIRST_PID || process->gone)
        abort();
}

static bool is_gone(const struct process *process, bool given_up)
{
    return !process->running || given_up;
}

static bool look_nowhere(const struct table *table, int host, uint32_t number, enum stacks stacks)
{
    (void)table;
    (void)number;
    if (host || stacks > STACKS_ALL)
        abort();
    return false;
}

static const struct starter_ops pretended = {
    .start = start, .signal = ignore_signal, .gone = is_gone, .look = look_nowhere};

static void end_signalled(struct table *table)
{
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (!process->running || !process->signalled)
            continue;
        process_ended(process, 128 + SIGTERM, SIGTERM);
        table->happened(table, &(struct event){.kind = EVENT_ENDED,
                                               .process = process,
                                               .exit_code = process->exit_code,
                                               .signal = SIGTERM});
        process_end_rest(process);
    }
}

/* ---- an agent --------------------------------------------------------------------------------------------
 */

static ssize_t read_some(struct stream *stream, void *bytes, size_t length)
{
    struct frames *frames = (struct frames *)stream;
    return pieces_read(&((struct source *)frames->owner)->pieces, bytes, length);
}

static void on_end(struct frames *frames)
{
    struct agent *agent = frames->owner;
    agent->lost = true;
}

/* The loop turns after each frame. */
static void receive_and_turn(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct agent *agent = frames->owner;
    agent_receive(frames, kind, body);
    end_signalled(&agent->table);
    uv_run(&agent->table.loop, UV_RUN_NOWAIT);
    agent_turn(agent);
    for (int i = 0; i < agent->table.count; i++)
        for (int j = 0; j < OUTPUTS; j++)
            if (agent->table.list[i]->outputs[j].used)
                abort(); /* an agent keeps no output */
}

static void open_table(struct table *table, const struct options *options, const struct settings *settings,
                       struct hosts *hosts, struct guard *guard)
{
    *table = (struct table){.options = options,
                            .settings = settings,
                            .hosts = hosts,
                            .starter = &pretended,
                            .guard = guard,
                            .input = STDIN_FILENO,
                            .function = -1};
    table->out = table->err = &table->sinks[0];
    table->out->error = EPIPE; /* it takes nothing */
    if (uv_loop_init(&table->loop) || uv_timer_init(&table->loop, &table->clock))
        abort();
    table->clock.data = table;
}

static void run_agent(const uint8_t *bytes, size_t length, bool is_node)
{
    static char word[] = "true", *no_words[] = {NULL}, *words[] = {word, NULL};
    struct agent_node node = {.hello = {.index = 1, .count = 2, .ranks = 1},
                              .rendezvous = "10.9.9.1:29600",
                              .secret = "secret",
                              .preparation = {.command = words, .environment = no_words}};
    struct source source = {.pieces = {.bytes = bytes, .length = length}};
    struct agent *agent = &source.agent;
    struct guard guard = {0};
    hvd_status status;
    if (options_parse(&agent->options, no_words, &status) || settings_init(&agent->settings, &status) ||
        settings_set(&agent->settings, setting_by_key("network_interface"), "lo", "", &status))
        abort();
    agent->hosts.list = &agent->host;
    agent->hosts.count = 1;
    open_table(&agent->table, &agent->options, &agent->settings, &agent->hosts, &guard);
    agent->table.happened = agent_happened;
    agent->table.loop.data = agent;
    if (is_node) {
        agent->node = &node;
        agent->preparation = node.preparation;
    }
    uv_timer_init(&agent->table.loop, &agent->answer);
    look_init(&agent->look, &agent->table, agent_send_views);
    static const struct stream_io memory = {.read = read_some};
    agent->frames = (struct frames){.owner = agent,
                                    .receive = receive_and_turn,
                                    .ended = on_end,
                                    .limit = FRAME_LIMIT,
                                    .open = true,
                                    .to = -1,
                                    .stream = {.io = &memory, .fd = -1}};
    frames_read(&agent->frames);
    if (!agent->lost || agent->expected < 0)
        abort();
    agent_send_records(agent, &agent->at_end);
    sink_close(&agent->input);
    table_close(&agent->table);
    look_free(&agent->look);
    frames_free(&agent->frames);
    sink_free(&agent->input);
    if (!is_node) {
        words_free(agent->preparation.command);
        words_free(agent->preparation.environment);
    }
    options_free(&agent->options);
    settings_free(&agent->settings);
}

/* ---- the status server -----------------------------------------------------------------------------------
 */

static void ask(const uint8_t *bytes, size_t length)
{
    static char word[] = "true", *words[] = {word, NULL};
    struct options options = {.command = words};
    struct settings settings = {.timeline = "", .timeline_ranks = "0", .failure_timeline = ""};
    struct hosts hosts = {0};
    struct guard guard = {0};
    struct table table;
    struct monitor monitor;
    struct record_query record_query;
    struct status_server server = {.monitor = &monitor, .listener = -1};
    hvd_status status;
    int ends[2];
    if (hosts_parse(&hosts, "localhost:1", &status) || hosts_layout(&hosts, 1, &status) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) ||
        send(ends[1], bytes, length, MSG_NOSIGNAL) < 0)
        abort();
    open_table(&table, &options, &settings, &hosts, &guard);
    monitor_init(&monitor, &table);
    table.monitor = &monitor;
    record_query_init(&record_query, &table);
    uv_timer_init(&table.loop, &server.timer);
    server.timer.data = server.poll.data = &server;
    struct process *process = table_add(&table, 0, &hosts.places[0]);
    if (!process)
        abort();
    process->gone = false;
    status_server_admit(&server, ends[0]);
    for (int turns = 0; turns < 3; turns++)
        uv_run(&table.loop, UV_RUN_NOWAIT);
    close(ends[1]);
    uv_run(&table.loop, UV_RUN_NOWAIT);
    status_server_close(&server);
    table_close(&table);
    monitor_free(&monitor);
    record_query_free(&record_query);
    hosts_free(&hosts);
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static char *nothing = NULL; /* environ outlives this call */
    static int open_at_first;
    if (!length)
        return 0;
    environ = &nothing;
    signal(SIGPIPE, SIG_IGN);
    if (bytes[0] % MODES == TO_STATUS_SERVER)
        ask(bytes + 1, length - 1);
    else
        run_agent(bytes + 1, length - 1, bytes[0] % MODES == TO_NODE);
    /* What the first input has opened for good, such as the random device, stays open. */
    int count = count_descriptors();
    if (open_at_first && count != open_at_first)
        abort();
    open_at_first = count;
    return 0;
}
