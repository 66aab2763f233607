/* in_flight.h - an operation between submission and end, with the memory that the engine works on. */
#ifndef HVD_BIND_IN_FLIGHT_H
#define HVD_BIND_IN_FLIGHT_H

#include "bind/request.h"

struct in_flight {
    hvd_handle *handle; /* NULL: not submitted */
    struct held_tensors held;
    int32_t results;            /* how many outputs are the engine's */
    struct in_flight *next;     /* in the list of all that were started */
    struct in_flight **pointer; /* that leads to this one */
};

static inline bool in_flight_is_over(const struct in_flight *operation)
{
    return hvd_test(operation->handle, NULL) != HVD_IN_PROGRESS;
}

/* Adds an operation that was submitted to the list; it must not move until it is dropped. */
void in_flight_enter(struct in_flight *operation);

/* An operation that is not over and works on any of these bytes; NULL: there is none. */
const struct in_flight *in_flight_find(const void *memory, size_t bytes);

/* Takes over an operation that no Python object refers to any more: its handle and memory are released once
 * it is over, by a later in_flight_reclaim. Runs Python. */
void in_flight_drop(struct in_flight *operation);

/* Releases dropped operations that are over, in constant amortised time. Runs Python. */
void in_flight_reclaim(void);

#endif
