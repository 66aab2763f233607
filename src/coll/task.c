/* task.c - moves the bytes of one step: sends, receives, reduces, copies or computes. The thread that makes
 * progress. Bytes go directly between tensors and link; elements that are computed with are processed in
 * pieces that stay in the processor's cache. */
#include "coll/task.h"

#include "base/nontemporal.h"
#include "base/types.h"
#include "transport/path.h"

#include <string.h>

#define PARTS_PER_CALL 64
#define CHUNK          ((size_t)128 << 10) /* bytes moved before other links get a turn; fits L2 */
#define LONG_CHUNK     ((size_t)1 << 20)   /* the same if no other step waits for them */
#define STREAM_LEAST   ((size_t)4 << 20)   /* bytes of a result that would evict the caches */
#define PIECE          ((size_t)16 << 10)  /* bytes that are processed twice; fits L1 */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

void run_begin(struct run *run, struct collective *collective)
{
    bool reduces = operation_reduces(collective->operation);
    run->collective = collective;
    run->left = run->phase = 0;
    run->more = true;
    run->element = hvd_dtype_size(collective->dtype);
    run->exponent = (uint8_t)__builtin_ctzll(run->element);
    run->combine = reduces ? reduce_combine(collective->dtype, collective->reduction) : NULL;
    run->scaling = scaling_of(collective->dtype, collective->reduction, collective->prescale,
                              collective->postscale, collective->size);
    run->weigh = reduces && run->scaling.weight != 1 ? reduce_weigh(collective->dtype) : NULL;
    run->bytes = collective->output.length > collective->input.length ? collective->output.length
                                                                      : collective->input.length;
    run->prescales = reduces && collective->prescale != 1;
    run->normalizes = reduces && dtype_table[collective->dtype].family == FAMILY_logical;
    run->finishes = reduces && scaling_ends(&run->scaling);
}

void task_begin(struct task *task, struct run *run, const struct step *step)
{
    unsigned exponent = step->wire ? step->wire->exponent : run->exponent;
    *task = (struct task){.run = run, .step = step, .exponent = (uint8_t)exponent};
}

/* Returns the elements of the step up to the first that its gate has not finished. */
static size_t gate_limit(const struct step *step, const struct task *gate)
{
    size_t finished = gate->step->offset + (gate->done >> gate->exponent);
    if (task_is_done(gate) || finished >= step->offset + step->length)
        return step->length;
    return finished > step->offset ? finished - step->offset : 0;
}

size_t task_open(const struct task *task)
{
    const struct step *step = task->step;
    bool gated = step->gate != STEP_NO_GATE;
    size_t limit = gated ? gate_limit(step, &task->run->tasks[step->gate]) : step->length;
    size_t open = (limit << task->exponent) - task->done;
    return step->kind == STEP_COMPUTE && limit < step->length ? open - open % CHUNK : open;
}

/* Returns where in the vector the step is, in bytes; at the start of an element if elements are converted. */
static size_t position_of(const struct task *task)
{
    size_t start = task->step->offset << task->run->exponent;
    return start + (task->step->wire ? task->done >> task->exponent << task->run->exponent : task->done);
}

static const struct vector *buffer_of(const struct task *task)
{
    const struct collective *collective = task->run->collective;
    return task->step->buffer == BUFFER_INPUT ? &collective->input : &collective->output;
}

/* Returns true if long chunks may move. Over a socket the system would copy a long chunk at once while other
 * links wait. */
static bool moves_long(const struct task *task, const struct link *link)
{
    return !task->awaited && link->operations->taken;
}

static ssize_t move_send(const struct task *task, struct link *link, size_t open)
{
    struct iovec parts[PARTS_PER_CALL];
    link->lends = moves_long(task, link);
    link->batch_bytes = task->run->bytes;
    int count = vector_parts(buffer_of(task), position_of(task),
                             smaller(open, link->lends ? LONG_CHUNK : CHUNK), parts, PARTS_PER_CALL);
    return link_send(link, parts, count);
}

/* An element that was sent in part is encoded again: nothing overwrites it before the peer has all its bytes.
 */
static ssize_t move_send_encoded(const struct task *task, struct link *link, size_t open)
{
    _Alignas(64) char encoded[PIECE];
    struct iovec parts[PARTS_PER_CALL];
    const struct run *run = task->run;
    size_t sent = task->done & (((size_t)1 << task->exponent) - 1), length = 0;
    size_t values = smaller(open + sent, PIECE) >> task->exponent << run->exponent;
    int count = vector_parts(buffer_of(task), position_of(task), values, parts, PARTS_PER_CALL);
    for (int i = 0; i < count; i++) {
        size_t elements = parts[i].iov_len >> run->exponent;
        task->step->wire->encode(encoded + length, parts[i].iov_base, elements);
        length += elements << task->exponent;
    }
    link->lends = false;
    link->batch_bytes = run->bytes;
    return link_send(link, &(struct iovec){encoded + sent, length - sent}, 1);
}

static ssize_t move_receive(const struct task *task, struct link *link, size_t open)
{
    struct iovec parts[PARTS_PER_CALL];
    size_t length = smaller(open, moves_long(task, link) ? LONG_CHUNK : CHUNK);
    int count =
        vector_parts(&task->run->collective->output, position_of(task), length, parts, PARTS_PER_CALL);
    return link_receive(link, parts, count);
}

/* Shows up to `open` bytes of whole elements that were received; returns how many, or -1: the link is broken.
 */
static ssize_t view_elements(const struct task *task, struct link *link, size_t open, const char **received)
{
    const void *data;
    ssize_t viewed = link->operations->view(link, &data, smaller(open, CHUNK));
    *received = viewed > 0 ? data : NULL;
    return viewed < 0 ? -1 : viewed >> task->exponent << task->exponent;
}

static ssize_t move_receive_encoded(const struct task *task, struct link *link, size_t open)
{
    struct iovec parts[PARTS_PER_CALL];
    const struct run *run = task->run;
    const char *received;
    ssize_t length = view_elements(task, link, open, &received);
    if (length <= 0)
        return length;
    int count = vector_parts(&run->collective->output, position_of(task),
                             (size_t)length >> task->exponent << run->exponent, parts, PARTS_PER_CALL);
    size_t taken = 0;
    for (int i = 0; i < count; i++) {
        size_t elements = parts[i].iov_len >> run->exponent;
        task->step->wire->decode(parts[i].iov_base, received + taken, elements);
        taken += elements << task->exponent;
    }
    return link->operations->consume(link, taken) ? (ssize_t)taken : -1;
}

/* Bytes that are contiguous in two vectors. */
struct piece {
    char *to;
    const char *from;
    size_t length;
};

/* Returns the piece at byte `offset` of the output and byte `from` of `other`, at most `length` bytes. */
static struct piece piece_at(const struct vector *output, size_t offset, const struct vector *other,
                             size_t from, size_t length)
{
    struct iovec to = {0}, source = {0};
    vector_parts(output, offset, length, &to, 1);
    vector_parts(other, from, to.iov_len, &source, 1);
    return (struct piece){to.iov_base, source.iov_base, source.iov_len};
}

static void finish(const struct run *run, char *data, size_t length)
{
    scaling_end(&run->scaling, data, length / run->element);
}

static float weight_of(const struct run *run, bool is_sum)
{
    return is_sum ? 1 : run->scaling.weight;
}

/* The lower rank's operand is first, so that two partners which reduce the same two operands get the same
 * bits, also for -0 and NaN. */
static void combine_piece(const struct task *task, const struct piece *piece, const char *received)
{
    const struct run *run = task->run;
    bool received_first = task->step->peer < run->collective->rank;
    const char *a = received_first ? received : piece->from;
    const char *b = received_first ? piece->from : received;
    size_t elements = piece->length / run->element;
    if (run->weigh)
        run->weigh(piece->to, a, b, elements,
                   weight_of(run, received_first ? task->step->received_is_sum : task->step->own_is_sum),
                   weight_of(run, received_first ? task->step->own_is_sum : task->step->received_is_sum));
    else
        run->combine(piece->to, a, b, elements);
    if (task->step->last && run->finishes)
        finish(run, piece->to, piece->length);
}

/* Does the same with non-temporal stores, which combine_piece can't use: it may process twice what it stores.
 */
static void combine_nontemporal(const struct task *task, const struct piece *piece, const char *received)
{
    _Alignas(64) char sum[PIECE];
    for (size_t at = 0; at < piece->length; at += PIECE) {
        size_t length = smaller(piece->length - at, PIECE);
        combine_piece(task, &(struct piece){sum, piece->from + at, length}, received + at);
        nontemporal_copy(piece->to + at, sum, length);
    }
}

static void reduce_piece(const struct task *task, const struct piece *piece, const char *received,
                         struct stores *stores)
{
    struct store_transfer transfer = stores_begin(stores, piece->length);
    (transfer.way == STORE_NONTEMPORAL ? combine_nontemporal : combine_piece)(task, piece, received);
    stores_end(stores, &transfer, piece->length);
}

static void reduce_encoded(const struct task *task, const struct piece *piece, const char *received,
                           struct stores *stores)
{
    _Alignas(64) char decoded[PIECE];
    task->step->wire->decode(decoded, received, piece->length >> task->run->exponent);
    reduce_piece(task, piece, decoded, stores);
}

static ssize_t move_reduce(const struct task *task, struct link *link, size_t open)
{
    const struct step *step = task->step;
    const struct run *run = task->run;
    const char *received;
    ssize_t viewed = view_elements(task, link, open, &received);
    if (viewed <= 0)
        return viewed;
    size_t limit = step->wire || (step->last && run->finishes) ? PIECE : CHUNK;
    size_t start = position_of(task), length = (size_t)viewed >> task->exponent << run->exponent;
    for (size_t at = 0; at < length;) {
        struct piece piece = piece_at(&run->collective->output, start + at, buffer_of(task), start + at,
                                      smaller(length - at, limit));
        if (step->wire)
            reduce_encoded(task, &piece, received + (at >> run->exponent << task->exponent), link->storing);
        else
            reduce_piece(task, &piece, received + at, link->storing);
        at += piece.length;
    }
    return link->operations->consume(link, (size_t)viewed) ? viewed : -1;
}

static void copy_piece(const struct task *task, const struct piece *piece)
{
    const struct run *run = task->run;
    const struct collective *collective = run->collective;
    bool streams = !operation_reduces(collective->operation) && collective->output.length >= STREAM_LEAST;
    if (run->prescales)
        reduce_scale(collective->dtype, piece->to, piece->from, piece->length / run->element,
                     collective->prescale, 1);
    else if (piece->to != piece->from && streams)
        nontemporal_copy(piece->to, piece->from, piece->length);
    else if (piece->to != piece->from)
        memcpy(piece->to, piece->from, piece->length);
    if (task->step->last && run->normalizes)
        run->combine(piece->to, piece->to, piece->to, piece->length);
    if (task->step->last && run->finishes)
        finish(run, piece->to, piece->length);
}

static ssize_t move_copy(const struct task *task, size_t open)
{
    const struct step *step = task->step;
    const struct collective *collective = task->run->collective;
    size_t length = smaller(open, CHUNK);
    size_t limit = step->last && task->run->finishes ? PIECE : CHUNK;
    for (size_t at = 0; at < length;) {
        size_t from = (step->from << task->run->exponent) + task->done;
        struct piece piece = piece_at(&collective->output, position_of(task) + at, &collective->input,
                                      from + at, smaller(length - at, limit));
        copy_piece(task, &piece);
        at += piece.length;
    }
    return (ssize_t)length;
}

/* Chunks are the same in every run, whatever the order of arrival: sums that an algorithm accumulates over
 * chunks are reproducible. */
static ssize_t move_compute(const struct task *task, size_t open)
{
    struct collective *collective = task->run->collective;
    size_t length = smaller(open, CHUNK);
    collective->algorithm->compute(collective, task->step, task->done >> task->exponent,
                                   length >> task->exponent);
    return (ssize_t)length;
}

ssize_t task_move(const struct task *task, struct link *link, size_t open)
{
    switch (task->step->kind) {
    case STEP_SEND:
        return (task->step->wire ? move_send_encoded : move_send)(task, link, open);
    case STEP_RECEIVE:
        return (task->step->wire ? move_receive_encoded : move_receive)(task, link, open);
    case STEP_REDUCE:
        return move_reduce(task, link, open);
    case STEP_COPY:
        return move_copy(task, open);
    case STEP_COMPUTE:
        return move_compute(task, open);
    }
    return 0;
}
