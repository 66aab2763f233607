/* backlog.c - see backlog.h. Every record lies in one piece behind its length; where the memory's end is too
 * near, a length of 0 sends the reader to the start. */
#include "watch/backlog.h"

#include <stdlib.h>

#define HEAD sizeof(uint64_t)

bool backlog_init(struct backlog *backlog, size_t size)
{
    *backlog = (struct backlog){.memory = malloc(size), .size = size};
    return backlog->memory;
}

void backlog_fini(struct backlog *backlog)
{
    free(backlog->memory);
    backlog->memory = NULL;
}

static uint64_t *head_at(const struct backlog *backlog, uint64_t position)
{
    return (uint64_t *)(void *)(backlog->memory + (position & (backlog->size - 1)));
}

static uint64_t bytes_to_end(const struct backlog *backlog, uint64_t position)
{
    return backlog->size - (position & (backlog->size - 1));
}

/* Where a record of so many bytes goes when it is written at `position`. */
static uint64_t place_for(const struct backlog *backlog, uint64_t position, size_t whole)
{
    uint64_t left = bytes_to_end(backlog, position);
    return left < whole ? position + left : position;
}

void *backlog_reserve(struct backlog *backlog, size_t length)
{
    size_t whole = HEAD + (length + HEAD - 1) / HEAD * HEAD;
    uint64_t written = atomic_load_explicit(&backlog->written, memory_order_relaxed);
    uint64_t place = place_for(backlog, written, whole);
    uint64_t used = place - atomic_load_explicit(&backlog->read, memory_order_acquire);
    if (whole > backlog->size || used + whole > backlog->size) {
        atomic_fetch_add_explicit(&backlog->dropped, 1, memory_order_relaxed);
        return NULL;
    }
    if (place != written)
        *head_at(backlog, written) = 0;
    *head_at(backlog, place) = whole;
    return head_at(backlog, place) + 1;
}

void backlog_commit(struct backlog *backlog)
{
    uint64_t written = atomic_load_explicit(&backlog->written, memory_order_relaxed);
    if (*head_at(backlog, written) == 0)
        written += bytes_to_end(backlog, written);
    atomic_store(&backlog->written, written + *head_at(backlog, written));
}

bool backlog_is_half_full(const struct backlog *backlog)
{
    return atomic_load_explicit(&backlog->written, memory_order_relaxed) -
               atomic_load_explicit(&backlog->read, memory_order_relaxed) >
           backlog->size / 2;
}

const void *backlog_first(struct backlog *backlog)
{
    uint64_t read = atomic_load_explicit(&backlog->read, memory_order_relaxed);
    if (read == atomic_load(&backlog->written))
        return NULL;
    if (*head_at(backlog, read) == 0) {
        read += bytes_to_end(backlog, read);
        atomic_store_explicit(&backlog->read, read, memory_order_release);
    }
    return head_at(backlog, read) + 1;
}

void backlog_drop(struct backlog *backlog)
{
    uint64_t read = atomic_load_explicit(&backlog->read, memory_order_relaxed);
    atomic_store_explicit(&backlog->read, read + *head_at(backlog, read), memory_order_release);
}
