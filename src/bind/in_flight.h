/* in_flight.h - operations between submission and end, and the memory that the engine works on. A dropped one
 * keeps its memory until it is over. With the GIL held. */
#ifndef HVD_BIND_IN_FLIGHT_H
#define HVD_BIND_IN_FLIGHT_H

#include "bind/py_request.h"
#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>

/* An operation between submission and end, with the memory that the engine works on. */
struct in_flight {
    hvd_handle *handle; /* NULL: not submitted */
    struct held_tensors held;
    struct made_results made;
    struct in_flight *next;     /* in the list of all that were started */
    struct in_flight **pointer; /* that leads to this one */
};

static inline bool in_flight_is_over(const struct in_flight *operation)
{
    return hvd_test(operation->handle, NULL) != HVD_IN_PROGRESS;
}

/* After the submission; it stays put until it is dropped. */
void in_flight_enter(struct in_flight *operation);

/* Its Handle goes: releases its memory, now or once it is over. */
void in_flight_drop(struct in_flight *operation);

/* One that is not over and works on this memory; NULL: none does. */
const struct in_flight *in_flight_find(const void *memory, size_t bytes);

/* Releases dropped operations that are over, in constant amortised time. Runs Python. */
void in_flight_reclaim(void);

#endif
