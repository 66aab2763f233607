/* segment.c - a segment is the header, then for each local peer its rings, channel by channel. Any thread;
 * this process's own segments are in a list under atfork_lock. */
#include "transport/segment.h"

#include "base/platform_memory.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/wire.h"
#include "net/crypto.h"
#include "net/socket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_RING  ((size_t)16 << 10)
#define SHORT_RING    ((size_t)1 << 20) /* beyond a second-level cache: such a ring is this core's own */
#define LEAST_RING    ((size_t)16 << 10)
#define SEGMENT_LIMIT ((size_t)32 << 20) /* rings become smaller rather than a rank's memory larger */
#define OFFER_CHANNEL 16

#define SMALLER_RINGS "HOROVOD_SHM_RING_BYTES makes it smaller"

/* Segments that this process made, under atfork_lock. */
static struct segment *own_segments;

/* ---- layout ------------------------------------------------------------------------------------------- */

/* Channel 1 carries messages of any length, those beyond it short ones. */
static size_t ring_size(int channel, size_t data_size)
{
    if (channel == 0)
        return CONTROL_RING;
    return channel == 1 || data_size < SHORT_RING ? data_size : SHORT_RING;
}

static size_t block_bytes(int channels, size_t data_size)
{
    size_t bytes = 0;
    for (int channel = 0; channel < channels; channel++)
        bytes += ring_bytes(ring_size(channel, data_size));
    return bytes;
}

static size_t segment_bytes(int peers, int channels, size_t data_size)
{
    return sizeof(struct segment_memory) + (size_t)peers * block_bytes(channels, data_size);
}

static size_t ring_offset(const struct segment *segment, int index, int channel)
{
    return segment_bytes(index, segment->channels, segment->data_size) +
           block_bytes(channel, segment->data_size);
}

static struct ring ring_at(const struct segment *segment, size_t offset, size_t size)
{
    return (struct ring){.memory = (struct ring_memory *)((uint8_t *)segment->memory + offset), .size = size};
}

struct ring segment_ring(const struct segment *segment, int index, int channel)
{
    return ring_at(segment, ring_offset(segment, index, channel), ring_size(channel, segment->data_size));
}

/* ---- life --------------------------------------------------------------------------------------------- */

void segment_release(struct segment *segment)
{
    if (!segment)
        return;
    atfork_lock();
    bool last = atomic_fetch_sub(&segment->references, 1) == 1;
    struct segment **at = &own_segments;
    while (last && *at && *at != segment)
        at = &(*at)->next;
    if (last && *at)
        *at = segment->next;
    atfork_unlock();
    if (!last)
        return;
    if (segment->memory)
        platform_memory_unmap(segment->memory, segment->bytes);
    socket_close(&segment->fd);
    free(segment);
}

void segment_close_fd(struct segment *segment)
{
    socket_close(&segment->fd);
}

static struct segment *make(size_t bytes)
{
    struct segment *segment = calloc(1, sizeof *segment);
    if (!segment)
        return NULL;
    segment->bytes = bytes;
    segment->fd = -1;
    atomic_init(&segment->references, 1);
    return segment;
}

static hvd_code no_memory(const struct segment *segment, int error, const char *advice, hvd_status *status)
{
    return status_set_errno(status, error, "can't get %zu KiB of shared memory (%s counts it; %s)",
                            segment->bytes >> 10,
                            error == EFBIG ? "`ulimit -f`" : "a container's memory limit", advice);
}

static hvd_code map_own(struct segment *segment, const char *advice, hvd_status *status)
{
    segment->fd = platform_memory_create(segment->bytes, segment->reserved);
    if (segment->fd >= 0)
        segment->memory = platform_memory_map(segment->fd, segment->bytes);
    if (!segment->memory ||
        (!segment->reserved && !platform_memory_reserve(segment->memory, sizeof *segment->memory)))
        return no_memory(segment, errno, advice, status);
    return crypto_random(segment->memory->id, sizeof segment->memory->id, status);
}

hvd_code segment_allocate(size_t bytes, bool reserved, const char *advice, struct segment **segment,
                          hvd_status *status)
{
    struct segment *made = make(bytes);
    if (!made)
        return status_no_memory(status);
    made->process = getpid();
    made->reserved = reserved || !platform_memory_reserve(NULL, 0);
    hvd_code code = map_own(made, advice, status);
    if (code) {
        segment_release(made);
        return code;
    }
    atfork_lock();
    made->next = own_segments;
    own_segments = made;
    atfork_unlock();
    *segment = made;
    return HVD_OK;
}

hvd_code segment_create(int peers, int neighbours, int channels, size_t wanted, struct segment **segment,
                        hvd_status *status)
{
    int present = platform_memory_reserve(NULL, 0) ? neighbours : peers;
    size_t data_size = RING_ALIGNMENT;
    while (data_size < wanted)
        data_size *= 2;
    while (data_size > LEAST_RING && segment_bytes(present, channels, data_size) > SEGMENT_LIMIT)
        data_size /= 2;
    TRY(segment_allocate(segment_bytes(peers, channels, data_size), false, SMALLER_RINGS, segment, status));
    (*segment)->channels = channels;
    (*segment)->data_size = data_size;
    return HVD_OK;
}

hvd_code segment_reserve(const struct segment *segment, int index, bool whole, hvd_status *status)
{
    bool done = true;
    for (int channel = 0; !segment->reserved && done && channel < segment->channels; channel++) {
        const struct ring ring = segment_ring(segment, index, channel);
        done = platform_memory_reserve(ring.memory, ring_bytes(whole || channel == 0 ? ring.size : 0));
    }
    return done ? HVD_OK : no_memory(segment, errno, SMALLER_RINGS, status);
}

/* Returns this process's own mapping of the segment, or NULL. A child of fork() has not kept its parent's. */
static struct segment *find_own(const struct segment *mapped)
{
    atfork_lock();
    struct segment *at = own_segments;
    while (at && (at->process != getpid() || at->bytes != mapped->bytes ||
                  memcmp(at->memory->id, mapped->memory->id, SEGMENT_ID_BYTES) != 0))
        at = at->next;
    if (at)
        atomic_fetch_add(&at->references, 1);
    atfork_unlock();
    return at;
}

struct segment *segment_map(int fd)
{
    size_t bytes = platform_memory_bytes(fd);
    struct segment *mapped = bytes < sizeof(struct segment_memory) ? NULL : make(bytes);
    if (!mapped)
        return NULL;
    mapped->memory = platform_memory_map(fd, bytes);
    struct segment *own = mapped->memory ? find_own(mapped) : NULL;
    if (mapped->memory && !own)
        return mapped;
    segment_release(mapped);
    return own;
}

/* ---- offers ------------------------------------------------------------------------------------------- */

size_t segment_offer_bytes(int channels)
{
    return (size_t)channels * OFFER_CHANNEL;
}

void segment_offer(const struct segment *segment, int index, uint8_t *offer)
{
    size_t bytes = segment_offer_bytes(segment->channels);
    struct wire_writer writer = {.bytes = offer, .capacity = bytes};
    for (int channel = 0; channel < segment->channels; channel++) {
        wire_put_u64(&writer, ring_offset(segment, index, channel));
        wire_put_u64(&writer, ring_size(channel, segment->data_size));
    }
}

static bool ring_fits(uint64_t offset, uint64_t size, uint64_t bytes)
{
    bool power = size >= RING_ALIGNMENT && (size & (size - 1)) == 0;
    return power && offset % RING_LINE == 0 && offset >= sizeof(struct segment_memory) && offset <= bytes &&
           bytes - offset >= sizeof(struct ring_memory) &&
           bytes - offset - sizeof(struct ring_memory) >= size;
}

struct segment *segment_accept(const uint8_t *offer, int fd, struct ring *rings, int channels)
{
    struct segment *segment = segment_map(fd);
    struct wire_reader reader = wire_reader_of(offer, segment_offer_bytes(channels));
    for (int channel = 0; segment && channel < channels; channel++) {
        uint64_t offset = wire_get_u64(&reader), size = wire_get_u64(&reader);
        if (ring_fits(offset, size, segment->bytes)) {
            rings[channel] = ring_at(segment, offset, size);
        } else {
            segment_release(segment);
            segment = NULL;
        }
    }
    return segment;
}
