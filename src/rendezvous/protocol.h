/* protocol.h - the messages between a client and the server of the key-value store, after the client is
 * authenticated: questions and their answers, in frames of a length and a body. A client has one question
 * open at a time; the next one cancels it. Decoders check every bound. No state; any thread. */
#ifndef HVD_RENDEZVOUS_PROTOCOL_H
#define HVD_RENDEZVOUS_PROTOCOL_H

#include "base/wire.h"
#include "rendezvous/client.h"

#define PROTOCOL_FRAME_LIMIT (RENDEZVOUS_VALUE_LIMIT + RENDEZVOUS_KEY_LIMIT + 64)

enum question_kind { QUESTION_ENTER = 1, QUESTION_PUT, QUESTION_GET, QUESTION_FOLLOW };

/* How long a key stays that was put. */
enum lifetime {
    LIFETIME_RANKS,     /* until the ranks have left, or a newer epoch begins */
    LIFETIME_EPOCH,     /* until a newer epoch begins */
    LIFETIME_CONNECTION /* as above, but its value becomes empty when the client's connection ends */
};

struct question {
    uint32_t id; /* the answer carries it */
    enum question_kind kind;
    char job[RENDEZVOUS_KEY_LIMIT]; /* enter */
    uint32_t epoch, rank, size;     /* enter: see rendezvous_enter */
    char key[RENDEZVOUS_KEY_LIMIT]; /* put, get, follow; enter: a key to get as well, or "" */
    bool wait;                      /* enter, get: answer once the key is there */
    uint32_t seen;                  /* follow: answer once the key's number of the put is another one */
    enum lifetime lifetime;         /* put */
    const uint8_t *value;           /* put; into the frame */
    uint32_t length;
};

enum outcome { OUTCOME_DONE, OUTCOME_ABSENT, OUTCOME_FULL, OUTCOME_OVER };

struct answer {
    uint32_t id;
    enum outcome outcome;
    uint32_t number;      /* over: the newest epoch; to follow: of the put; otherwise the rank's generation */
    const uint8_t *value; /* of the key; into the frame */
    uint32_t length;
};

/* Append a whole frame. */
void question_encode(struct wire_writer *frame, const struct question *question);
void answer_encode(struct wire_writer *frame, const struct answer *answer);

/* From a frame's body; false when it is malformed. */
bool question_decode(struct question *question, const uint8_t *body, size_t length);
bool answer_decode(struct answer *answer, const uint8_t *body, size_t length);

#endif
