/* agent.c - starts the processes of one host for a launcher elsewhere, passes on what they print, and signals
 * them, by frames over stdin and stdout, or over the connection of a node to node 0. One thread, the loop's.
 * An agent decides nothing. It kills all processes when its connection ends, when no heartbeat has arrived
 * for a multiple of --timeout-seconds, and when the launcher does not answer a signal. A node starts only
 * what its own command line says, and waits for the end of the whole job. */
#include "agent.h"
#include "agent_frames.h"
#include "faults.h"
#include "guard.h"
#include "starter.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define WATCH_MILLISECONDS 1000

static void on_end_of_frames(struct frames *frames)
{
    struct agent *agent = frames->owner;
    agent->lost = true;
}

static void on_watch(uv_timer_t *timer)
{
    struct agent *agent = timer->loop->data;
    double limit = AGENT_PATIENCE * agent->settings.timeout_seconds;
    frames_catch_up(&agent->frames);
    frames_awake(&agent->frames, WATCH_MILLISECONDS / 1000.0);
    agent->silent = frames_silent(&agent->frames, limit);
    agent->lost = agent->lost || agent->silent;
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

/* Ranks, and programs that run on this host for them, must not inherit the stream. */
static hvd_code own_stream(struct agent *agent, hvd_status *status)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || in < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
        return status_set_errno(status, errno, "can't set up stdin and stdout");
    close(null);
    frames_open(&agent->frames, &agent->table.loop, in, out);
    return HVD_OK;
}

static bool is_over(const struct agent *agent)
{
    return agent->lost || agent->concluded;
}

/* Of a node. */
static void send_hello(struct agent *agent)
{
    size_t begin = frame_begin(&agent->frames, FRAME_NODE);
    node_hello_put(&agent->node->hello, &agent->frames.stream.out);
    frame_end(&agent->frames, begin);
}

static void agent_loop(struct agent *agent)
{
    struct table *table = &agent->table;
    if (agent->node)
        send_hello(agent);
    else
        agent_send_ready(agent);
    while (!is_over(agent) && (!agent->announced || agent_may_start(agent) || !table_finished(table))) {
        table_run(table);
        agent_turn(agent);
    }
    if (is_over(agent))
        guard_kill_descendants(table->guard);
    bool failed = false, ended_badly = false; /* the latter also by the launcher's signal */
    for (int i = 0; i < table->count; i++) {
        process_close_outputs(table->list[i]);
        failed = failed || table->list[i]->failed;
        ended_badly = ended_badly || table->list[i]->exit_code;
    }
    faults_read(table, failed ? FAULTS_LAST_SECONDS : 0);
    if (!agent->lost)
        agent_send_records(agent, ended_badly ? &agent->at_failure : &agent->at_end);
    agent_turn(agent);
    if (agent->node && !is_over(agent))
        frame_send(&agent->frames, FRAME_DONE);
    while (!is_over(agent) && (agent->node || !frames_idle(&agent->frames)))
        uv_run(&table->loop, UV_RUN_ONCE);
}

static int exit_code_of_node(struct agent *agent)
{
    if (agent->concluded)
        return agent->exit_code;
    if (agent->signal) /* before node 0 could end the job because of it */
        return 128 + agent->signal;
    fprintf(stderr, "horovodrun: lost node 0 at %s: %s\n", agent->node->rendezvous,
            agent->silent ? "it has been silent for too long" : "its connection has ended");
    return 1;
}

static hvd_code open_connection(struct agent *agent, hvd_status *status)
{
    agent->frames = (struct frames){
        .owner = agent, .receive = agent_receive, .ended = on_end_of_frames, .limit = FRAME_LIMIT};
    if (!agent->node)
        return own_stream(agent, status);
    agent->preparation = agent->node->preparation;
    frames_open_stream(&agent->frames, &agent->table.loop, &agent->node->stream);
    return HVD_OK;
}

int agent_run(struct guard *guard, const struct agent_node *node)
{
    struct agent agent = {.node = node};
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
                            .happened = agent_happened};
    if (options_parse(&agent.options, no_words, &status) || settings_init(&agent.settings, &status) ||
        uv_loop_init(&table->loop) || open_connection(&agent, &status) || table_open(table, &status)) {
        fprintf(stderr, "horovodrun: can't start the agent\n");
        return 1;
    }
    table->loop.data = &agent;
    uv_timer_init(&table->loop, &agent.answer);
    look_init(&agent.look, table, agent_send_views);
    stalls_watch(&agent.stalls, table);
    uv_timer_init(&table->loop, &watch);
    uv_timer_start(&watch, on_watch, WATCH_MILLISECONDS, WATCH_MILLISECONDS);
    agent_loop(&agent);
    frames_close(&agent.frames);
    sink_close(&agent.input);
    table_close(table);
    look_free(&agent.look);
    frames_free(&agent.frames);
    sink_free(&agent.input);
    if (!node) {
        words_free(agent.preparation.command);
        words_free(agent.preparation.environment);
    }
    options_free(&agent.options);
    settings_free(&agent.settings);
    return node ? exit_code_of_node(&agent) : 0;
}
