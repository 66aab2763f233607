/* frames.c - sends and receives the frames between the launcher and agents, and encodes and decodes the
 * longer bodies. One thread, the loop's. */
#include "frames.h"

#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREAMBLE_BYTES (sizeof FRAME_PREAMBLE - 1)

/* ---- to the other end ---------------------------------------------------------------------------------- */

static ssize_t read_file(struct stream *stream, void *bytes, size_t length)
{
    return read(stream->fd, bytes, length);
}

static ssize_t write_file(struct stream *stream, const void *bytes, size_t length)
{
    return write(((struct frames *)stream)->to, bytes, length);
}

static const struct stream_io two_files = {read_file, write_file};

static void flush(struct frames *frames);

static void on_writable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the next write returns the same error */
    (void)events;
    flush(poll->data);
}

static void flush(struct frames *frames)
{
    enum stream_outcome outcome = STREAM_FAILED;
    if (frames->to < 0) {
        wire_reset(&frames->stream.out);
        return;
    }
    if (!frames->stream.out.failed)
        outcome = stream_write(&frames->stream);
    if (outcome == STREAM_AGAIN) {
        uv_poll_start(&frames->writable, UV_WRITABLE, on_writable);
        return;
    }
    if (uv_is_active((uv_handle_t *)&frames->writable))
        uv_poll_stop(&frames->writable);
    if (outcome) {
        frames_shut(frames);
        frames->ended(frames);
    }
}

size_t frame_begin(struct frames *frames, enum frame_kind kind)
{
    size_t begin = frames->stream.out.length;
    wire_put_u32(&frames->stream.out, 0);
    wire_put_u8(&frames->stream.out, (uint8_t)kind);
    return begin;
}

void frame_end(struct frames *frames, size_t begin)
{
    struct wire_writer *out = &frames->stream.out;
    uint32_t length = (uint32_t)(out->length - begin - STREAM_HEADER_BYTES);
    if (!out->failed)
        memcpy(out->bytes + begin, &length, sizeof length);
    flush(frames);
}

void frame_send_numbers(struct frames *frames, enum frame_kind kind, int count, const int *numbers)
{
    size_t begin = frame_begin(frames, kind);
    for (int i = 0; i < count; i++)
        wire_put_u32(&frames->stream.out, (uint32_t)numbers[i]);
    frame_end(frames, begin);
}

void frame_send(struct frames *frames, enum frame_kind kind)
{
    frame_end(frames, frame_begin(frames, kind));
}

bool frames_idle(const struct frames *frames)
{
    return frames->stream.out.length == 0;
}

/* ---- from the other end -------------------------------------------------------------------------------- */

/* Drops all bytes up to the end of the preamble. */
static enum stream_outcome skip_preamble(struct stream *stream)
{
    struct wire_writer *in = &stream->in;
    enum stream_outcome outcome;
    while (!(outcome = stream_fill(stream, PREAMBLE_BYTES))) {
        if (memcmp(in->bytes, FRAME_PREAMBLE, PREAMBLE_BYTES) == 0) {
            wire_reset(in);
            break;
        }
        const uint8_t *next = memchr(in->bytes + 1, FRAME_PREAMBLE[0], PREAMBLE_BYTES - 1);
        size_t dropped = next ? (size_t)(next - in->bytes) : PREAMBLE_BYTES;
        in->length -= dropped;
        memmove(in->bytes, in->bytes + dropped, in->length);
    }
    return outcome;
}

void frames_read(struct frames *frames)
{
    enum stream_outcome outcome = STREAM_DONE;
    frames->last = clock_now();
    if (frames->awaits_preamble)
        outcome = skip_preamble(&frames->stream);
    frames->awaits_preamble = frames->awaits_preamble && outcome;
    while (!outcome && frames->open) {
        const uint8_t *frame;
        size_t length;
        outcome = stream_read(&frames->stream, frames->limit, &frame, &length);
        if (outcome)
            break;
        struct wire_reader body = wire_reader_of(frame, length);
        enum frame_kind kind = wire_get_u8(&body);
        frames->receive(frames, kind, &body);
    }
    if (outcome > STREAM_AGAIN) {
        frames_close(frames);
        frames->ended(frames);
    }
}

bool frames_silent(const struct frames *frames, double seconds)
{
    return seconds > 0 && (double)(clock_now() - frames->last) > seconds * CLOCK_SECOND;
}

void frames_awake(struct frames *frames, double seconds)
{
    int64_t now = clock_now(), beyond = now - frames->awake - (int64_t)(seconds * CLOCK_SECOND);
    if (beyond > 0)
        frames->last = clock_earlier(frames->last + beyond, now);
    frames->awake = now;
}

void frames_catch_up(struct frames *frames)
{
    if (frames->open && poll(&(struct pollfd){.fd = frames->stream.fd, .events = POLLIN}, 1, 0) > 0)
        frames_read(frames);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the next read returns the same error */
    (void)events;
    frames_read(poll->data);
}

/* ---- the connection ------------------------------------------------------------------------------------ */

static void start(struct frames *frames, uv_loop_t *loop, int from, int to)
{
    frames->to = to;
    frames->last = frames->awake = clock_now();
    frames->readable.data = frames->writable.data = frames;
    frames->handles = 2;
    /* A regular file can't be polled, and is no connection. */
    frames->open = uv_poll_init(loop, &frames->readable, from) == 0 &&
                   uv_poll_init(loop, &frames->writable, to) == 0 &&
                   uv_poll_start(&frames->readable, UV_READABLE, on_readable) == 0;
    if (!frames->open)
        frames->ended(frames);
}

void frames_open(struct frames *frames, uv_loop_t *loop, int from, int to)
{
    frames->stream.io = &two_files;
    frames->stream.fd = from;
    start(frames, loop, from, to);
}

void frames_open_stream(struct frames *frames, uv_loop_t *loop, const struct stream *stream)
{
    frames->stream = *stream;
    start(frames, loop, stream->fd, fcntl(stream->fd, F_DUPFD_CLOEXEC, 3)); /* one handle polls one file */
}

static void on_closed(uv_handle_t *handle)
{
    struct frames *frames = handle->data;
    if (--frames->handles == 0 && frames->released)
        frames->released(frames);
}

static void close_file(uv_poll_t *poll, int *file)
{
    if (poll->loop && !uv_is_closing((uv_handle_t *)poll))
        uv_close((uv_handle_t *)poll, on_closed);
    if (*file >= 0)
        close(*file);
    *file = -1;
}

void frames_shut(struct frames *frames)
{
    if (!frames->stream.io) /* it was never opened */
        return;
    if (frames->stream.io == &stream_socket && frames->to >= 0)
        shutdown(frames->to, SHUT_WR); /* another descriptor of the socket stays open */
    close_file(&frames->writable, &frames->to);
    wire_reset(&frames->stream.out);
    frames->stream.sent = 0;
}

void frames_close(struct frames *frames)
{
    if (!frames->stream.io)
        return;
    frames->open = false;
    frames_shut(frames);
    close_file(&frames->readable, &frames->stream.fd);
}

void frames_free(struct frames *frames)
{
    stream_free(&frames->stream);
}

/* ---- bodies of frames ---------------------------------------------------------------------------------- */

#define ASSIGNMENT_BYTES 8 /* of one without a name */

static void put_words(char *const *words, struct wire_writer *body)
{
    uint32_t count = 0;
    while (words[count])
        count++;
    wire_put_u32(body, count);
    for (uint32_t i = 0; i < count; i++)
        wire_put_string(body, words[i]);
}

static char **get_words(struct wire_reader *body)
{
    uint32_t count = wire_get_u32(body);
    char **words = NULL;
    if (!body->failed && count <= (body->length - body->position) / sizeof count)
        words = calloc((size_t)count + 1, sizeof *words);
    for (uint32_t i = 0; words && i < count; i++) {
        uint32_t length;
        const uint8_t *bytes = wire_get_blob(body, UINT32_MAX, &length);
        words[i] = bytes ? strndup((const char *)bytes, length) : NULL;
        if (!words[i]) {
            words_free(words);
            return NULL;
        }
    }
    return words;
}

void words_free(char **words)
{
    for (char **word = words; word && *word; word++)
        free(*word);
    free(words);
}

void preparation_put(const struct preparation *preparation, struct wire_writer *body)
{
    wire_put_u8(body, preparation->setup);
    wire_put_string(body, preparation->folder);
    put_words(preparation->environment, body);
    put_words(preparation->command, body);
    wire_put_string(body, preparation->rendezvous);
    wire_put_string(body, preparation->secret);
}

bool preparation_get(struct preparation *preparation, struct wire_reader *body)
{
    preparation->setup = wire_get_u8(body);
    return wire_get_string(body, preparation->folder, sizeof preparation->folder) &&
           (preparation->environment = get_words(body)) && (preparation->command = get_words(body)) &&
           *preparation->command &&
           wire_get_string(body, preparation->rendezvous, sizeof preparation->rendezvous) &&
           wire_get_string(body, preparation->secret, sizeof preparation->secret) && wire_done(body);
}

void node_hello_put(const struct node_hello *hello, struct wire_writer *body)
{
    wire_put_string(body, hello->release);
    wire_put_u32(body, (uint32_t)hello->index);
    wire_put_u32(body, (uint32_t)hello->count);
    wire_put_u32(body, (uint32_t)hello->ranks);
    wire_put_string(body, hello->host);
}

/* Another release may say more. */
bool node_hello_get(struct node_hello *hello, struct wire_reader *body)
{
    if (!wire_get_string(body, hello->release, sizeof hello->release))
        return false;
    hello->index = (int)wire_get_u32(body);
    hello->count = (int)wire_get_u32(body);
    hello->ranks = (int)wire_get_u32(body);
    return wire_get_string(body, hello->host, sizeof hello->host) && hello->index >= 0 && hello->count > 0 &&
           hello->ranks > 0;
}

bool epoch_init(struct epoch *epoch, int count)
{
    epoch->assignments = calloc((size_t)count + 1, sizeof *epoch->assignments);
    epoch->names = calloc((size_t)count + 1, sizeof *epoch->names);
    epoch->count = count;
    return epoch->assignments && epoch->names;
}

void epoch_set(struct epoch *epoch, int index, int slot, int rank)
{
    snprintf(epoch->names[index], SLOT_NAME_LIMIT, "%d", slot);
    epoch->assignments[index] = (hvd_assignment){.slot = epoch->names[index], .rank = rank};
}

void epoch_free(struct epoch *epoch)
{
    free(epoch->assignments);
    free(epoch->names);
}

void epoch_put(const struct epoch *epoch, struct wire_writer *body)
{
    wire_put_string(body, epoch->job);
    wire_put_u32(body, (uint32_t)epoch->number);
    wire_put_u32(body, (uint32_t)epoch->count);
    for (int i = 0; i < epoch->count; i++) {
        wire_put_string(body, epoch->names[i]);
        wire_put_u32(body, (uint32_t)epoch->assignments[i].rank);
    }
}

bool epoch_get(struct epoch *epoch, struct wire_reader *body)
{
    if (!wire_get_string(body, epoch->job, sizeof epoch->job))
        return false;
    epoch->number = (int)wire_get_u32(body);
    uint32_t count = wire_get_u32(body);
    if (body->failed || count > (body->length - body->position) / ASSIGNMENT_BYTES ||
        !epoch_init(epoch, (int)count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!wire_get_string(body, epoch->names[i], SLOT_NAME_LIMIT))
            return false;
        epoch->assignments[i].slot = epoch->names[i];
        epoch->assignments[i].rank = (int32_t)wire_get_u32(body);
    }
    return wire_done(body);
}

void window_put(const struct history_window *window, struct wire_writer *body)
{
    wire_put_u64(body, (uint64_t)window->span);
    wire_put_u32(body, (uint32_t)window->steps);
    wire_put_u32(body, (uint32_t)window->most);
}

bool window_get(struct history_window *window, struct wire_reader *body)
{
    window->span = (int64_t)wire_get_u64(body);
    window->steps = (int)wire_get_u32(body);
    window->most = (int)wire_get_u32(body);
    return !body->failed && window->span >= 0 && window->steps >= 0 && window->most >= 0 &&
           window->most <= PAGE_RECORDS;
}

void job_terms_put(const struct job_terms *terms, struct wire_writer *body)
{
    wire_put_string(body, terms->id);
    wire_put_string(body, terms->secret);
    wire_put_string(body, terms->rendezvous);
    wire_put_string(body, terms->host);
    wire_put_u8(body, terms->verbose);
    wire_put_u32(body, (uint32_t)terms->count);
    window_put(&terms->at_end, body);
    window_put(&terms->at_failure, body);
}

bool job_terms_get(struct job_terms *terms, struct wire_reader *body)
{
    if (!wire_get_string(body, terms->id, sizeof terms->id) ||
        !wire_get_string(body, terms->secret, sizeof terms->secret) ||
        !wire_get_string(body, terms->rendezvous, sizeof terms->rendezvous) ||
        !wire_get_string(body, terms->host, sizeof terms->host))
        return false;
    terms->verbose = wire_get_u8(body);
    terms->count = (int)wire_get_u32(body);
    bool valid = window_get(&terms->at_end, body);
    valid = window_get(&terms->at_failure, body) && valid;
    return valid && wire_done(body) && terms->count >= 0;
}

void start_put(const struct start *start, struct wire_writer *body)
{
    const struct place *place = &start->place;
    const int numbers[] = {start->slot,       start->epoch,      start->size,       place->rank,
                           place->local_rank, place->local_size, place->cross_rank, place->cross_size};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        wire_put_u32(body, (uint32_t)numbers[i]);
}

bool start_get(struct start *start, struct wire_reader *body)
{
    struct place *place = &start->place;
    int *const numbers[] = {&start->slot,       &start->epoch,      &start->size,       &place->rank,
                            &place->local_rank, &place->local_size, &place->cross_rank, &place->cross_size};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = (int)wire_get_u32(body);
    place->host = 0;
    return wire_done(body) && start->slot >= 0 && start->epoch >= 0 && start->size > 0 && place->rank >= 0 &&
           place->local_size > 0;
}
