/* record_client.c - see record_client.h. */
#include "record_client.h"
#include "record_query.h"
#include "status_client.h"

#include "base/clock.h"
#include "base/status.h"

#define TICK_MILLISECONDS 20
#define SILENCE_SECONDS   (RECORD_QUERY_SECONDS + 1)

static void fail(struct record_client *client, const char *why)
{
    if (!client->ended)
        append_text(client->why, sizeof client->why, "%s", why);
    client->ended = true;
}

void record_query_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    struct record_client *client = frames->owner;
    bool valid = true;
    char why[sizeof client->why] = "";
    if (client->ended)
        return;
    switch (kind) {
    case FRAME_RECEIVED:
        break;
    case FRAME_TRACED:
        valid = collected_get_rank(client->collected, body);
        break;
    case FRAME_RECORDS:
        valid = collected_get_records(client->collected, body);
        break;
    case FRAME_LOOKED:
        client->ended = true;
        break;
    case FRAME_REFUSED:
        wire_get_string(body, why, sizeof why);
        fail(client, why);
        break;
    default:
        valid = false;
    }
    if (!valid)
        fail(client, "it has sent something that is malformed");
}

static void on_ended(struct frames *frames)
{
    fail(frames->owner, "it has closed the connection");
}

/* Only wakes the loop. */
static void on_timer(uv_timer_t *timer)
{
    (void)timer;
}

static void run(struct record_client *client, uv_loop_t *loop, const char *job,
                const struct history_window *window)
{
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, on_timer, TICK_MILLISECONDS, TICK_MILLISECONDS);
    if (launcher_connect(&client->frames, job, loop) < 0)
        fail(client, "it can't be reached");
    if (!client->ended) {
        size_t begin = frame_begin(&client->frames, FRAME_ASK_RECORDS);
        wire_put_string(&client->frames.stream.out, hvd_version());
        window_put(window, &client->frames.stream.out);
        frame_end(&client->frames, begin);
    }
    while (!client->ended) {
        uv_run(loop, UV_RUN_ONCE);
        if (frames_silent(&client->frames, SILENCE_SECONDS))
            fail(client, "it does not answer");
    }
    frames_close(&client->frames);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
}

hvd_code record_query_ask(const char *job, const struct history_window *window, struct collected *collected,
                          hvd_status *status)
{
    uv_loop_t loop;
    struct record_client client = {.collected = collected};
    client.frames = (struct frames){.stream.fd = -1,
                                    .to = -1,
                                    .owner = &client,
                                    .receive = record_query_receive,
                                    .ended = on_ended,
                                    .limit = FRAME_LIMIT_ANSWER};
    *collected = (struct collected){0};
    if (uv_loop_init(&loop))
        return status_set(status, HVD_SYSTEM, "can't make an event loop: too many open files?");
    run(&client, &loop, job, window);
    uv_loop_close(&loop);
    frames_free(&client.frames);
    return *client.why ? status_set(status, HVD_SYSTEM, "the launcher of job %.8s was asked in vain: %s", job,
                                    client.why)
                       : HVD_OK;
}
