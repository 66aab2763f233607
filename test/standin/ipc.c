/* ipc.c - handles by which another process of this machine opens an allocation. As CUDA has it, a handle is
 * that of the whole allocation, the process that made it can't open it, and a second opening returns the same
 * address. Any thread. */
#include "standin/calls.h"
#include "standin/context.h"
#include "standin/memory.h"
#include "standin/stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a handle holds. */
struct ticket {
    char magic[8];
    int pid;
    struct memory_place place; /* in that process */
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "a ticket fits into a handle");

static const char magic[8] = "standin";

struct opened {
    CUipcMemHandle handle;
    uint64_t address;
    int device;
    int times;
    struct opened *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *opened;

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    ENTER(cuIpcGetMemHandle, NEEDS_CONTEXT);
    struct ticket ticket = {.pid = getpid()};
    memcpy(ticket.magic, magic, sizeof magic);
    if (!memory_place(address, &ticket.place))
        return CUDA_INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ticket, sizeof ticket);
    return CUDA_OK;
}

/* Returns 0 if the other process or its memory is gone. */
static uint64_t map_ticket(int device, const struct ticket *ticket)
{
    char path[64];
    struct memory_place place = ticket->place;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", ticket->pid, place.fd);
    place.fd = open(path, O_RDWR | O_CLOEXEC);
    if (place.fd < 0)
        return 0;
    uint64_t address = memory_map(device, &place);
    close(place.fd); /* the mapping keeps the memory */
    return address;
}

/* Opens it once more, or for the first time; NULL: that is not possible. With the lock. */
static struct opened *open_handle(const CUipcMemHandle *handle, const struct ticket *ticket, int device)
{
    struct opened *found = opened;
    while (found && (found->device != device || memcmp(&found->handle, handle, sizeof *handle) != 0))
        found = found->next;
    if (found) {
        found->times++;
        return found;
    }
    uint64_t address = map_ticket(device, ticket);
    found = address ? malloc(sizeof *found) : NULL;
    if (found) {
        *found = (struct opened){*handle, address, device, 1, opened};
        opened = found;
    }
    return found;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags)
{
    ENTER(cuIpcOpenMemHandle_v2, NEEDS_CONTEXT);
    struct ticket ticket;
    memcpy(&ticket, &handle, sizeof ticket);
    if (flags != CUDA_IPC_LAZY_PEER_ACCESS || memcmp(ticket.magic, magic, sizeof magic) != 0)
        return CUDA_INVALID_VALUE;
    if (ticket.pid == getpid())
        return CUDA_INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    const struct opened *found = open_handle(&handle, &ticket, context_current()->device);
    if (found)
        *address = found->address;
    pthread_mutex_unlock(&lock);
    return found ? CUDA_OK : CUDA_INVALID_HANDLE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER(cuIpcCloseMemHandle, NEEDS_CONTEXT);
    int device = context_current()->device;
    stream_finish_device(device);
    pthread_mutex_lock(&lock);
    struct opened **at = &opened;
    while (*at && (*at)->address != address)
        at = &(*at)->next;
    struct opened *closed = *at;
    if (closed && --closed->times == 0) {
        *at = closed->next;
        memory_remove(address, true);
        free(closed);
    }
    pthread_mutex_unlock(&lock);
    return closed ? CUDA_OK : CUDA_INVALID_VALUE;
}
