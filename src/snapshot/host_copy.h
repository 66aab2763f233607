/* host_copy.h - the memory in which the ranks of a host keep two versions of a state: a head, which says
 * which of them are whole (publication.h) and which processes use it, and the two buffers, in turns of one
 * piece each, so that they can grow. The process that makes it sends the others where its descriptor is, and
 * they open it there; it is gone when the last of them has ended. Any thread. */
#ifndef HVD_SNAPSHOT_HOST_COPY_H
#define HVD_SNAPSHOT_HOST_COPY_H

#include "base/thread.h"
#include "horovod.h"
#include "snapshot/publication.h"

#include <pthread.h>
#include <stddef.h>

#define HOST_COPY_ID_BYTES 16

/* A process, for as long as the system runs. */
struct host_copy_process {
    int64_t id;
    uint64_t start;
};

struct host_copy_head {
    uint64_t format; /* of this memory, which another version of the library may have made */
    uint8_t id[HOST_COPY_ID_BYTES];
    atomic_uint news; /* counts what was published; a futex word */
    /* Which use this memory, by share; with id 0: none. Each writes its own. */
    struct {
        _Atomic int64_t id;
        _Atomic uint64_t start;
    } processes[PUBLICATION_SHARES];
    struct publication publication;
};

/* Where the memory of another process is. */
struct host_copy_place {
    struct host_copy_process process;
    int fd;
    uint8_t id[HOST_COPY_ID_BYTES];
};

struct host_copy {
    int fd; /* -1 in a child of fork() */
    struct host_copy_head *head;
    pthread_mutex_t lock; /* of the two below, which change when the state is larger */
    uint8_t *data;
    size_t mapped;
    struct atfork_handler watch;
};

hvd_code host_copy_create(struct host_copy **copy, hvd_status *status);
/* Opens the memory of another process, or of this one. HVD_UNSUPPORTED: it can't be opened. */
hvd_code host_copy_open(const struct host_copy_place *place, struct host_copy **copy, hvd_status *status);
/* Opens the memory of a descriptor, which stays the caller's. HVD_INVALID_ARGUMENT: it is no such memory. */
hvd_code host_copy_adopt(int fd, struct host_copy **copy, hvd_status *status);
void host_copy_close(struct host_copy *copy); /* NULL is fine */
struct host_copy_place host_copy_place(const struct host_copy *copy);

/* This process writes a share from now on. */
void host_copy_enter(struct host_copy *copy, int share);
/* Returns true if a living process that is none of these may still write there. */
bool host_copy_is_used(const struct host_copy *copy, const struct host_copy_process *processes, int count);

/* Allocates the memory of a part of a buffer that is to have that many bytes. */
hvd_code host_copy_reserve(struct host_copy *copy, int buffer, size_t bytes, size_t from, size_t to,
                           hvd_status *status);
/* Writes to a part that was reserved. */
void host_copy_write(struct host_copy *copy, int buffer, size_t offset, const void *memory, size_t bytes);
/* Copies a part of a whole version, in which the bytes of share 0 alone are last. HVD_INVALID_ARGUMENT: there
 * is no such part. */
hvd_code host_copy_read(struct host_copy *copy, int64_t version, size_t offset, void *memory, size_t bytes,
                        hvd_status *status);

#endif
