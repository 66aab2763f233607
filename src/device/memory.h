/* memory.h - what the engine does with the memory of tensors, by type of device: one constant table of
 * functions a type.
 *
 * The engine itself dereferences addresses of a type with `host_access` only, and reduces them with the
 * kernels of reduce.h. Tensors of all others it copies into host memory, lets the collective run there, and
 * copies the result back (coll/task.h). So a row has no kernels but `fill`: what reduces on a device is a
 * back end that takes whole collectives, and brings its own.
 *
 * Addresses are unique in the process over all devices, and a row knows from an address which device it
 * belongs to. Any thread may call any function. None waits for a device, except event_release. */
#ifndef HVD_DEVICE_MEMORY_H
#define HVD_DEVICE_MEMORY_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>

struct memory_copy {
    void *to;
    const void *from;
    size_t length; /* bytes, more than 0 */
};

/* A point in the order of a device's work; a row defines what it is. */
struct memory_event;

struct memory_ops {
    int32_t device_type; /* as in DLPack */
    bool host_access;    /* addresses are the host's, and all is done on return; then what follows `fill` is
                            not called and may be NULL */

    /* Memory of a device, aligned to 64 bytes; NULL when there is none left. bytes may be 0: an address of
     * its own nevertheless. */
    void *(*allocate)(int32_t device_id, size_t bytes);
    void (*release)(void *data); /* after fills that are still to be done */

    /* The caller's memory, of which all will be written soon, maybe for the first time; NULL: no matter. */
    void (*expect_writes)(void *data, size_t bytes);

    /* Writes the element of `width` bytes (1, 2, 4, 8 or 16) so many times. What the row copies later comes
     * after it. */
    hvd_code (*fill)(void *data, const void *element, size_t width, size_t elements, hvd_status *status);

    /* Host memory that copies to and from the device reach best (page-locked); NULL when there is none. */
    void *(*staging_allocate)(int32_t device_id, size_t bytes);
    void (*staging_release)(void *data);

    /* Starts copies between device and staging memory, either way: those of a whole batch. *copied is behind
     * the last one. */
    hvd_code (*copy)(const struct memory_copy *copies, int count, struct memory_event **copied,
                     hvd_status *status);

    /* An event behind all work that the caller's stream holds now; NULL: the device's default stream. */
    hvd_code (*event_record)(int32_t device_id, void *stream, struct memory_event **event,
                             hvd_status *status);
    /* HVD_OK: all work before the event is done; HVD_IN_PROGRESS; else the device has failed. */
    hvd_code (*event_query)(struct memory_event *event, hvd_status *status);
    /* Waits for the event first if it is still pending. */
    void (*event_release)(struct memory_event *event);
};

extern const struct memory_ops memory_host;

/* NULL: this process has no such type of device. */
const struct memory_ops *memory_of(int32_t device_type);

/* Adds a type of device, or replaces it; `ops` stays valid. Before any tensor of it is submitted. */
void memory_register(const struct memory_ops *ops);

#endif
