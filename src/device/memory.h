/* memory.h - what the engine can do with the memory of tensors: one constant table of functions for each type
 * of device.
 *
 * The engine dereferences addresses of types with `host_access` only, and reduces them with the kernels of
 * reduce.h. It copies tensors of all other types to host memory, runs the collective there, and copies the
 * result back (coll/staging.h). So a row has no kernel except `fill`: reductions on a device belong to a back
 * end that runs whole collectives.
 *
 * Addresses are unique in the process over all devices, and a row finds the device of an address. Any thread
 * may call any function. None waits for a device, except event_release, and those that allocate or free. */
#ifndef HVD_DEVICE_MEMORY_H
#define HVD_DEVICE_MEMORY_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>

/* A piece of memory. */
struct span {
    char *data;
    size_t length; /* bytes */
};

struct memory_copy {
    void *to;
    const void *from;
    size_t length; /* bytes, more than 0 */
};

/* A point in the order of a device's work; a row defines what it is. */
struct memory_event;

struct memory_ops {
    int32_t device_type; /* as in DLPack */
    bool host_access;    /* addresses are the host's, and all work is done on return; then `count` and the
                            functions after `fill` are not called and may be NULL */

    /* Opens the library of these devices, but uses none, and fails in a child of the process that has. NULL:
     * there is none. */
    hvd_code (*open)(hvd_status *reason);

    /* Returns how many devices this process has. */
    int32_t (*count)(void);

    /* Returns memory of a device, aligned to 64 bytes; NULL: out of memory. The address is unique even if
     * bytes is 0. */
    void *(*allocate)(int32_t device_id, size_t bytes);
    void (*release)(void *data); /* takes effect after pending fills */

    /* Announces that all of the caller's memory will soon be written, maybe for the first time; NULL: no
     * effect. */
    void (*expect_writes)(void *data, size_t bytes);

    /* Writes the element of `width` bytes (1, 2, 4, 8 or 16) `elements` times. Later copies of the row are
     * ordered after it. */
    hvd_code (*fill)(void *data, const void *element, size_t width, size_t elements, hvd_status *status);

    /* Returns host memory that the device copies fastest (page-locked); NULL: out of memory. */
    void *(*staging_allocate)(int32_t device_id, size_t bytes);
    void (*staging_release)(void *data);

    /* Starts all copies of a batch, from or to staging memory. *copied is an event after the last one. */
    hvd_code (*copy)(const struct memory_copy *copies, int count, struct memory_event **copied,
                     hvd_status *status);

    /* Makes an event after all work that the caller's stream has now; NULL: the device's default stream. */
    hvd_code (*event_record)(int32_t device_id, void *stream, struct memory_event **event,
                             hvd_status *status);
    /* HVD_OK: all work before the event is done; HVD_IN_PROGRESS: not yet; otherwise the device has failed.
     */
    hvd_code (*event_query)(struct memory_event *event, hvd_status *status);
    /* Lets work that the stream gets from now on wait for the event. NULL: no back end uses such streams. */
    hvd_code (*stream_wait)(void *stream, struct memory_event *event, hvd_status *status);
    /* Waits for the event first if it is still pending. */
    void (*event_release)(struct memory_event *event);

    /* Gives back what is kept for later use and is not in use now; NULL: there is nothing. */
    void (*trim)(void);
};

extern const struct memory_ops memory_host, memory_cuda;

/* Returns the row of a type; NULL: this process has not used such a device. */
const struct memory_ops *memory_of(int32_t device_type);

/* Returns the row of a type that is about to be used, and opens its library first if necessary.
 * HVD_UNSUPPORTED: this process can't use such devices; the text, "a GPU, which this process can't use
 * (...)", says why. */
hvd_code memory_open(int32_t device_type, const struct memory_ops **memory, hvd_status *reason);

/* Lets all rows give back what they keep, when a context of the engine has ended. */
void memory_trim(void);

/* Adds or replaces a type of device, before any tensor of it is submitted; `ops` must stay valid. */
void memory_register(const struct memory_ops *ops);

#endif
