/* fuzz_memory.c - any bytes in memory that other processes of this host write as well: the ring of a link, an
 * arena, the copy of a state. No access leaves that memory. First byte: which of them, and its size. The
 * others: pieces of what is written there between the calls. */
#include "base/platform_memory.h"
#include "snapshot/host_copy.h"
#include "transport/arena.h"
#include "transport/lending.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AS_READER, AS_WRITER, AS_ARENA, AS_COPY, MODES };
enum { LIMIT = 200, ARENA_BYTES = 3 * 4096, COPY_BYTES = 64 << 10, PIECE = 11 };

static volatile uint8_t sum; /* of what was read, so that it is read */

struct input {
    const uint8_t *bytes;
    size_t length;
};

static uint64_t take(struct input *input, size_t bytes)
{
    uint64_t value = 0;
    bytes = bytes < input->length ? bytes : input->length;
    memcpy(&value, input->bytes, bytes);
    input->bytes += bytes;
    input->length -= bytes;
    return value;
}

/* ---- a ring ----------------------------------------------------------------------------------------------
 */

static struct ring_memory *make_ring(size_t size)
{
    void *memory;
    if (posix_memalign(&memory, RING_LINE, ring_bytes(size)))
        abort();
    memset(memory, 0, ring_bytes(size));
    return memory;
}

/* What the other side may write; bytes of the stream have no meaning here. */
static void poke(struct ring *ring, struct input *input)
{
    struct ring_memory *memory = ring->memory;
    unsigned place = (unsigned)take(input, 1);
    uint64_t value = take(input, sizeof value);
    struct ring_slot *slot = &memory->slots[place / 8 % RING_SLOTS];
    switch (place % 8) {
    case 0:
        atomic_store(&memory->head, value);
        break;
    case 1:
        atomic_store(&memory->tail, value);
        break;
    case 2:
        atomic_store(&slot->arena, value);
        break;
    case 3:
        atomic_store(&slot->offset, value);
        break;
    case 4:
        atomic_store(&slot->length, value);
        break;
    case 5:
        atomic_store(&slot->stamp, ring->mine + 1 + value % (2 * ring->size));
        break;
    case 6:
        atomic_store(&memory->head, ring->mine + value % (2 * ring->size));
        break;
    default:
        atomic_store(&memory->tail, ring->mine - value % (2 * ring->size));
    }
}

static void read_ring(struct ring *ring, size_t limit)
{
    struct ring_reference reference;
    const void *bytes;
    if (ring_follow(ring, &reference)) {
        ring_consume(ring, (size_t)reference.length);
        return;
    }
    if (ring_available(ring) > ring->size)
        abort();
    size_t count = ring_view(ring, &bytes, limit);
    if (count > limit)
        abort();
    for (size_t i = 0; i < count; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)bytes)[i]);
    ring_consume(ring, count);
    if (!count)
        ring_end_read(ring);
}

static void write_ring(struct ring *ring, size_t limit)
{
    static const uint8_t bytes[LIMIT];
    const struct ring_reference reference = {1, 0, limit};
    if (ring_room(ring) > ring->size || ring_write(ring, bytes, limit) > limit)
        abort();
    if (limit % 2)
        ring_refer(ring, &reference);
    ring_end_write(ring);
}

static void use_ring(struct input *input, unsigned size, bool reads)
{
    struct ring ring = {.size = (size_t)RING_ALIGNMENT << size % 4};
    ring.memory = make_ring(ring.size);
    while (input->length) {
        unsigned limit = (unsigned)take(input, 1);
        poke(&ring, input);
        if (reads)
            read_ring(&ring, limit % LIMIT);
        else
            write_ring(&ring, limit % LIMIT);
    }
    free(ring.memory);
}

/* ---- memory of another process ----------------------------------------------------------------------------
 */

static int open_memory(size_t size)
{
    int fd = platform_memory_create_growing(size);
    if (fd < 0)
        abort();
    return fd;
}

/* A place of two bytes, a length, and what is written there. */
static void write_pieces(int fd, struct input *input, size_t size)
{
    uint8_t piece[PIECE];
    while (input->length > PIECE) {
        size_t at = (size_t)take(input, 2) % size, count = (size_t)take(input, 1) % PIECE;
        for (size_t i = 0; i < count; i++)
            piece[i] = (uint8_t)take(input, 1);
        if (pwrite(fd, piece, count < size - at ? count : size - at, (off_t)at) < 0)
            abort();
    }
}

static void use_arena(struct input *input, unsigned size)
{
    size_t bytes = size % 2 ? ARENA_BYTES : size;
    int fd = open_memory(bytes);
    struct ring_memory *memory = make_ring(0);
    struct lending lending = {.in = memory, .out = memory};
    struct ring_reference reference = {take(input, 8), take(input, 8), take(input, 8)};
    if (bytes)
        write_pieces(fd, input, bytes);
    lending_accept(&lending, fd);
    close(fd);
    if (size % 4 == 1)
        reference.arena = atomic_load(&memory->granted);
    const uint8_t *at = lending_resolve(&lending, &reference);
    if (at)
        sum = (uint8_t)(at[0] + at[reference.length - 1]);
    lending_tidy(&lending);
    lending_end(&lending);
    free(memory);
}

static void use_copy(struct input *input, unsigned size)
{
    uint8_t memory[LIMIT];
    int64_t version = (int64_t)take(input, 1) - 1;
    size_t offset = (size_t)take(input, 8);
    struct host_copy *made, *copy;
    struct publication_state newest, state = {.version = version,
                                              .bytes = take(input, 8),
                                              .own = take(input, 8),
                                              .shares = (int)take(input, 2)};
    hvd_status status;
    if (host_copy_create(&made, &status))
        abort();
    platform_memory_grow(made->fd, COPY_BYTES + ((size_t)size << 20));
    for (int share = 0; share < state.shares && share < PUBLICATION_SHARES; share++) {
        publication_publish(&made->head->publication, size % 2, share, &state);
        if (size / 2 % 2)
            publication_publish(&made->head->publication, !(size % 2), share, &state);
    }
    write_pieces(made->fd, input, COPY_BYTES);
    if (!host_copy_adopt(made->fd, &copy, &status)) {
        host_copy_read(copy, version, offset % (2 * LIMIT), memory, LIMIT, &status);
        host_copy_read(copy, version, offset, memory, size % LIMIT, &status);
        if (publication_newest(&copy->head->publication, &newest) >= 0 &&
            (newest.shares < 1 || newest.shares > PUBLICATION_SHARES))
            abort();
        host_copy_is_used(copy, NULL, 0);
        publication_clear(&copy->head->publication);
        host_copy_close(copy);
    }
    host_copy_close(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (!length)
        return 0;
    struct input input = {bytes + 1, length - 1};
    unsigned size = bytes[0] / MODES;
    switch (bytes[0] % MODES) {
    case AS_READER:
    case AS_WRITER:
        use_ring(&input, size, bytes[0] % MODES == AS_READER);
        break;
    case AS_ARENA:
        use_arena(&input, size);
        break;
    default:
        use_copy(&input, size);
    }
    return 0;
}
