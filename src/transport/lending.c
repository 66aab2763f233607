/* lending.c - offers and maps arenas, and probes and makes direct reads. Under the progress lock. Arenas are
 * offered in the order of their serial numbers, so one number says which were. */
#include "transport/lending.h"

#include "base/platform_memory.h"
#include "base/platform_sockets.h"
#include "base/status.h"
#include "net/socket.h"
#include "transport/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct borrowed {
    struct segment *segment;
    uint64_t serial;
    struct borrowed *next;
};

/* ---- the own arenas ----------------------------------------------------------------------------------- */

/* Sends descriptors in the order of the serials. Those that can't be sent now are sent with a later message.
 */
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

/* The kernel reads no memory of devices, such as that of a GPU's driver. One page represents its region. */
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
    if (!lending->probed) {
        const char byte = LENDING_PROBE;
        memcpy(lending->token, lending->own_id, sizeof lending->token);
        atomic_store_explicit(&lending->out->probe, (uintptr_t)lending->token, memory_order_release);
        lending->probed = send(doorbell, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    }
    return atomic_load_explicit(&lending->out->access, memory_order_acquire) == RING_ACCESS_GRANTED &&
           page_is_readable(lending, (uintptr_t)data) &&
           page_is_readable(lending, (uintptr_t)data + length - 1);
}

static bool can_read(struct lending *lending, int doorbell)
{
    uint8_t token[SEGMENT_ID_BYTES];
    uint64_t address = atomic_load_explicit(&lending->in->probe, memory_order_acquire);
    lending->process = platform_peer_process(doorbell);
    errno = ESRCH; /* for a process that is not visible */
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
    if (!granted && !lending->process)
        log_debug(rank, "can't read memory of a process in another PID namespace directly");
    else if (!granted)
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
