/* fuzz_edge.c - any bytes as the stream of a link, in pieces of any size: the messages that are read must be
 * those that were written, and an impossible length ends the stream. The first byte decides how the pieces
 * are cut. */
#include "engine/edge.h"

#include <stdlib.h>
#include <string.h>

struct source {
    struct link link;
    const uint8_t *bytes;
    size_t length, at;
    unsigned cut;
};

static ssize_t receive(struct link *link, const struct iovec *parts, int count)
{
    struct source *source = (struct source *)link;
    (void)count;
    if (source->at == source->length)
        return -1;
    source->cut = source->cut * 5 + 1;
    size_t n = source->cut % 7;
    n = n < parts[0].iov_len ? n : parts[0].iov_len;
    n = n < source->length - source->at ? n : source->length - source->at;
    memcpy(parts[0].iov_base, source->bytes + source->at, n);
    source->at += n;
    return (ssize_t)n;
}

/* The next message, read straight from the bytes. */
static void check_message(const uint8_t *bytes, size_t *at, const uint8_t *message, size_t length)
{
    while (memcmp(bytes + *at + 1, "\xff\xff\xff", 3) == 0 && bytes[*at] >= 0xfe) /* is anybody there? */
        *at += 4;
    const uint8_t *header = bytes + *at;
    size_t announced = header[0] | (size_t)header[1] << 8 | (size_t)header[2] << 16 | (size_t)header[3] << 24;
    if (announced != length || (length && memcmp(header + 4, message, length) != 0))
        abort();
    *at += 4 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const struct link_operations operations = {.receive = receive};
    struct edge edge, *unsent = NULL;
    size_t checked = 0;
    if (!length)
        return 0;
    struct source source = {.link = {.operations = &operations, .peer = 1},
                            .bytes = bytes + 1,
                            .length = length - 1,
                            .cut = bytes[0]};
    edge_init(&edge, 1, &source.link, &unsent);
    while (!edge.deaf) {
        const uint8_t *message;
        size_t message_length;
        enum edge_event event = edge_next(&edge, &message, &message_length);
        if (event == EDGE_MESSAGE)
            check_message(bytes + 1, &checked, message, message_length);
        if (event == EDGE_GARBAGE && !edge.deaf)
            abort();
    }
    if (edge.stream.out.length > 4) /* questions must not pile up answers */
        abort();
    edge_fini(&edge);
    return 0;
}
