/* status_client.c - see status_client.h. Launchers are found by the names of their sockets, which the system
 * lists. All are asked at once. */
#include "status_client.h"
#include "status_server.h"

#include "base/patience.h"
#include "base/platform_sockets.h"
#include "base/status.h"
#include "net/socket.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MILLISECONDS 20
#define HOST_BYTES        (4 + 1 + 8) /* of one without a name */

/* ---- what a launcher sends ----------------------------------------------------------------------------- */

static void fail(struct launcher *launcher, const char *why)
{
    if (!launcher->ended)
        append_text(launcher->why, sizeof launcher->why, "%s", why);
    launcher->ended = true;
}

static void drop_views(struct launcher *launcher)
{
    for (int i = 0; i < launcher->count; i++)
        rank_view_free(&launcher->views[i]);
    free(launcher->views);
    free(launcher->hosts);
    launcher->views = NULL;
    launcher->hosts = NULL;
    launcher->count = 0;
}

static void append(struct job_views *to, struct job_views *from)
{
    struct job_view *list = reallocarray(to->list, (size_t)(to->count + from->count) + 1, sizeof *list);
    if (list)
        to->list = list;
    for (int i = 0; list && i < from->count; i++) {
        to->list[to->count++] = from->list[i];
        from->list[i] = (struct job_view){0};
    }
    job_views_free(from);
}

/* Makes the view of the job whose views have arrived, if there is one. */
static void finish_job_view(struct launcher *launcher)
{
    struct job_views job_views;
    hvd_status status;
    if (!launcher->count)
        return;
    launcher->origin.taken_at = clock_since_1970();
    launcher->origin.hosts = launcher->hosts;
    hvd_code code = job_views_make(launcher->views, launcher->count, &launcher->origin, &job_views, &status);
    launcher->views = NULL;
    launcher->count = 0;
    if (code)
        fail(launcher, status.text);
    else
        append(launcher->found, &job_views);
    drop_views(launcher);
}

/* Returns a time that is sent as an age; 0: there is none. */
static int64_t get_time(struct wire_reader *body, int64_t now)
{
    uint64_t age = wire_get_u64(body);
    return age && age < (uint64_t)now ? now - (int64_t)age : 0;
}

static bool get_job_view(struct launcher *launcher, struct wire_reader *body)
{
    struct job_view_origin *origin = &launcher->origin;
    *origin = (struct job_view_origin){.id = launcher->id, .name = launcher->name, .taken = clock_now()};
    wire_get_string(body, launcher->id, sizeof launcher->id);
    wire_get_string(body, launcher->name, sizeof launcher->name);
    origin->started = get_time(body, origin->taken);
    origin->changing = get_time(body, origin->taken);
    uint32_t least = wire_get_u32(body), count = wire_get_u32(body);
    origin->least = least < INT_MAX ? (int)least : INT_MAX;
    if (body->failed || count > (body->length - body->position) / HOST_BYTES)
        return false;
    launcher->hosts = calloc((size_t)count + 1, sizeof *launcher->hosts);
    for (uint32_t i = 0; launcher->hosts && i < count; i++) {
        struct job_view_host *host = &launcher->hosts[origin->host_count++];
        wire_get_string(body, host->name, sizeof host->name);
        host->answers = wire_get_u8(body);
        double silent = wire_get_f64(body);
        host->silent = silent >= 0 && silent < 1e9 ? silent : 0;
    }
    for (char *at = launcher->name; *at; at++)
        *at = (unsigned char)*at < ' ' || *at == '\x7f' ? '?' : *at; /* it could control a terminal */
    return launcher->hosts && wire_done(body);
}

static bool get_view(struct launcher *launcher, struct wire_reader *body)
{
    struct rank_view view = {0};
    struct rank_view *list =
        launcher->hosts ? reallocarray(launcher->views, (size_t)launcher->count + 1, sizeof *list) : NULL;
    if (list)
        launcher->views = list;
    wire_get_u32(body);
    bool valid = list && rank_view_get(&view, launcher->origin.taken, body) && wire_done(body) &&
                 strcmp(view.page.identity.job, launcher->id) == 0;
    if (valid)
        launcher->views[launcher->count++] = view;
    else
        rank_view_free(&view);
    return valid;
}

void launcher_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct launcher *launcher = frames->owner;
    bool valid = true;
    if (launcher->ended)
        return;
    launcher->responds = true;
    switch (kind) {
    case FRAME_RECEIVED:
        break;
    case FRAME_JOB_VIEW:
        finish_job_view(launcher);
        drop_views(launcher);
        valid = get_job_view(launcher, body);
        break;
    case FRAME_RANK_VIEW:
        valid = get_view(launcher, body);
        break;
    case FRAME_LOOKED:
        finish_job_view(launcher);
        launcher->ended = true;
        break;
    case FRAME_REFUSED:
        wire_get_string(body, launcher->why, sizeof launcher->why);
        launcher->ended = true;
        break;
    default:
        valid = false;
    }
    if (!valid)
        fail(launcher, "it has sent something that is malformed");
}

/* ---- finding ------------------------------------------------------------------------------------------- */

/* Adds the launcher whose socket has this name, once: its connections are listed with the same name. */
static void add(struct launchers *launchers, const char *id)
{
    for (int i = 0; i < launchers->count; i++) {
        if (strcmp(launchers->list[i].job, id) == 0)
            return;
    }
    struct launcher *list =
        reallocarray(launchers->list, (size_t)launchers->count + 1, sizeof *launchers->list);
    if (!list)
        return;
    launchers->list = list;
    list[launchers->count] = (struct launcher){0};
    append_text(list[launchers->count++].job, sizeof list->job, "%s", id);
}

static void find(const char *job, struct launchers *launchers)
{
    char line[512], name[64] = "";
    FILE *file = fopen("/proc/net/unix", "re");
    append_text(name, sizeof name, "@" STATUS_SOCKET, (long)geteuid());
    while (file && fgets(line, sizeof line, file)) {
        char *id = strstr(line, name);
        if (!id)
            continue;
        id += strlen(name);
        size_t length = strspn(id, "0123456789abcdef");
        if (length != JOB_ID_DIGITS || (job && strncmp(id, job, strlen(job)) != 0))
            continue;
        id[length] = '\0';
        add(launchers, id);
    }
    if (file)
        fclose(file);
}

/* ---- asking -------------------------------------------------------------------------------------------- */

static void on_ended(struct frames *frames)
{
    fail(frames->owner, "it has closed the connection");
}

int launcher_connect(struct frames *frames, const char *job, uv_loop_t *loop)
{
    char name[64 + JOB_ID_DIGITS] = "";
    append_text(name, sizeof name, STATUS_SOCKET "%.*s", (long)geteuid(), JOB_ID_DIGITS, job);
    int fd = platform_local_connect(name);
    bool own = fd >= 0 && platform_peer_is_same_user(fd);
    int other = own ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (other < 0) {
        socket_close(&fd);
        return -1;
    }
    int process = platform_peer_process(fd);
    frames_open(frames, loop, fd, other);
    return process;
}

static void ask(struct launcher *launcher, enum stacks stacks, uv_loop_t *loop, struct job_views *found)
{
    launcher->found = found;
    launcher->frames = (struct frames){.stream.fd = -1,
                                       .to = -1,
                                       .owner = launcher,
                                       .receive = launcher_receive,
                                       .ended = on_ended,
                                       .limit = FRAME_LIMIT_ANSWER};
    int process = launcher_connect(&launcher->frames, launcher->job, loop);
    if (process < 0)
        fail(launcher, "it can't be reached");
    else
        launcher->process = process;
    if (launcher->ended)
        return;
    size_t begin = frame_begin(&launcher->frames, FRAME_ASK);
    wire_put_string(&launcher->frames.stream.out, hvd_version());
    wire_put_u8(&launcher->frames.stream.out, (uint8_t)stacks);
    frame_end(&launcher->frames, begin);
}

/* Only wakes the loop. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

/* Returns true if an answer is missing for which there is time. */
static bool waits(struct launchers *launchers, struct patience *first, struct patience *whole)
{
    bool missing = false, first_ends = patience_ends(first), whole_ends = patience_ends(whole);
    for (int i = 0; i < launchers->count; i++) {
        struct launcher *launcher = &launchers->list[i];
        if (!launcher->ended && (launcher->responds ? whole_ends : first_ends))
            fail(launcher, "it does not answer");
        missing = missing || !launcher->ended;
    }
    return missing;
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void launchers_ask(const char *job, enum stacks stacks, struct launchers *launchers,
                   struct job_views *job_views)
{
    uv_loop_t loop;
    uv_timer_t timer;
    *launchers = (struct launchers){0};
    find(job, launchers);
    if (!launchers->count || uv_loop_init(&loop))
        return;
    uv_timer_init(&loop, &timer);
    uv_timer_start(&timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    for (int i = 0; i < launchers->count; i++)
        ask(&launchers->list[i], stacks, &loop, job_views);
    struct patience first = patience_of((int64_t)(LAUNCHER_SECONDS * CLOCK_SECOND));
    struct patience whole = patience_of((int64_t)(JOB_VIEW_SECONDS * CLOCK_SECOND));
    while (waits(launchers, &first, &whole))
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < launchers->count; i++)
        frames_close(&launchers->list[i].frames);
    uv_walk(&loop, close_handle, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

void launchers_free(struct launchers *launchers)
{
    for (int i = 0; i < launchers->count; i++) {
        drop_views(&launchers->list[i]);
        frames_free(&launchers->list[i].frames);
    }
    free(launchers->list);
    *launchers = (struct launchers){0};
}
