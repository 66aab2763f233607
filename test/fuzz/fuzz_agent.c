/* fuzz_agent.c - any bytes as the frames that agents send, and as the answers of a launcher, a few at a time.
 * The first byte is 0 for those of a node to node 0, 2 for those that a launcher sends to `horovodrun
 * --status`, and 3 if that has asked for a timeline; otherwise they are an agent's, after the output of a
 * shell: 4 for those of a host of an elastic job, on which two processes run, 5 for those of one that is
 * called, after each of which the launcher does what is due. fuzz_launcher.c is the other direction. */
#include "pieces.h"

#include "base/status.h"
#include "launch/agents.h"
#include "launch/agents_hosts.h"
#include "launch/monitor.h"
#include "launch/record_client.h"
#include "launch/record_query.h"
#include "launch/starter.h"
#include "launch/status_client.h"
#include "launch/status_json.h"
#include "launch/status_text.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, NO_PROCESS = INT_MAX };

enum job_kind { JOB_FIXED, JOB_RUNNING, JOB_CALLED }; /* the latter two are elastic */

struct source {
    struct frames frames; /* the first member: what points to one points to the other */
    struct pieces pieces;
};

static ssize_t read_some(struct stream *stream, void *bytes, size_t length)
{
    return pieces_read(&((struct source *)stream)->pieces, bytes, length);
}

static ssize_t write_none(struct stream *stream, const void *bytes, size_t length)
{
    (void)stream;
    (void)bytes;
    return (ssize_t)length;
}

static const struct stream_io memory = {read_some, write_none};

static void on_end(struct frames *frames)
{
    (void)frames;
}

/* As node 0, which then knows whose connection it is. */
static void receive_hello(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    (void)frames;
    struct node_hello hello;
    if (kind == FRAME_NODE && node_hello_get(&hello, body) &&
        (hello.index < 0 || hello.count < 1 || hello.ranks < 1 || !memchr(hello.host, 0, sizeof hello.host)))
        abort();
}

static void read_all(struct source *source, const uint8_t *bytes, size_t length)
{
    source->pieces = (struct pieces){.bytes = bytes, .length = length};
    source->frames.stream.io = &memory;
    source->frames.stream.fd = source->frames.to = -1;
    source->frames.ended = on_end;
    source->frames.open = true;
    frames_read(&source->frames);
    frames_free(&source->frames);
}

/* What was understood can be printed. */
static void check_job_views(const struct job_views *job_views, void *argument)
{
    FILE *file = fopen("/dev/null", "w");
    (void)argument;
    for (int i = 0; file && i < job_views->count; i++) {
        if (!job_views->list[i].count)
            abort();
        status_text_write(&job_views->list[i], file);
        status_json_write(&job_views->list[i], file);
    }
    if (file)
        fclose(file);
}

static void read_as_status(const uint8_t *bytes, size_t length)
{
    struct job_views job_views = {0};
    struct launchers launchers = {.list = calloc(1, sizeof *launchers.list), .count = 1};
    if (!launchers.list)
        abort();
    launchers.list->found = &job_views;
    struct source source = {
        .frames = {.owner = launchers.list, .receive = launcher_receive, .limit = FRAME_LIMIT_ANSWER}};
    read_all(&source, bytes, length);
    check_job_views(&job_views, NULL);
    job_views_free(&job_views);
    launchers_free(&launchers);
}

static void write_trace(const struct collected *collected)
{
    struct rank_trace trace = collected_trace((struct collected *)collected, "job");
    FILE *file = fopen("/dev/null", "we");
    if (rank_trace_measure(&trace).requests && (!file || rank_trace_write(&trace, file) < 0))
        abort();
    if (file)
        fclose(file);
}

/* As --status --timeline, which then writes what it has got. */
static void read_as_record_query(const uint8_t *bytes, size_t length)
{
    struct collected collected = {0};
    struct record_client client = {.collected = &collected};
    struct source source = {
        .frames = {.owner = &client, .receive = record_query_receive, .limit = FRAME_LIMIT_ANSWER}};
    read_all(&source, bytes, length);
    write_trace(&collected);
    collected_free(&collected);
}

static void on_records(const struct collected *collected, void *argument)
{
    (void)argument;
    write_trace(collected);
}

/* As the launcher, once the first host has been sent the assignments, or is prepared. */
static void on_event(struct table *table, const struct event *event)
{
    bool prepared = event->kind == EVENT_HOST_PREPARED;
    table->ending = table->ending || event->kind == EVENT_HOST_FAILED;
    if (event->kind != EVENT_ASSIGNED && !prepared)
        return;
    for (int i = 0; i < table->count; i++)
        if ((!prepared || table->list[i]->place.host == event->host) &&
            table->starter->start(table->list[i], NULL))
            abort();
    const struct history_window window = {.steps = 5, .most = 100};
    if (monitor_request(table->monitor, STACKS_NONE, check_job_views, NULL, NULL) ||
        record_query_start(table->record_query, &window, on_records, NULL, NULL))
        abort();
}

/* As after FRAME_START. */
static void pretend_start(struct table *table, int slot)
{
    struct process *process = table->list[slot];
    process->remote = table->agents->list[process->place.host];
    process->gone = false;
    for (int i = 0; i < OUTPUT_RESULT; i++)
        if (output_open_fed(&process->outputs[i], NULL))
            abort();
}

/* What the launcher does in each turn of its loop may end the connection. */
static void receive_and_turn(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct remote *remote = frames->owner;
    struct table *table = remote->table;
    int host = remote->host;
    agents_receive(frames, kind, body);
    remote->running = remote->state != REMOTE_ENDED;
    table->starter->turn(table);
    frames->open = agents_of_host(table->agents, host) == remote;
}

/* Two hosts; the agent of the second is prepared, all frames come from the first. */
static void read_as_launcher(const uint8_t *bytes, size_t length, enum job_kind kind)
{
    bool elastic = kind != JOB_FIXED;
    static char *nothing = NULL; /* environ outlives this call */
    char *words[] = {"true", NULL};
    hvd_status status;
    struct monitor monitor;
    struct record_query record_query;
    struct options options = {.command = words, .values = calloc((size_t)setting_count, sizeof(char *))};
    struct settings settings = {
        .timeline = "", .timeline_ranks = "0", .failure_timeline = "folder", .start_timeout_seconds = 60};
    struct hosts hosts = {0};
    struct agents *agents = calloc(1, sizeof *agents);
    struct remote **list = calloc(2, sizeof(struct remote *));
    struct guard guard = {.has_agents = true};
    struct table table = {.options = &options,
                          .guard = &guard,
                          .settings = &settings,
                          .hosts = &hosts,
                          .starter = &agents_starter,
                          .size = RANKS,
                          .elastic = elastic,
                          .function = -1,
                          .input = -1,
                          .agents = agents,
                          .happened = on_event};
    environ = &nothing;
    table.out = table.err = &table.sinks[0];
    table.out->error = EPIPE; /* it takes nothing */
    if (!options.values || !agents || !list || hosts_parse(&hosts, "10.9.9.1:2,10.9.9.2:1", &status) ||
        hosts_layout(&hosts, RANKS, &status) || uv_loop_init(&table.loop) ||
        uv_timer_init(&table.loop, &table.clock))
        abort();
    monitor_init(&monitor, &table);
    record_query_init(&record_query, &table);
    *agents = (struct agents){.list = list, .count = 2, .assigning = !elastic, .started = elastic};
    for (int i = 0; i < 2; i++) {
        list[i] = calloc(1, sizeof *list[i]);
        if (!list[i])
            abort();
        *list[i] = (struct remote){.table = &table,
                                   .host = i,
                                   .deadline = INT64_MAX,
                                   .running = elastic,
                                   .pid = NO_PROCESS,
                                   .reported = i || kind == JOB_RUNNING,
                                   .frames.to = -1,
                                   .errors.file = -1};
        list[i]->state = i ? REMOTE_PREPARED : kind == JOB_RUNNING ? REMOTE_STARTED : REMOTE_CALLED;
    }
    for (int i = 0; i < RANKS; i++)
        if (!table_add(&table, i, &hosts.places[i]))
            abort();
    for (int i = 0; kind == JOB_RUNNING && i < hosts.list[0].ranks; i++)
        pretend_start(&table, i);
    struct source source = {.frames = {.owner = list[0],
                                       .receive = kind == JOB_CALLED ? receive_and_turn : agents_receive,
                                       .limit = FRAME_LIMIT_ANSWER}};
    source.frames.awaits_preamble = true;
    read_all(&source, bytes, length);
    table_close(&table);
    monitor_free(&monitor);
    record_query_free(&record_query);
    hosts_free(&hosts);
    free(options.values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length == 0)
        return 0;
    if (bytes[0] == 0) {
        struct source source = {.frames = {.receive = receive_hello, .limit = FRAME_LIMIT_ANSWER}};
        read_all(&source, bytes + 1, length - 1);
    } else if (bytes[0] == 2) {
        read_as_status(bytes + 1, length - 1);
    } else if (bytes[0] == 3) {
        read_as_record_query(bytes + 1, length - 1);
    } else {
        read_as_launcher(bytes + 1, length - 1,
                         bytes[0] == 4   ? JOB_RUNNING
                         : bytes[0] == 5 ? JOB_CALLED
                                         : JOB_FIXED);
    }
    return 0;
}
