/* pinned.c - see pinned.h. Free blocks are in a list, the last used first; when they have too many bytes, the
 * one that was not used for the longest time is given back. */
#include "device/pinned.h"

#include "base/platform_memory.h"
#include "device/cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define HEAD     64 /* bytes before the data of a block, so that these are aligned */
#define SMALLEST ((size_t)64 << 10)

struct block {
    size_t capacity; /* with the head */
    int32_t device_id;
    bool locked; /* otherwise the driver could not, and copies are slower */
    struct block *next;
};
_Static_assert(sizeof(struct block) <= HEAD, "the head holds a block");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t kept; /* bytes of `blocks` */

/* Returns the size of a block for so many bytes: a power of two, or three quarters of one, so that later
 * requests of about this size fit. */
static size_t capacity_for(size_t bytes)
{
    size_t whole = SMALLEST;
    while (whole < bytes + HEAD)
        whole *= 2;
    return whole > SMALLEST && whole / 4 * 3 >= bytes + HEAD ? whole / 4 * 3 : whole;
}

static struct block *take_kept(size_t capacity)
{
    pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at && !((*at)->capacity >= capacity && (*at)->capacity / 2 <= capacity))
        at = &(*at)->next;
    struct block *found = *at;
    if (found) {
        *at = found->next;
        kept -= found->capacity;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Removes the last block of the list while there are more than so many bytes. */
static struct block *remove_surplus(size_t most)
{
    pthread_mutex_lock(&lock);
    struct block **at = &blocks, *found = NULL;
    while (kept > most && *at && (*at)->next)
        at = &(*at)->next;
    if (kept > most && *at) {
        found = *at;
        *at = NULL;
        kept -= found->capacity;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_back(struct block *block)
{
    struct cuda_use use;
    CUresult result = CUDA_OK;
    if (block->locked) {
        if (cuda_enter(&use, block->device_id, NULL))
            return; /* the process is ending, or the GPU has failed */
        result = use.cuda->host_unregister(block);
        cuda_leave(&use);
    }
    if (!result)
        platform_pages_free(block, block->capacity);
}

void *pinned_allocate(int32_t device_id, size_t bytes)
{
    struct cuda_use use;
    size_t capacity = capacity_for(bytes);
    struct block *block = take_kept(capacity);
    if (block)
        return (char *)block + HEAD;
    if (cuda_enter(&use, device_id, NULL))
        return NULL;
    block = platform_pages_alloc(capacity, 1);
    if (block) {
        platform_pages_withhold(block, capacity);
        *block = (struct block){.capacity = capacity, .device_id = device_id};
        block->locked = !use.cuda->host_register(block, capacity, CUDA_HOST_PORTABLE);
    }
    cuda_leave(&use);
    return block ? (char *)block + HEAD : NULL;
}

void pinned_release(void *data)
{
    struct block *block = (struct block *)((char *)data - HEAD);
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    kept += block->capacity;
    pthread_mutex_unlock(&lock);
    while ((block = remove_surplus(PINNED_KEPT)))
        give_back(block);
}

void pinned_trim(void)
{
    struct block *block;
    while ((block = remove_surplus(0)))
        give_back(block);
}

size_t pinned_kept(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes = kept;
    pthread_mutex_unlock(&lock);
    return bytes;
}
