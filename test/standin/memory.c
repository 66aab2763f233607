/* memory.c - see memory.h. Addresses of a device are given out in order and never again, with an empty page
 * behind each allocation, so each use of freed memory or of the bytes behind an allocation is found. */
#include "standin/memory.h"

#include "standin/calls.h"
#include "standin/context.h"
#include "standin/stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANGE          (UINT64_C(1) << 35) /* addresses of a device */
#define PAGE           ((size_t)4096)
#define DEVICE_GARBAGE 0x5a
#define HOST_GARBAGE   0xa5

/* Of a device, or page-locked memory of the host. */
struct allocation {
    uint64_t start;
    size_t bytes;
    bool mapped; /* from another process */
    bool owned;  /* by this library: host memory that it has to free */
    struct allocation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything below except constants */
static struct allocation *allocations, *host_blocks;
static struct {
    uint64_t next; /* offset of the next allocation in the range of the device */
    size_t used;
    int fd; /* constant; the bytes */
} stores[DEVICES_LIMIT];

/* Constants after memory_open. */
static char *addresses, *shadows; /* of device 0; the others follow */
static size_t limit;
static int device_count;

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static void *must_map(void *at, size_t bytes, int access, int flags, int fd, uint64_t offset)
{
    void *mapped = mmap(at, bytes, access, flags | MAP_NORESERVE, fd, (off_t)offset);
    if (mapped == MAP_FAILED) {
        perror("stand-in GPU: mmap");
        abort();
    }
    return mapped;
}

void memory_open(int devices, size_t bytes)
{
    size_t all = RANGE * (size_t)(devices ? devices : 1);
    limit = bytes;
    device_count = devices;
    addresses = must_map(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shadows = must_map(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < devices; i++) {
        stores[i].next = PAGE;
        stores[i].fd = memfd_create("standin-gpu", MFD_CLOEXEC);
        if (stores[i].fd < 0 || ftruncate(stores[i].fd, (off_t)RANGE)) {
            perror("stand-in GPU: memfd");
            abort();
        }
        char *shadow = shadows + RANGE * (size_t)i;
        must_map(shadow, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, stores[i].fd, 0);
        madvise(shadow, RANGE, MADV_DONTDUMP);
    }
}

bool memory_is_device(uint64_t address)
{
    return address - (uint64_t)addresses < RANGE * (uint64_t)device_count;
}

static int device_of(uint64_t address)
{
    return (int)((address - (uint64_t)addresses) / RANGE);
}

static uint64_t offset_of(uint64_t address)
{
    return (address - (uint64_t)addresses) % RANGE;
}

static char *shadow_of(uint64_t address)
{
    return shadows + (address - (uint64_t)addresses);
}

/* Returns the link to the allocation of a list that has this byte; to NULL: none. With the lock. */
static struct allocation **find(struct allocation **list, uint64_t address)
{
    while (*list && address - (*list)->start >= (*list)->bytes)
        list = &(*list)->next;
    return list;
}

static void add(struct allocation **list, struct allocation added)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    if (!allocation)
        abort();
    *allocation = added;
    allocation->next = *list;
    *list = allocation;
}

/* Returns addresses that none had before; 0: out of memory. With the lock. */
static uint64_t take_addresses(int device, size_t bytes)
{
    uint64_t offset = stores[device].next;
    if (bytes > limit || offset + whole_pages(bytes) + PAGE > RANGE)
        return 0;
    stores[device].next += whole_pages(bytes) + PAGE;
    return (uint64_t)addresses + RANGE * (uint64_t)device + offset;
}

struct memory_region memory_region(uint64_t address)
{
    bool is_device = memory_is_device(address);
    struct memory_region region = {.is_host = !is_device};
    pthread_mutex_lock(&lock);
    const struct allocation *found = *find(is_device ? &allocations : &host_blocks, address);
    if (found) {
        region.start = found->start;
        region.end = found->start + found->bytes;
    }
    pthread_mutex_unlock(&lock);
    if (found && is_device) {
        region.distance = shadows - addresses;
        region.device = device_of(address);
    }
    return region;
}

void *memory_reach(uint64_t address, size_t bytes)
{
    if (!memory_is_device(address))
        return (void *)address;
    struct memory_region region = memory_region(address);
    return bytes <= region.end - address && region.end ? shadow_of(address) : NULL;
}

/* ---- memory of a device ------------------------------------------------------------------------------- */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    ENTER(cuMemAlloc_v2, NEEDS_CONTEXT);
    int device = context_current()->device;
    uint64_t start = 0;
    if (!bytes)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (stores[device].used + whole_pages(bytes) <= limit)
        start = take_addresses(device, bytes);
    if (start) {
        stores[device].used += whole_pages(bytes);
        memset(shadow_of(start), DEVICE_GARBAGE, whole_pages(bytes));
        add(&allocations, (struct allocation){.start = start, .bytes = bytes});
    }
    pthread_mutex_unlock(&lock);
    *address = start;
    return start ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

bool memory_remove(uint64_t address, bool mapped)
{
    pthread_mutex_lock(&lock);
    struct allocation **at = find(&allocations, address), *gone = *at;
    bool found = gone && gone->start == address && gone->mapped == mapped;
    if (found) {
        size_t pages = whole_pages(gone->bytes);
        int device = device_of(address);
        *at = gone->next;
        if (mapped) {
            must_map(shadow_of(address), pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        } else {
            stores[device].used -= pages;
            fallocate(stores[device].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)offset_of(address), (off_t)pages);
        }
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* It waits for the device, as the real one does. */
CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER(cuMemFree_v2, NEEDS_CONTEXT);
    if (!address)
        return CUDA_OK;
    if (!memory_is_device(address))
        return CUDA_INVALID_VALUE;
    stream_finish_device(device_of(address));
    return memory_remove(address, false) ? CUDA_OK : CUDA_INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    ENTER(cuMemGetInfo_v2, NEEDS_CONTEXT);
    pthread_mutex_lock(&lock);
    *left = limit - stores[context_current()->device].used;
    pthread_mutex_unlock(&lock);
    *total = limit;
    return CUDA_OK;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    ENTER(cuMemGetAddressRange_v2, NEEDS_CONTEXT);
    struct memory_region region = memory_region(address);
    if (!region.end || region.is_host)
        return CUDA_NOT_FOUND;
    if (base)
        *base = region.start;
    if (bytes)
        *bytes = region.end - region.start;
    return CUDA_OK;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    ENTER(cuPointerGetAttribute, NEEDS_DRIVER);
    struct memory_region region = memory_region(address);
    if (!region.end)
        return CUDA_INVALID_VALUE;
    if ((int)attribute == CUDA_POINTER_MEMORY_TYPE)
        *(unsigned *)value = region.is_host ? CUDA_MEMORY_HOST : CUDA_MEMORY_DEVICE;
    else if ((int)attribute == CUDA_POINTER_DEVICE_ORDINAL)
        *(int *)value = region.device;
    else if ((int)attribute == CUDA_POINTER_CONTEXT)
        *(CUcontext *)value = context_of(region.device);
    else
        return CUDA_NOT_SUPPORTED;
    return CUDA_OK;
}

/* ---- page-locked memory of the host ------------------------------------------------------------------- */

static CUresult pin(void *memory, size_t bytes, bool owned)
{
    uint64_t start = (uint64_t)memory;
    bool known = false;
    pthread_mutex_lock(&lock);
    for (const struct allocation *each = host_blocks; each; each = each->next)
        known |= start < each->start + each->bytes && each->start < start + bytes;
    if (!known)
        add(&host_blocks, (struct allocation){.start = start, .bytes = bytes, .owned = owned});
    pthread_mutex_unlock(&lock);
    return known ? CUDA_ALREADY_REGISTERED : CUDA_OK;
}

/* Waits for all devices first, as the real one does; returns false if there is no such block. */
static bool unpin(void *memory, bool owned)
{
    for (int i = 0; i < device_count; i++)
        stream_finish_device(i);
    pthread_mutex_lock(&lock);
    struct allocation **at = find(&host_blocks, (uint64_t)memory), *gone = *at;
    bool found = gone && gone->start == (uint64_t)memory && gone->owned == owned;
    if (found) {
        *at = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER(cuMemHostAlloc, NEEDS_CONTEXT);
    if (!bytes || flags & ~7U)
        return CUDA_INVALID_VALUE;
    *memory = bytes < RANGE ? aligned_alloc(PAGE, whole_pages(bytes)) : NULL;
    if (!*memory)
        return CUDA_OUT_OF_MEMORY;
    memset(*memory, HOST_GARBAGE, whole_pages(bytes));
    return pin(*memory, bytes, true);
}

CUresult cuMemFreeHost(void *memory)
{
    ENTER(cuMemFreeHost, NEEDS_CONTEXT);
    if (!unpin(memory, true))
        return CUDA_INVALID_VALUE;
    free(memory);
    return CUDA_OK;
}

CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    ENTER(cuMemHostRegister_v2, NEEDS_CONTEXT);
    return memory && bytes && !(flags & ~15U) ? pin(memory, bytes, false) : CUDA_INVALID_VALUE;
}

CUresult cuMemHostUnregister(void *memory)
{
    ENTER(cuMemHostUnregister, NEEDS_CONTEXT);
    return unpin(memory, false) ? CUDA_OK : CUDA_NOT_REGISTERED;
}

/* ---- for ipc.c ---------------------------------------------------------------------------------------- */

bool memory_place(uint64_t address, struct memory_place *place)
{
    if (!memory_is_device(address))
        return false;
    pthread_mutex_lock(&lock);
    const struct allocation *found = *find(&allocations, address);
    bool own = found && !found->mapped;
    if (own)
        *place = (struct memory_place){stores[device_of(address)].fd, offset_of(found->start), found->bytes,
                                       device_of(address)};
    pthread_mutex_unlock(&lock);
    return own;
}

uint64_t memory_map(int device, const struct memory_place *place)
{
    pthread_mutex_lock(&lock);
    uint64_t start = take_addresses(device, place->bytes);
    if (start) {
        must_map(shadow_of(start), whole_pages(place->bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 place->fd, place->offset);
        add(&allocations, (struct allocation){.start = start, .bytes = place->bytes, .mapped = true});
    }
    pthread_mutex_unlock(&lock);
    return start;
}
