/* result.c - see result.h. Most of a large result's time would go into page faults, as malloc gives large
 * blocks back to the system at once; so a few are kept for the next results of about their size, and the
 * largest consist of large pages. The slots are exchanged without a lock: a forked child may find them in any
 * state. */
#include "engine/result.h"

#include "base/platform.h"
#include "horovod.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define SLOTS     4
#define SMALLEST  ((size_t)128 << 10) /* below, malloc keeps it */
#define LARGEST   ((size_t)32 << 20)

#define LARGE_PAGE       ((size_t)2 << 20)
#define LARGE_PAGES_FROM (2 * LARGE_PAGE) /* smaller blocks would have few whole ones */

/* Just before the data. */
struct head {
    void *block;
    size_t capacity; /* of the block */
};

static _Atomic(struct head *) slots[SLOTS];
static atomic_uint next_victim;

static struct head *head_of(void *data)
{
    return (struct head *)data - 1;
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Puts it into an empty slot; false when there is none. */
static bool keep(struct head *head)
{
    for (int i = 0; i < SLOTS; i++) {
        struct head *empty = NULL;
        if (atomic_compare_exchange_strong(&slots[i], &empty, head))
            return true;
    }
    return false;
}

static void release(struct head *head)
{
    if (head)
        free(head->block);
}

/* A copy of the head: where the data of the next result begin depends on its number of dimensions, and so
 * does where the head lies. */
static struct head take_kept(size_t bytes)
{
    for (int i = 0; i < SLOTS; i++) {
        struct head *head = atomic_exchange(&slots[i], NULL);
        /* Up to twice what is wanted: larger ones are left for larger results. */
        if (head && head->capacity >= bytes && head->capacity / 2 <= bytes)
            return *head;
        if (head && !keep(head))
            release(head);
    }
    return (struct head){NULL, 0};
}

static void *obtain(size_t capacity)
{
    bool is_large = capacity >= LARGE_PAGES_FROM;
    void *block;
    if (posix_memalign(&block, is_large ? LARGE_PAGE : ALIGNMENT, capacity))
        return NULL;
    if (is_large)
        platform_memory_prefer_large_pages(block, capacity);
    return block;
}

void *result_allocate(const int64_t *shape, int ndim, size_t bytes, const int64_t **kept_shape)
{
    size_t before = round_up(sizeof(struct head) + (size_t)ndim * sizeof(int64_t), ALIGNMENT);
    size_t capacity;
    if (__builtin_add_overflow(before + ALIGNMENT, bytes, &capacity))
        return NULL;
    capacity = round_up(before + bytes, ALIGNMENT);
    struct head head = {NULL, 0};
    if (capacity >= SMALLEST)
        head = take_kept(capacity);
    if (!head.block)
        head = (struct head){obtain(capacity), capacity};
    char *block = head.block;
    if (!block)
        return NULL;
    if (ndim)
        memcpy(block, shape, (size_t)ndim * sizeof *shape);
    *kept_shape = (int64_t *)head.block;
    *head_of(block + before) = head;
    return block + before;
}

void hvd_free(void *data)
{
    if (!data)
        return;
    struct head *head = head_of(data);
    bool keeps = head->capacity >= SMALLEST && head->capacity <= LARGEST;
    /* Where all slots are taken the block takes the place of another one, in turn. */
    if (keeps && !keep(head))
        release(atomic_exchange(&slots[atomic_fetch_add(&next_victim, 1) % SLOTS], head));
    else if (!keeps)
        release(head);
}
