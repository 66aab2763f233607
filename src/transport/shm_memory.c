/* shm_memory.c - segments, arenas, the exchange of both, and direct reads. A segment is the header, then for
 * each local peer its rings, channel by channel. An arena is a segment with a page for its head in front. */
#include "transport/shm_memory.h"

#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/wire.h"
#include "net/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ==== segments
 * =============================================================================================== */

#define CONTROL_RING  ((size_t)16 << 10)
#define SHORT_RING    ((size_t)1 << 20) /* beyond a second-level cache: such a ring is this core's own */
#define LEAST_RING    ((size_t)16 << 10)
#define SEGMENT_LIMIT ((size_t)32 << 20) /* rings become smaller rather than a rank's memory larger */
#define OFFER_CHANNEL 16

#define SMALLER_RINGS "HOROVOD_SHM_RING_BYTES makes it smaller"

/* Segments that this process made, under atfork_lock. */
static struct segment *own_segments;

/* ---- layout ------------------------------------------------------------------------------------------- */

/* Channel 1 carries data without limit, those beyond it a little at a time. */
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

static size_t choose_data_size(int peers, int channels, size_t wanted)
{
    size_t size = RING_ALIGNMENT;
    while (size < wanted)
        size *= 2;
    while (size > LEAST_RING && segment_bytes(peers, channels, size) > SEGMENT_LIMIT)
        size /= 2;
    return size;
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

static void unlist(const struct segment *segment)
{
    struct segment **at = &own_segments;
    while (*at && *at != segment)
        at = &(*at)->next;
    if (*at)
        *at = segment->next;
}

void segment_release(struct segment *segment)
{
    if (!segment)
        return;
    atfork_lock();
    bool last = atomic_fetch_sub(&segment->references, 1) == 1;
    if (last)
        unlist(segment);
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
    bool on_demand = platform_memory_reserve(NULL, 0);
    size_t data_size = choose_data_size(on_demand ? neighbours : peers, channels, wanted);
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

/* This process's own mapping of it, or NULL. A child of fork() has not kept its parent's. */
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

/* ---- reserve --------------------------------------------------------------------------------------- */

#define LEAST_PIECE ((size_t)64 << 10)

/* A power of two; 64 pieces at most. */
static size_t piece_bytes(const struct ring *ring)
{
    size_t piece = ring->size / 64;
    return piece < LEAST_PIECE ? LEAST_PIECE : piece;
}

struct reserve reserve_of(const struct ring *ring)
{
    size_t pieces = ring->size / piece_bytes(ring);
    uint64_t all = pieces >= 64 ? UINT64_MAX : ((uint64_t)1 << (pieces ? pieces : 1)) - 1;
    return (struct reserve){.missing = all, .all = all};
}

static bool reserve_piece(struct reserve *reserve, const struct ring *ring, size_t index)
{
    uint64_t bit = (uint64_t)1 << index;
    size_t piece = piece_bytes(ring);
    if (!(reserve->missing & bit))
        return true;
    if (!platform_memory_reserve(ring->memory->bytes + index * piece,
                                 piece < ring->size ? piece : ring->size))
        return false;
    reserve->missing &= ~bit;
    return true;
}

bool reserve_next(struct reserve *reserve, const struct ring *ring, size_t length)
{
    size_t mask = ring->size - 1, piece = piece_bytes(ring);
    size_t left = length < ring->size ? length : ring->size;
    for (uint64_t at = ring->mine; reserve->missing && left;) {
        size_t n = piece - (size_t)(at & (piece - 1));
        if (!reserve_piece(reserve, ring, (size_t)(at & mask) / piece))
            return false;
        n = n < left ? n : left;
        at += n;
        left -= n;
    }
    return true;
}

bool reserve_return(struct reserve *reserve, struct ring *ring)
{
    if (!reserve_is_used(reserve))
        return true;
    uint64_t written = atomic_load_explicit(&ring->memory->head, memory_order_relaxed);
    ring_room(ring);
    if ((int64_t)(written - ring->theirs) > 0)
        return false;
    if (platform_memory_return(ring->memory->bytes, ring->size))
        reserve->missing = reserve->all;
    return true;
}

/* ==== arenas
 * ================================================================================================= */

/* A child of fork() gets a private mapping: what it writes stays its own, and pages that it has not written
 * still follow the parent's. */

#define HEAD_BYTES ((size_t)4096)

struct arena_memory {
    struct segment_memory segment;
    uint64_t serial;
    atomic_bool freed;
};

struct arena {
    struct segment *segment;
    uint64_t serial;
    bool inherited; /* in a child: its writes are not shared */
    struct atfork_handler watch;
    struct arena *next;
};

/* Ascending by serial, under atfork_lock. */
static struct arena *arenas;
static uint64_t last_serial;
static atomic_int count; /* without arenas no lock is taken */

static struct arena_memory *head_of(const struct segment *segment)
{
    return (struct arena_memory *)segment->memory;
}

static char *data_of(const struct arena *arena)
{
    return (char *)arena->segment->memory + HEAD_BYTES;
}

/* ---- what ranks see ----------------------------------------------------------------------------------- */

bool arena_find(const void *data, size_t length, struct ring_reference *reference)
{
    if (!atomic_load_explicit(&count, memory_order_relaxed))
        return false;
    atfork_lock();
    const struct arena *at = arenas;
    for (; at; at = at->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)at->segment->memory;
        if (offset < at->segment->bytes && length <= at->segment->bytes - offset) {
            *reference = (struct ring_reference){at->serial, offset, length};
            break;
        }
    }
    bool found = at && !at->inherited;
    atfork_unlock();
    return found;
}

int arena_descriptor(uint64_t after, uint64_t *serial)
{
    int fd = -1;
    atfork_lock();
    const struct arena *at = arenas;
    while (at && (at->serial <= after || at->inherited))
        at = at->next;
    if (at) {
        *serial = at->serial;
        fd = fcntl(at->segment->fd, F_DUPFD_CLOEXEC, 0);
    }
    atfork_unlock();
    return fd;
}

uint64_t arena_serial(const struct segment *segment)
{
    return segment->bytes < HEAD_BYTES ? 0 : head_of(segment)->serial;
}

bool arena_is_freed(const struct segment *segment)
{
    return atomic_load_explicit(&head_of(segment)->freed, memory_order_relaxed);
}

/* ---- life --------------------------------------------------------------------------------------------- */

static void inherit_in_child(void *owner)
{
    struct arena *arena = owner;
    arena->inherited = true;
    platform_memory_keep_writes(arena->segment->memory, arena->segment->bytes, arena->segment->fd);
}

static void enlist(struct arena *arena)
{
    atfork_lock();
    arena->serial = ++last_serial;
    head_of(arena->segment)->serial = arena->serial;
    struct arena **at = &arenas;
    while (*at)
        at = &(*at)->next;
    *at = arena;
    atomic_fetch_add(&count, 1);
    atfork_unlock();
}

hvd_code hvd_shared_alloc(size_t bytes, void **memory, hvd_status *status)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena || bytes > SIZE_MAX / 2) {
        free(arena);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for %zu bytes of shared memory", bytes);
    }
    hvd_code code = segment_allocate(HEAD_BYTES + bytes, true, "ask for less, or raise the limit",
                                     &arena->segment, status);
    if (code) {
        free(arena);
        return code;
    }
    platform_memory_inherit(arena->segment->memory, arena->segment->bytes);
    arena->watch = (struct atfork_handler){.in_child = inherit_in_child, .owner = arena};
    atfork_add(&arena->watch);
    enlist(arena);
    *memory = data_of(arena);
    return status_ok(status);
}

void hvd_shared_free(void *memory)
{
    atfork_lock();
    struct arena **at = &arenas;
    while (*at && data_of(*at) != memory)
        at = &(*at)->next;
    struct arena *arena = *at;
    if (arena)
        *at = arena->next;
    atfork_unlock();
    if (!arena)
        return;
    atomic_fetch_sub(&count, 1);
    atfork_remove(&arena->watch);
    atomic_store(&head_of(arena->segment)->freed, true);
    segment_release(arena->segment);
    free(arena);
}

/* ==== the exchange of segments
 * =============================================================================== */

/* A descriptor may come with any of the bytes. */
static ssize_t read_with_fd(struct stream *stream, void *bytes, size_t length)
{
    struct sharing *sharing = (struct sharing *)stream;
    int came;
    ssize_t n = platform_receive_with_fd(stream->fd, bytes, length, &came);
    if (came >= 0) {
        socket_close(&sharing->fd_in);
        sharing->fd_in = came;
    }
    errno = came == PLATFORM_FD_LOST ? EMFILE : errno;
    return came == PLATFORM_FD_LOST ? -1 : n;
}

/* The descriptor goes with the first. */
static ssize_t write_with_fd(struct stream *stream, const void *bytes, size_t length)
{
    struct sharing *sharing = (struct sharing *)stream;
    ssize_t n = platform_send_with_fd(stream->fd, bytes, length, sharing->fd_out);
    if (n > 0)
        sharing->fd_out = -1;
    return n;
}

struct sharing *sharing_create(const struct segment *own, int index, int channels)
{
    static const struct stream_io io = {read_with_fd, write_with_fd};
    size_t bytes = segment_offer_bytes(channels);
    struct sharing *sharing = calloc(1, sizeof *sharing);
    if (!sharing)
        return NULL;
    struct wire_writer *out = &sharing->stream.out;
    sharing->stream.io = &io;
    sharing->channels = channels;
    sharing->fd_out = own ? own->fd : -1;
    sharing->fd_in = -1;
    sharing->rings = calloc((size_t)channels, sizeof *sharing->rings);
    if (!sharing->rings || !wire_reserve(out, bytes)) {
        sharing_free(sharing);
        return NULL;
    }
    memset(out->bytes, 0, bytes); /* an offer of nothing */
    if (own)
        segment_offer(own, index, out->bytes);
    out->length = bytes;
    return sharing;
}

void sharing_free(struct sharing *sharing)
{
    socket_close(&sharing->fd_in);
    stream_free(&sharing->stream);
    free(sharing->rings);
    segment_release(sharing->segment);
    free(sharing);
}

hvd_code sharing_advance(struct sharing *sharing, int socket, hvd_status *status)
{
    struct stream *stream = &sharing->stream;
    size_t offer = segment_offer_bytes(sharing->channels);
    stream->fd = socket;
    enum stream_outcome outcome = stream_write(stream);
    if (!outcome)
        outcome = stream_fill(stream, offer);
    if (!outcome && !sharing->judged) {
        sharing->segment =
            segment_accept(stream->in.bytes, sharing->fd_in, sharing->rings, sharing->channels);
        sharing->judged = true;
        wire_put_u8(&stream->out, sharing->segment != NULL);
        outcome = stream_write(stream);
    }
    if (!outcome)
        outcome = stream_fill(stream, offer + 1);
    if (outcome == STREAM_AGAIN)
        return HVD_IN_PROGRESS;
    if (outcome == STREAM_NO_MEMORY)
        return status_no_memory(status);
    if (outcome == STREAM_FAILED && errno == EMFILE)
        return status_set_errno(status, EMFILE, "can't take the memory that a rank of this host shares");
    if (outcome)
        return status_set(status, HVD_UNSUPPORTED, "the connection ended while memory was being shared");
    if (sharing->segment && stream->in.bytes[offer] == 1)
        return HVD_OK;
    return status_set(status, HVD_UNSUPPORTED, "%s can't map the other's memory",
                      sharing->segment ? "it" : "this rank");
}

/* ==== lending
 * ================================================================================================ */

struct borrowed {
    struct segment *segment;
    uint64_t serial;
    struct borrowed *next;
};

/* ---- the own arenas ----------------------------------------------------------------------------------- */

/* In the order of their serials. What does not pass now passes with a later message. */
static void offer(struct lending *lending, int doorbell)
{
    uint64_t serial;
    for (int fd; (fd = arena_descriptor(lending->offered, &serial)) >= 0; lending->offered = serial) {
        const char byte = LENDING_OFFER;
        ssize_t n = platform_send_with_fd(doorbell, &byte, 1, fd);
        socket_close(&fd);
        if (n <= 0)
            return;
    }
}

bool lending_refer(struct lending *lending, int doorbell, const struct iovec *part,
                   struct ring_reference *reference)
{
    if (!arena_find(part->iov_base, part->iov_len, reference))
        return false;
    if (reference->arena > lending->offered)
        offer(lending, doorbell);
    return reference->arena <= atomic_load_explicit(&lending->out->granted, memory_order_acquire);
}

/* ---- the peer's --------------------------------------------------------------------------------------- */

const uint8_t *lending_resolve(const struct lending *lending, const struct ring_reference *reference)
{
    const struct borrowed *at = lending->borrowed;
    while (at && at->serial != reference->arena)
        at = at->next;
    if (!at || !reference->length || reference->offset > at->segment->bytes ||
        reference->length > at->segment->bytes - reference->offset)
        return NULL;
    return (const uint8_t *)at->segment->memory + reference->offset;
}

void lending_accept(struct lending *lending, int fd)
{
    struct borrowed *borrowed = calloc(1, sizeof *borrowed);
    if (borrowed)
        borrowed->segment = segment_map(fd);
    lending->refuses |= !borrowed || !borrowed->segment || !arena_serial(borrowed->segment);
    if (lending->refuses) {
        segment_release(borrowed ? borrowed->segment : NULL);
        free(borrowed);
        return;
    }
    borrowed->serial = arena_serial(borrowed->segment);
    borrowed->next = lending->borrowed;
    lending->borrowed = borrowed;
    atomic_store_explicit(&lending->in->granted, borrowed->serial, memory_order_release);
}

static void give_back(struct borrowed **at)
{
    struct borrowed *borrowed = *at;
    *at = borrowed->next;
    segment_release(borrowed->segment);
    free(borrowed);
}

void lending_tidy(struct lending *lending)
{
    for (struct borrowed **at = &lending->borrowed; *at && !lending->readers;) {
        if (arena_is_freed((*at)->segment))
            give_back(at);
        else
            at = &(*at)->next;
    }
}

/* ---- direct reads ------------------------------------------------------------------------------------- */

static void ask_to_probe(struct lending *lending, int doorbell)
{
    memcpy(lending->token, lending->own_id, sizeof lending->token);
    atomic_store_explicit(&lending->out->probe, (uintptr_t)lending->token, memory_order_release);
    const char byte = LENDING_PROBE;
    lending->probed = send(doorbell, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

/* The kernel reads no memory of devices, such as what a GPU's driver gave. One page represents its region. */
static bool page_is_readable(struct lending *lending, uintptr_t address)
{
    char byte;
    uintptr_t region = address / LENDING_REGION;
    uintptr_t *known = &lending->readable[region % LENDING_REGIONS];
    if (*known != region && platform_memory_read(getpid(), &byte, address, 1) == 1)
        *known = region;
    return *known == region;
}

bool lending_is_readable(struct lending *lending, int doorbell, const void *data, size_t length)
{
    if (!lending->probed)
        ask_to_probe(lending, doorbell);
    return atomic_load_explicit(&lending->out->access, memory_order_acquire) == RING_ACCESS_GRANTED &&
           page_is_readable(lending, (uintptr_t)data) &&
           page_is_readable(lending, (uintptr_t)data + length - 1);
}

static bool can_read(struct lending *lending, int doorbell)
{
    uint8_t token[SEGMENT_ID_BYTES];
    uint64_t address = atomic_load_explicit(&lending->in->probe, memory_order_acquire);
    lending->process = platform_peer_process(doorbell);
    errno = ESRCH; /* of a process that can't be seen */
    if (!lending->process || lending_read(lending, token, address, sizeof token) != (ssize_t)sizeof token)
        return false;
    errno = EBADMSG;
    return memcmp(token, lending->id, sizeof token) == 0;
}

void lending_probe(struct lending *lending, int rank, int doorbell)
{
    if (!lending->scratch)
        lending->scratch = aligned_alloc(RING_ALIGNMENT, LENDING_SCRATCH);
    bool granted = lending->scratch && can_read(lending, doorbell);
    if (!granted)
        log_debug(rank, "can't read memory of process %ld directly: %s", (long)lending->process,
                  strerror(errno));
    atomic_store_explicit(&lending->in->access, granted ? RING_ACCESS_GRANTED : RING_ACCESS_DENIED,
                          memory_order_release);
}

ssize_t lending_read(const struct lending *lending, void *to, uint64_t address, size_t length)
{
    return platform_memory_read(lending->process, to, address, length);
}

void lending_end(struct lending *lending)
{
    free(lending->scratch);
    lending->scratch = NULL;
    while (lending->borrowed)
        give_back(&lending->borrowed);
}
