/* frames.c - see frames.h. */
#include "frames.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define HEADER_BYTES 5
#define READ_BYTES   65536

size_t frame_begin(struct sink *sink, enum frame_kind kind)
{
    size_t begin = sink->waiting.length;
    wire_put_u32(&sink->waiting, 0);
    wire_put_u8(&sink->waiting, (uint8_t)kind);
    return begin;
}

void frame_end(struct sink *sink, size_t begin)
{
    struct wire_writer *waiting = &sink->waiting;
    uint32_t length = (uint32_t)(waiting->length - begin - HEADER_BYTES);
    if (waiting->failed)
        sink->error = ENOMEM;
    else
        memcpy(waiting->bytes + begin, &length, sizeof length);
    sink_flush(sink);
}

void frame_send(struct sink *sink, enum frame_kind kind)
{
    frame_end(sink, frame_begin(sink, kind));
}

/* Drops what stands in front of the preamble, and the preamble; false when it has not come. */
static bool skip_preamble(struct wire_writer *in)
{
    static const char preamble[] = FRAME_PREAMBLE;
    const size_t length = sizeof preamble - 1;
    const uint8_t *found = memmem(in->bytes, in->length, preamble, length);
    size_t dropped = found ? (size_t)(found - in->bytes) + length
                           : in->length - (in->length < length ? in->length : length);
    in->length -= dropped;
    memmove(in->bytes, in->bytes + dropped, in->length);
    return found;
}

static void take_frames(struct frame_source *source)
{
    size_t done = 0;
    while (source->open && source->in.length - done >= HEADER_BYTES) {
        uint32_t length;
        const uint8_t *frame = source->in.bytes + done;
        memcpy(&length, frame, sizeof length);
        if (length > FRAME_LIMIT) {
            frame_source_close(source);
            source->ended(source);
            return;
        }
        if (source->in.length - done < HEADER_BYTES + length)
            break;
        struct wire_reader body = wire_reader_of(frame + HEADER_BYTES, length);
        done += HEADER_BYTES + length;
        source->take(source, frame[4], &body);
    }
    source->in.length -= done;
    memmove(source->in.bytes, source->in.bytes + done, source->in.length);
}

static void on_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct frame_source *source = handle->data;
    struct wire_writer *in = &source->in;
    bool room = wire_reserve(in, in->length + READ_BYTES);
    *buffer = uv_buf_init(room ? (char *)in->bytes + in->length : NULL, room ? READ_BYTES : 0);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)buffer;
    struct frame_source *source = stream->data;
    if (count < 0) {
        frame_source_close(source);
        source->ended(source);
        return;
    }
    source->in.length += (size_t)count;
    source->last = clock_now();
    if (source->awaits_preamble && !skip_preamble(&source->in))
        return;
    source->awaits_preamble = false;
    take_frames(source);
}

void frame_source_open(struct frame_source *source, uv_loop_t *loop, int file)
{
    uv_pipe_init(loop, &source->pipe, 0);
    uv_pipe_open(&source->pipe, file);
    source->pipe.data = source;
    source->open = true;
    source->last = clock_now();
    uv_read_start((uv_stream_t *)&source->pipe, on_buffer, on_read);
}

void frame_source_close(struct frame_source *source)
{
    if (!source->open)
        return;
    source->open = false;
    uv_close((uv_handle_t *)&source->pipe, NULL);
}

void frame_source_free(struct frame_source *source)
{
    wire_writer_free(&source->in);
}
