/* fuzz_agent.c - any bytes where launcher and agents read each other's frames, a few at a time. First byte:
 * what the launcher sends (0), or what agents send, behind the noise of a shell. */
#include "base/status.h"
#include "launch/agents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3 };

struct source {
    struct frames frames; /* the first member: what points to one points to the other */
    const uint8_t *bytes;
    size_t length, position;
};

static ssize_t read_some(struct stream *stream, void *bytes, size_t length)
{
    struct source *source = (struct source *)stream;
    size_t left = source->length - source->position, count = 1 + source->position % 7;
    count = count < left ? count : left;
    count = count < length ? count : length;
    memcpy(bytes, source->bytes + source->position, count);
    source->position += count;
    return (ssize_t)count;
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

static void take_as_agent(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    (void)frames;
    struct preparation preparation = {0};
    struct start start = {0};
    if (kind == FRAME_PREPARE && preparation_take(&preparation, body) && !*preparation.command)
        abort();
    if (kind == FRAME_START && start_take(&start, body) && start.count < 1)
        abort();
    words_free(preparation.environment);
    words_free(preparation.command);
    free(start.slots);
}

static void read_all(struct source *source, const uint8_t *bytes, size_t length)
{
    source->bytes = bytes;
    source->length = length;
    source->frames.stream.io = &memory;
    source->frames.stream.fd = source->frames.to = -1;
    source->frames.ended = on_end;
    source->frames.open = true;
    frames_read(&source->frames);
    frames_free(&source->frames);
}

/* Two hosts; the agent of the second is prepared, all frames come from the first. */
static void read_as_launcher(const uint8_t *bytes, size_t length)
{
    char *words[] = {"true", NULL}, *nothing = NULL;
    hvd_status status;
    struct options options = {.command = words, .values = calloc((size_t)setting_count, sizeof(char *))};
    struct settings settings = {0};
    struct hosts hosts = {0};
    struct remote list[2] = {0}, *of_host[2] = {&list[0], &list[1]};
    struct remotes remotes = {.list = list, .count = 2, .of_host = of_host, .serving = true};
    struct guard guard = {.has_agents = true};
    struct job job = {.options = &options,
                      .guard = &guard,
                      .settings = &settings,
                      .hosts = &hosts,
                      .size = RANKS,
                      .function = -1,
                      .input = -1,
                      .remotes = &remotes,
                      .failed = -1};
    environ = &nothing;
    job.out = job.err = &job.sinks[0];
    job.out->error = EPIPE; /* it takes nothing */
    if (!options.values || hosts_parse(&hosts, "10.9.9.1:2,10.9.9.2:1", &status) ||
        hosts_layout(&hosts, RANKS, &status) || uv_loop_init(&job.loop) ||
        uv_timer_init(&job.loop, &job.clock) || job_add_ranks(&job, hosts.slots, hosts.size, &status))
        abort();
    for (int i = 0; i < 2; i++) {
        list[i] = (struct remote){.job = &job, .host = &hosts.list[i], .frames.to = -1};
        list[i].state = i ? REMOTE_PREPARED : REMOTE_CALLED;
    }
    for (int i = 0; i < RANKS; i++)
        job.ranks[i].remote = true;
    struct source source = {.frames = {.owner = &list[0], .take = remote_take, .limit = FRAME_LIMIT_ANSWER}};
    source.frames.awaits_preamble = true;
    read_all(&source, bytes, length);
    for (int i = 0; i < 2; i++) {
        frames_free(&list[i].frames);
        wire_writer_free(&list[i].said);
    }
    job_close(&job);
    hosts_free(&hosts);
    free(options.values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length == 0)
        return 0;
    if (bytes[0] == 0) {
        struct source source = {.frames = {.take = take_as_agent, .limit = FRAME_LIMIT}};
        read_all(&source, bytes + 1, length - 1);
    } else {
        read_as_launcher(bytes + 1, length - 1);
    }
    return 0;
}
