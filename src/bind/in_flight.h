/* in_flight.h - lists the operations between their submission and their end, with the memory that the engine
 * works on. An operation that Python drops keeps its memory until it has finished. Any Python thread calls
 * these functions with the GIL held. */
#ifndef HVD_BIND_IN_FLIGHT_H
#define HVD_BIND_IN_FLIGHT_H

#include "bind/request.h"
#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>

/* An operation between submission and end, with the memory that the engine works on. */
struct in_flight {
    hvd_handle *handle; /* NULL if it was not submitted */
    struct held_tensors held;
    struct made_results made;
    struct in_flight *next;     /* the next one in the list of all operations in flight */
    struct in_flight **pointer; /* the member or variable that points to this one */
};

static inline bool in_flight_is_over(const struct in_flight *operation)
{
    return hvd_test(operation->handle, NULL) != HVD_IN_PROGRESS;
}

/* Enters a submitted operation into the list. Its address must not change until it is dropped. */
void in_flight_enter(struct in_flight *operation);

/* Releases the memory of an operation whose Handle is freed, now or when it has finished. */
void in_flight_drop(struct in_flight *operation);

/* Returns an unfinished operation that works on some of these bytes, or NULL if there is none. */
const struct in_flight *in_flight_find(const void *memory, size_t bytes);

/* Releases dropped operations that have finished, in constant amortised time. Runs Python code. */
void in_flight_reclaim(void);

#endif
