/* arena.c - an arena is a segment with a page for its head in front. Any thread; the arenas of the process
 * are in a list under atfork_lock, in the order of their serial numbers. */
#include "transport/arena.h"

#include "base/platform_memory.h"
#include "base/status.h"
#include "base/thread.h"

#include <fcntl.h>
#include <stdlib.h>

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
