/* host_copy.c - the memory is a memfd: a page-aligned head, then piece 0 of buffer 0, piece 0 of buffer 1,
 * piece 1 of buffer 0, and so on. Pages that were not allocated take no memory. */
#include "snapshot/host_copy.h"

#include "base/nontemporal.h"
#include "base/platform_memory.h"
#include "base/platform_process.h"
#include "base/status.h"
#include "net/crypto.h"
#include "net/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES  ((size_t)32 << 10)
#define PIECE_BYTES ((size_t)4 << 20)
/* Changes with the layout of the memory. */
#define FORMAT ((uint64_t)0x48564453 << 32 | 1 << 24 | sizeof(struct host_copy_head))

_Static_assert(sizeof(struct host_copy_head) <= HEAD_BYTES, "the head fits before the buffers");

/* ---- life --------------------------------------------------------------------------------------------- */

static void close_in_child(void *owner)
{
    struct host_copy *copy = owner;
    socket_close(&copy->fd);
}

static struct host_copy *make(int fd)
{
    struct host_copy *copy = calloc(1, sizeof *copy);
    if (!copy)
        return NULL;
    copy->fd = fd;
    copy->head = platform_memory_map_part(fd, 0, HEAD_BYTES);
    if (!copy->head) {
        free(copy);
        return NULL;
    }
    pthread_mutex_init(&copy->lock, NULL);
    copy->watch = (struct atfork_handler){.in_child = close_in_child, .owner = copy};
    atfork_add(&copy->watch);
    return copy;
}

static hvd_code no_memory(int error, size_t bytes, hvd_status *status)
{
    return status_set_errno(status, error,
                            "can't get %zu KiB of shared memory for the copy of the state (%s counts it; "
                            "HOROVOD_ELASTIC_COPIES=0 does without copies)",
                            bytes >> 10, error == EFBIG ? "`ulimit -f`" : "a container's memory limit");
}

hvd_code host_copy_create(struct host_copy **copy, hvd_status *status)
{
    int fd = platform_memory_create_growing(HEAD_BYTES);
    struct host_copy *made = fd < 0 ? NULL : make(fd);
    if (!made) {
        int error = errno;
        socket_close(&fd);
        return no_memory(error, HEAD_BYTES, status);
    }
    made->head->format = FORMAT;
    publication_init(&made->head->publication);
    hvd_code code = crypto_random(made->head->id, sizeof made->head->id, status);
    if (code) {
        host_copy_close(made);
        return code;
    }
    *copy = made;
    return HVD_OK;
}

hvd_code host_copy_open(const struct host_copy_place *place, struct host_copy **copy, hvd_status *status)
{
    int fd = platform_memory_open((pid_t)place->process.id, place->fd);
    struct host_copy *made = fd < 0 ? NULL : make(fd);
    bool same = made && memcmp(made->head->id, place->id, sizeof place->id) == 0;
    if (same) {
        *copy = made;
        return HVD_OK;
    }
    int error = made ? ESTALE : errno;
    if (made)
        host_copy_close(made);
    else
        socket_close(&fd);
    return status_set(status, HVD_UNSUPPORTED,
                      "can't open the copy of the state that process %lld of this host has: %s",
                      (long long)place->process.id, strerror(error));
}

hvd_code host_copy_adopt(int fd, struct host_copy **copy, hvd_status *status)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct host_copy *made = own < 0 ? NULL : make(own);
    if (made && made->head->format == FORMAT) {
        *copy = made;
        return HVD_OK;
    }
    if (made)
        host_copy_close(made);
    else
        socket_close(&own);
    return status_set(status, HVD_INVALID_ARGUMENT, "descriptor %d is not the memory of a snapshot", fd);
}

void host_copy_close(struct host_copy *copy)
{
    if (!copy)
        return;
    atfork_remove(&copy->watch);
    if (copy->data)
        platform_memory_unmap(copy->data, copy->mapped);
    platform_memory_unmap(copy->head, HEAD_BYTES);
    socket_close(&copy->fd);
    pthread_mutex_destroy(&copy->lock);
    free(copy);
}

/* ---- processes ---------------------------------------------------------------------------------------- */

static struct host_copy_process this_process(void)
{
    struct platform_process seen;
    platform_process(getpid(), &seen);
    return (struct host_copy_process){getpid(), seen.start};
}

struct host_copy_place host_copy_place(const struct host_copy *copy)
{
    struct host_copy_place place = {.process = this_process(), .fd = copy->fd};
    memcpy(place.id, copy->head->id, sizeof place.id);
    return place;
}

void host_copy_enter(struct host_copy *copy, int share)
{
    struct host_copy_process own = this_process();
    atomic_store(&copy->head->processes[share].start, own.start);
    atomic_store(&copy->head->processes[share].id, own.id);
}

static bool is_one_of(const struct host_copy_process *process, const struct host_copy_process *processes,
                      int count)
{
    for (int i = 0; i < count; i++)
        if (processes[i].id == process->id && processes[i].start == process->start)
            return true;
    return false;
}

bool host_copy_is_used(const struct host_copy *copy, const struct host_copy_process *processes, int count)
{
    for (int share = 0; share < PUBLICATION_SHARES; share++) {
        struct host_copy_process user = {atomic_load(&copy->head->processes[share].id),
                                         atomic_load(&copy->head->processes[share].start)};
        struct platform_process seen;
        if (user.id && !is_one_of(&user, processes, count) && platform_process((pid_t)user.id, &seen) &&
            seen.start == user.start && !strchr("ZX", seen.state))
            return true;
    }
    return false;
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

static size_t place_of(int buffer, size_t offset)
{
    return (offset / PIECE_BYTES * 2 + (size_t)buffer) * PIECE_BYTES + offset % PIECE_BYTES;
}

static size_t file_bytes(size_t bytes)
{
    return HEAD_BYTES + (bytes + PIECE_BYTES - 1) / PIECE_BYTES * 2 * PIECE_BYTES;
}

/* Maps all of a version of that many bytes, for which the file is long enough. Under the lock. */
static bool map_bytes(struct host_copy *copy, size_t bytes)
{
    size_t wanted = file_bytes(bytes) - HEAD_BYTES;
    if (wanted <= copy->mapped)
        return true;
    void *data = platform_memory_map_part(copy->fd, HEAD_BYTES, wanted);
    if (!data)
        return false;
    if (copy->data)
        platform_memory_unmap(copy->data, copy->mapped);
    copy->data = data;
    copy->mapped = wanted;
    return true;
}

/* Calls `visit` for the pieces of a part of a buffer, until it returns false. Under the lock. */
static bool visit_pieces(struct host_copy *copy, int buffer, size_t from, size_t to,
                         bool (*visit)(struct host_copy *copy, size_t place, size_t bytes, void *argument),
                         void *argument)
{
    while (from < to) {
        size_t length = PIECE_BYTES - from % PIECE_BYTES;
        length = length < to - from ? length : to - from;
        if (!visit(copy, place_of(buffer, from), length, argument))
            return false;
        from += length;
    }
    return true;
}

/* Maps the pages at once as well, which otherwise happens one by one when they are written. */
static bool allocate_piece(struct host_copy *copy, size_t place, size_t bytes, void *unused)
{
    (void)unused;
    return platform_memory_allocate(copy->fd, HEAD_BYTES + place, bytes) &&
           (platform_memory_reserve(copy->data + place, bytes) || errno != ENOMEM);
}

hvd_code host_copy_reserve(struct host_copy *copy, int buffer, size_t bytes, size_t from, size_t to,
                           hvd_status *status)
{
    errno = ENOMEM;
    pthread_mutex_lock(&copy->lock);
    bool done = bytes <= SIZE_MAX / 4 && platform_memory_grow(copy->fd, file_bytes(bytes)) &&
                map_bytes(copy, bytes) && visit_pieces(copy, buffer, from, to, allocate_piece, NULL);
    int error = errno;
    pthread_mutex_unlock(&copy->lock);
    return done ? HVD_OK : no_memory(error, bytes, status);
}

static bool write_piece(struct host_copy *copy, size_t place, size_t bytes, void *argument)
{
    const uint8_t **from = argument;
    nontemporal_copy(copy->data + place, *from, bytes);
    *from += bytes;
    return true;
}

void host_copy_write(struct host_copy *copy, int buffer, size_t offset, const void *memory, size_t bytes)
{
    pthread_mutex_lock(&copy->lock);
    visit_pieces(copy, buffer, offset, offset + bytes, write_piece, &memory);
    pthread_mutex_unlock(&copy->lock);
}

static bool read_piece(struct host_copy *copy, size_t place, size_t bytes, void *argument)
{
    uint8_t **to = argument;
    memcpy(*to, copy->data + place, bytes);
    *to += bytes;
    return true;
}

hvd_code host_copy_read(struct host_copy *copy, int64_t version, size_t offset, void *memory, size_t bytes,
                        hvd_status *status)
{
    struct publication_state state = {.version = PUBLICATION_NONE};
    int buffer = 0;
    while (buffer < 2 &&
           !(publication_read(&copy->head->publication, buffer, &state) && state.version == version))
        buffer++;
    size_t all = state.bytes <= SIZE_MAX / 8 && state.own <= SIZE_MAX / 8 ? state.bytes + state.own : 0;
    if (buffer == 2 || offset > all || bytes > all - offset)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "bytes %zu to %zu of version %lld of the state are not in this host's copy", offset,
                          offset + bytes, (long long)version);
    pthread_mutex_lock(&copy->lock);
    bool mapped = map_bytes(copy, all);
    int error = errno;
    if (mapped)
        visit_pieces(copy, buffer, offset, offset + bytes, read_piece, &memory);
    pthread_mutex_unlock(&copy->lock);
    return mapped ? HVD_OK : no_memory(error, all, status);
}
