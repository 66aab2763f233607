/* in_flight.h - an operation between submission and end, with the memory that the engine works on. */
#ifndef HVD_BIND_IN_FLIGHT_H
#define HVD_BIND_IN_FLIGHT_H

#include "bind/request.h"

struct in_flight {
    hvd_handle *handle; /* NULL: not submitted */
    struct held_tensors held;
    int32_t results; /* how many outputs are the engine's */
};

static inline bool in_flight_is_over(const struct in_flight *operation)
{
    return hvd_test(operation->handle, NULL) != HVD_IN_PROGRESS;
}

/* Takes over an operation that no Python object refers to any more: its handle and memory are released once
 * it is over, by a later in_flight_reclaim. Runs Python. */
void in_flight_drop(struct in_flight *operation);

/* Releases dropped operations that are over, in constant amortised time. Runs Python. */
void in_flight_reclaim(void);

#endif
