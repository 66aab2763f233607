/* protocol.c - encodes and decodes the requests of clients and the server's answers. No state; any thread.
 * Decoders check every bound. */
#include "rendezvous/protocol.h"

#include "net/socket.h"

#include <string.h>

/* Returns where the body starts; frame_end writes the length in front of it. */
static size_t frame_begin(struct wire_writer *frame)
{
    wire_put_u32(frame, 0);
    return frame->length;
}

static void frame_end(struct wire_writer *frame, size_t start)
{
    if (frame->failed)
        return;
    size_t body = frame->length - start;
    for (size_t i = 0; i < STREAM_HEADER_BYTES; i++)
        frame->bytes[start - STREAM_HEADER_BYTES + i] = (uint8_t)(body >> (8 * i));
}

void question_encode(struct wire_writer *frame, const struct question *question)
{
    size_t start = frame_begin(frame);
    wire_put_u32(frame, question->id);
    wire_put_u8(frame, (uint8_t)question->kind);
    wire_put_string(frame, question->key);
    if (question->kind == QUESTION_ENTER) {
        wire_put_string(frame, question->job);
        wire_put_u32(frame, question->epoch);
        wire_put_u32(frame, question->rank);
        wire_put_u32(frame, question->size);
    }
    if (question->kind == QUESTION_PUT) {
        wire_put_u8(frame, (uint8_t)question->lifetime);
        wire_put_blob(frame, question->value, question->length);
    } else if (question->kind == QUESTION_FOLLOW) {
        wire_put_u32(frame, question->seen);
    } else {
        wire_put_u8(frame, question->wait);
    }
    frame_end(frame, start);
}

bool question_decode(struct question *question, const uint8_t *body, size_t length)
{
    struct wire_reader reader = wire_reader_of(body, length);
    unsigned lifetime = LIFETIME_RANKS;
    *question = (struct question){.id = wire_get_u32(&reader)};
    question->kind = (enum question_kind)wire_get_u8(&reader);
    wire_get_string(&reader, question->key, sizeof question->key);
    switch (question->kind) {
    case QUESTION_ENTER:
        wire_get_string(&reader, question->job, sizeof question->job);
        question->epoch = wire_get_u32(&reader);
        question->rank = wire_get_u32(&reader);
        question->size = wire_get_u32(&reader);
        question->wait = wire_get_u8(&reader) != 0;
        break;
    case QUESTION_PUT:
        lifetime = wire_get_u8(&reader);
        question->lifetime = (enum lifetime)lifetime;
        question->value = wire_get_blob(&reader, RENDEZVOUS_VALUE_LIMIT, &question->length);
        break;
    case QUESTION_GET:
        question->wait = wire_get_u8(&reader) != 0;
        break;
    case QUESTION_FOLLOW:
        question->seen = wire_get_u32(&reader);
        question->wait = true;
        break;
    default:
        return false;
    }
    return wire_done(&reader) && lifetime <= LIFETIME_CONNECTION;
}

void answer_encode(struct wire_writer *frame, const struct answer *answer)
{
    size_t start = frame_begin(frame);
    wire_put_u32(frame, answer->id);
    wire_put_u8(frame, (uint8_t)answer->outcome);
    wire_put_u32(frame, answer->number);
    wire_put_blob(frame, answer->value, answer->length);
    frame_end(frame, start);
}

bool answer_decode(struct answer *answer, const uint8_t *body, size_t length)
{
    struct wire_reader reader = wire_reader_of(body, length);
    *answer = (struct answer){.id = wire_get_u32(&reader)};
    unsigned outcome = wire_get_u8(&reader);
    answer->outcome = (enum outcome)outcome;
    answer->number = wire_get_u32(&reader);
    answer->value = wire_get_blob(&reader, PROTOCOL_FRAME_LIMIT, &answer->length);
    return wire_done(&reader) && outcome <= OUTCOME_OVER;
}
