/* lending.c - see lending.h. */
#include "transport/lending.h"

#include "base/platform.h"
#include "base/socket.h"
#include "transport/arena.h"

#include <stdlib.h>

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
    return reference->arena <= atomic_load_explicit(lending->granted, memory_order_acquire);
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
    atomic_store_explicit(lending->grants, borrowed->serial, memory_order_release);
}

static void give_back(struct borrowed **at)
{
    struct borrowed *borrowed = *at;
    *at = borrowed->next;
    segment_release(borrowed->segment);
    free(borrowed);
}

void lending_tidy(struct lending *lending, bool reads)
{
    for (struct borrowed **at = &lending->borrowed; *at && !reads;) {
        if (arena_is_freed((*at)->segment))
            give_back(at);
        else
            at = &(*at)->next;
    }
}

void lending_end(struct lending *lending)
{
    while (lending->borrowed)
        give_back(&lending->borrowed);
}
