/* result.c - the memory of results. A large host result would spend most of its time in page faults, as
 * malloc returns large blocks to the system at once, so a few blocks are kept for later results of about
 * their size. Their slots are exchanged without a lock: a forked child may find them in any state. Any
 * thread. */
#include "engine/result.h"

#include "base/thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define SLOTS     4
#define SMALLEST  ((size_t)128 << 10) /* malloc keeps smaller blocks */
#define LARGEST   ((size_t)32 << 20)

/* ---- on the host: the head is just before the data, the shape at the start of the block --------------- */

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

/* Puts the block into an empty slot; returns false if there is none. */
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
        memory_host.release(head->block);
}

/* Returns a copy of the head: the number of dimensions of the next result determines where its data start,
 * and so where its head is. */
static struct head pop_kept(size_t bytes)
{
    for (int i = 0; i < SLOTS; i++) {
        struct head *head = atomic_exchange(&slots[i], NULL);
        /* A block of up to twice the size is used: larger ones are left for larger results. */
        if (head && head->capacity >= bytes && head->capacity / 2 <= bytes)
            return *head;
        if (head && !keep(head))
            release(head);
    }
    return (struct head){NULL, 0};
}

static void *allocate_on_host(const int64_t *shape, int ndim, size_t bytes, const int64_t **kept_shape)
{
    size_t before = round_up(sizeof(struct head) + (size_t)ndim * sizeof(int64_t), ALIGNMENT);
    size_t capacity;
    if (__builtin_add_overflow(before + ALIGNMENT, bytes, &capacity))
        return NULL;
    capacity = round_up(before + bytes, ALIGNMENT);
    struct head head = {NULL, 0};
    if (capacity >= SMALLEST)
        head = pop_kept(capacity);
    if (!head.block)
        head = (struct head){memory_host.allocate(0, capacity), capacity};
    char *block = head.block;
    if (!block)
        return NULL;
    if (ndim)
        memcpy(block, shape, (size_t)ndim * sizeof *shape);
    *kept_shape = (int64_t *)head.block;
    *head_of(block + before) = head;
    return block + before;
}

static void free_on_host(void *data)
{
    struct head *head = head_of(data);
    bool keeps = head->capacity >= SMALLEST && head->capacity <= LARGEST;
    /* If all slots are taken, the block replaces another one, each in turn. */
    if (keeps && !keep(head))
        release(atomic_exchange(&slots[atomic_fetch_add(&next_victim, 1) % SLOTS], head));
    else if (!keeps)
        release(head);
}

/* ---- on devices: a record for each, under atfork_lock ------------------------------------------------- */

struct record {
    const struct memory_ops *memory;
    void *data;
    struct record *next;
    int64_t shape[];
};

static struct record *records;
static atomic_int record_count; /* while it is 0, no lock is taken */

static void *allocate_on_device(const struct memory_ops *memory, int32_t device_id, const int64_t *shape,
                                int ndim, size_t bytes, const int64_t **kept_shape)
{
    size_t extents = (size_t)ndim * sizeof *shape;
    struct record *record = malloc(sizeof *record + extents);
    void *data = record ? memory->allocate(device_id, bytes) : NULL;
    if (!data) {
        free(record);
        return NULL;
    }
    *record = (struct record){.memory = memory, .data = data};
    if (extents)
        memcpy(record->shape, shape, extents);
    *kept_shape = record->shape;
    atfork_lock();
    record->next = records;
    records = record;
    atfork_unlock();
    atomic_fetch_add(&record_count, 1);
    return data;
}

static struct record *remove_record(const void *data)
{
    atfork_lock();
    struct record **at = &records;
    while (*at && (*at)->data != data)
        at = &(*at)->next;
    struct record *record = *at;
    if (record)
        *at = record->next;
    atfork_unlock();
    return record;
}

void *result_allocate(const struct memory_ops *memory, int32_t device_id, const int64_t *shape, int ndim,
                      size_t bytes, const int64_t **kept_shape)
{
    return memory->host_access ? allocate_on_host(shape, ndim, bytes, kept_shape)
                               : allocate_on_device(memory, device_id, shape, ndim, bytes, kept_shape);
}

void result_free(void *data)
{
    if (!data)
        return;
    struct record *record = atomic_load(&record_count) ? remove_record(data) : NULL;
    if (!record) {
        free_on_host(data);
        return;
    }
    atomic_fetch_sub(&record_count, 1);
    record->memory->release(record->data);
    free(record);
}
