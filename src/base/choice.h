/* choice.h - how a batch moves: chosen by the root of its process set, carried in the decision. A coordinator
 * passes it on unread; the ranges are checked where it is used (backend/backend.h). */
#ifndef HVD_BASE_CHOICE_H
#define HVD_BASE_CHOICE_H

#include <stdint.h>

struct choice {
    uint8_t backend;        /* the row */
    uint8_t algorithm;      /* a number of that back end's own */
    uint8_t piece_exponent; /* in pieces of 2^piece_exponent bytes, where it cuts */
};

#endif
