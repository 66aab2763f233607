/* fuzz_coordinator.c - any bytes as messages to a coordinator that is the root, an inner node, or a leaf.
 *
 * First byte: which of them. Then commands: 0-2: a message from the parent or a child (u16 length, bytes);
 * others: submit, flush, finish a batch, leave, lose a neighbour. The last two requests have rows. Nothing
 * may crash, and every request must end once the coordinator fails. */
#include "base/status.h"
#include "base/wire.h"
#include "coordinate/coordinator.h"

#include <stdlib.h>
#include <string.h>

#define REQUESTS 6
#define RANKS    7

struct subject {
    struct coordinator *coordinator;
    struct topology topology;
    struct pending requests[REQUESTS];
    bool inside[REQUESTS];
    uint64_t running[64];
    size_t running_count;
};

static void on_send(void *owner, int rank, const uint8_t *bytes, size_t length)
{
    (void)owner, (void)bytes;
    if (rank < 0 || length == 0)
        abort();
}

static void on_flood(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    (void)owner, (void)except, (void)bytes, (void)fatal;
    if (length == 0)
        abort();
}

static void on_silent(void *owner, const struct silence *silence, hvd_status *cause)
{
    (void)owner;
    if (silence->lost.count == 0 && silence->pair_count == 0)
        abort();
    *cause = (hvd_status){.code = HVD_TIMED_OUT, .text = "silent"};
}

static void take(struct subject *subject, const struct pending *request)
{
    size_t index = (size_t)(request - subject->requests);
    if (index >= REQUESTS || !subject->inside[index])
        abort();
    subject->inside[index] = false;
}

/* Every byte, for a sanitizer. */
static void on_contribute(void *owner, const struct pending *request, uint8_t *data)
{
    (void)owner;
    if (!request->eager_bytes)
        abort();
    memset(data, 1, request->eager_bytes);
}

static uint64_t on_rows(void *owner, const struct pending *request, int index)
{
    (void)owner, (void)request;
    return (uint64_t)index + 1;
}

static void on_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other)
{
    (void)owner;
    for (uint64_t i = 0; i < what->bytes; i++)
        sum[i] += other[i];
}

static void on_run(void *owner, const struct batch *batch)
{
    struct subject *subject = owner;
    if (batch->result) {
        uint8_t data[64];
        memcpy(data, batch->result, batch->requests[0]->eager_bytes);
        take(subject, batch->requests[0]);
        return;
    }
    for (int i = 0; i < batch->count; i++)
        take(subject, batch->requests[i]);
    const struct runs *rows = batch->members[0].rows;
    bool exchanges = batch->requests[0] == &subject->requests[REQUESTS - 1];
    if (rows && !runs_check(rows->bytes, rows->length, exchanges ? RANKS * RANKS : 2 * RANKS))
        abort();
    if (subject->running_count < 64)
        subject->running[subject->running_count++] = batch->sequence;
}

static void on_finish(void *owner, struct pending *request, const hvd_status *status)
{
    take(owner, request);
    if (status->code == HVD_OK)
        abort();
}

static struct choice on_choose(void *owner, const struct signature_summary *what, uint64_t size,
                               bool rows_unknown)
{
    (void)owner;
    return (struct choice){.algorithm = (uint8_t)(what->operation + size + rows_unknown)};
}

static void on_closed(void *owner)
{
    (void)owner;
}

static void on_joined(void *owner, struct pending *request, int last_rank)
{
    (void)owner, (void)request, (void)last_rank;
}

static void open_subject(struct subject *subject, int rank)
{
    static const int hosts[RANKS] = {0, 0, 1, 1, 1, 2, 3};
    static const char *const names[REQUESTS] = {"a", "b", "allreduce.c", "d", "e", "f"};
    struct coordinator_config config = {.fusion_threshold = 64,
                                        .cache_capacity = 2,
                                        .eager_threshold = 24,
                                        .output = {.owner = subject,
                                                   .send = on_send,
                                                   .flood = on_flood,
                                                   .silent = on_silent,
                                                   .contribute = on_contribute,
                                                   .combine = on_combine,
                                                   .rows = on_rows,
                                                   .run = on_run,
                                                   .finish = on_finish,
                                                   .joined = on_joined,
                                                   .choose = on_choose,
                                                   .closed = on_closed}};
    if (topology_init(&subject->topology, hosts, RANKS, NULL) ||
        tree_node_init(&config.tree, &subject->topology, rank, 2, NULL) ||
        coordinator_create(&config, &subject->coordinator, NULL))
        abort();
    for (int i = 0; i < REQUESTS; i++) {
        int64_t shape[] = {i + 1};
        hvd_tensor tensor = {shape, shape, 1, HVD_FLOAT32, HVD_CPU, 0}, tensors[] = {tensor, tensor};
        hvd_request request = {.struct_size = sizeof request, .count = 1, .inputs = tensors};
        if (i == REQUESTS - 2) {
            request.operation = HVD_ALLGATHER;
            request.count = 2;
        } else if (i == REQUESTS - 1) {
            request.operation = HVD_ALLTOALL;
        }
        subject->requests[i].name = names[i];
        uint32_t length;
        if (signature_measure(&request, &length, NULL))
            abort();
        subject->requests[i].signature = signature_encode(&request, NULL, malloc(length), length);
    }
}

static void submit(struct subject *subject, int index)
{
    bool inside = subject->inside[index];
    hvd_status status;
    subject->inside[index] = true;
    hvd_code code = coordinator_submit(subject->coordinator, &subject->requests[index], 1, &status);
    if (inside && !code)
        abort();
    if (code)
        subject->inside[index] = inside;
}

static void command(struct subject *subject, uint8_t verb, struct wire_reader *reader)
{
    static const int neighbours[] = {0, 2, 3};
    hvd_status cause = {.code = HVD_PEER_LOST, .text = "lost"};
    if (verb < 3) {
        size_t length = wire_get_u16(reader);
        size_t left = reader->length - reader->position;
        length = length < left ? length : left;
        /* Its own block, so that a sanitizer sees the end. */
        uint8_t *message = malloc(length + 1);
        const uint8_t *at = wire_get_raw(reader, length);
        if (at && length)
            memcpy(message, at, length);
        coordinator_receive(subject->coordinator, neighbours[verb], message, length, 1);
        free(message);
    } else if (verb < 7) {
        submit(subject, verb - 3);
    } else if (verb == 7) {
        coordinator_flush(subject->coordinator, 1);
    } else if (verb == 8 && subject->running_count) {
        coordinator_batch_done(subject->coordinator, subject->running[--subject->running_count]);
    } else if (verb == 9) {
        coordinator_leave(subject->coordinator);
    } else if (verb == 10) {
        coordinator_abort(subject->coordinator, neighbours[wire_get_u8(reader) % 3], &cause, 1);
    } else if (verb > 10) {
        submit(subject, verb - 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const int ranks[] = {0, 2, 3, 1};
    struct subject subject = {0};
    struct wire_reader reader = wire_reader_of(bytes, length);
    open_subject(&subject, ranks[wire_get_u8(&reader) % 4]);
    while (!reader.failed && reader.position < reader.length)
        command(&subject, wire_get_u8(&reader) % 13, &reader);
    hvd_status cause = {.code = HVD_SYSTEM, .text = "the end"};
    coordinator_abort(subject.coordinator, -1, &cause, 1);
    int left = 0;
    for (int i = 0; i < REQUESTS; i++)
        left += subject.inside[i];
    if (left != coordinator_pending_count(subject.coordinator) ||
        (left && coordinator_health(subject.coordinator, NULL) != HVD_OK))
        abort();
    coordinator_destroy(subject.coordinator);
    topology_free(&subject.topology);
    for (int i = 0; i < REQUESTS; i++)
        free(subject.requests[i].signature.bytes);
    return 0;
}
