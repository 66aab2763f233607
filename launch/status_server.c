/* status_server.c - see status_server.h. A client sends one question, and gets a heartbeat at once, so that
 * it detects a launcher that is stopped; then the views of jobs. */
#include "status_server.h"
#include "frames.h"
#include "sampler.h"

#include "base/clock.h"
#include "base/platform_sockets.h"
#include "base/status.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT_SECONDS     10.0
#define TICK_MILLISECONDS  1000
#define QUESTION_BYTES     256
#define RELEASE_CHARACTERS 64

struct status_client {
    struct frames frames; /* the first member: a pointer to one is a pointer to the other */
    struct status_server *server;
    int64_t deadline;
    bool has_question;
};

static void on_released(struct frames *frames)
{
    frames_free(frames);
    free(frames);
}

/* Closes the connection; the client is freed when the loop has let go of it. */
static void drop(struct status_client *client)
{
    struct status_server *server = client->server;
    monitor_forget(server->monitor, client);
    record_query_forget(server->monitor->table->record_query, client);
    for (int i = 0; i < MONITOR_CLIENTS; i++) {
        if (server->clients[i] == client)
            server->clients[i] = NULL;
    }
    frames_close(&client->frames);
}

static void on_ended(struct frames *frames)
{
    drop((struct status_client *)frames);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static void put_job_view(struct frames *to, const struct job_view *job_view)
{
    struct wire_writer *out = &to->stream.out;
    size_t begin = frame_begin(to, FRAME_JOB_VIEW);
    wire_put_string(out, job_view->id);
    wire_put_string(out, job_view->name);
    wire_put_u64(out, job_view->started ? (uint64_t)(job_view->taken - job_view->started) : 0);
    wire_put_u64(out, job_view->changing ? (uint64_t)(job_view->taken - job_view->changing) : 0);
    wire_put_u32(out, (uint32_t)job_view->least);
    wire_put_u32(out, (uint32_t)job_view->host_count);
    for (int i = 0; i < job_view->host_count; i++) {
        wire_put_string(out, job_view->hosts[i].name);
        wire_put_u8(out, job_view->hosts[i].answers);
        wire_put_f64(out, job_view->hosts[i].silent);
    }
    frame_end(to, begin);
    for (int i = 0; i < job_view->count; i++) {
        begin = frame_begin(to, FRAME_RANK_VIEW);
        wire_put_u32(out, 0);
        rank_view_put(&job_view->ranks[i], job_view->taken, out);
        frame_end(to, begin);
    }
}

static void answer(const struct job_views *job_views, void *argument)
{
    struct status_client *client = argument;
    struct frames *to = &client->frames;
    for (int i = 0; i < job_views->count; i++)
        put_job_view(to, &job_views->list[i]);
    frame_send_numbers(to, FRAME_LOOKED, 1, (int[]){0});
}

static void answer_records(const struct collected *collected, void *argument)
{
    struct status_client *client = argument;
    collected_send(collected, &client->frames);
    frame_send_numbers(&client->frames, FRAME_LOOKED, 1, (int[]){0});
}

static void refuse(struct status_client *client, const char *why)
{
    size_t begin = frame_begin(&client->frames, FRAME_REFUSED);
    wire_put_string(&client->frames.stream.out, why);
    frame_end(&client->frames, begin);
}

/* ---- the question -------------------------------------------------------------------------------------- */

static void on_frame(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct status_client *client = (struct status_client *)frames;
    char release[RELEASE_CHARACTERS], why[256] = "";
    struct record_query *record_query = client->server->monitor->table->record_query;
    struct history_window window;
    hvd_status status;
    bool valid = !client->has_question && wire_get_string(body, release, sizeof release);
    uint8_t stacks = kind == FRAME_ASK ? wire_get_u8(body) : STACKS_NONE;
    if (kind != FRAME_ASK)
        valid = valid && kind == FRAME_ASK_RECORDS && window_get(&window, body);
    if (!valid || body->failed || stacks > STACKS_ALL) {
        drop(client);
        return;
    }
    client->has_question = true;
    sampler_renew(client->server->monitor->table->sampler);
    frame_send(frames, FRAME_RECEIVED);
    if (strcmp(release, hvd_version()) != 0) {
        append_text(why, sizeof why, "it is release %s, this horovodrun is %s", hvd_version(), release);
        refuse(client, why);
    } else if (kind == FRAME_ASK_RECORDS) {
        if (record_query_start(record_query, &window, answer_records, client, &status))
            refuse(client, status.text);
    } else if (monitor_request(client->server->monitor, (enum stacks)stacks, answer, client, &status)) {
        refuse(client, status.text);
    }
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_tick(uv_timer_t *timer)
{
    struct status_server *server = timer->data;
    bool any = false;
    if (!uv_is_active((uv_handle_t *)&server->poll))
        uv_poll_start(&server->poll, UV_READABLE, on_connection);
    for (int i = 0; i < MONITOR_CLIENTS; i++) {
        struct status_client *client = server->clients[i];
        if (client && clock_now() > client->deadline)
            drop(client);
        any = any || server->clients[i];
    }
    if (!any)
        uv_timer_stop(timer);
}

/* Returns NULL if there is no room for one more client. */
static struct status_client **find_place(struct status_server *server)
{
    for (int i = 0; i < MONITOR_CLIENTS; i++) {
        if (!server->clients[i])
            return &server->clients[i];
    }
    return NULL;
}

void status_server_admit(struct status_server *server, int fd)
{
    struct status_client **place = find_place(server);
    int other = place && platform_peer_is_same_user(fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    struct status_client *client = other >= 0 ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        socket_close(&fd);
        socket_close(&other);
        return;
    }
    *place = client;
    client->server = server;
    client->deadline = clock_after(CLIENT_SECONDS);
    client->frames = (struct frames){
        .receive = on_frame, .ended = on_ended, .released = on_released, .limit = QUESTION_BYTES};
    frames_open(&client->frames, &server->monitor->table->loop, fd, other);
    if (!uv_is_active((uv_handle_t *)&server->timer))
        uv_timer_start(&server->timer, on_tick, TICK_MILLISECONDS, TICK_MILLISECONDS);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct status_server *server = poll->data;
    int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    (void)status;
    (void)events;
    if (fd >= 0) {
        status_server_admit(server, fd);
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        /* Without a descriptor for it the client stays in the queue, and would wake the loop at once. */
        uv_poll_stop(poll);
        uv_timer_start(&server->timer, on_tick, TICK_MILLISECONDS, TICK_MILLISECONDS);
    }
}

void status_server_open(struct status_server *server, struct monitor *monitor)
{
    struct table *table = monitor->table;
    char name[64] = "";
    append_text(name, sizeof name, STATUS_SOCKET "%s", (long)geteuid(), table->id);
    *server = (struct status_server){.monitor = monitor, .listener = platform_local_listen(name)};
    uv_timer_init(&table->loop, &server->timer);
    server->timer.data = server->poll.data = server;
    if (server->listener < 0 || uv_poll_init(&table->loop, &server->poll, server->listener))
        return;
    server->poll.data = server;
    uv_poll_start(&server->poll, UV_READABLE, on_connection);
}

void status_server_close(struct status_server *server)
{
    for (int i = 0; i < MONITOR_CLIENTS; i++) {
        if (server->clients[i])
            drop(server->clients[i]);
    }
}

void status_server_free(struct status_server *server)
{
    socket_close(&server->listener);
}
