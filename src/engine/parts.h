/* parts.h - the parts of a group whose tensors share memory. Any thread. */
#ifndef HVD_ENGINE_PARTS_H
#define HVD_ENGINE_PARTS_H

#include "horovod.h"

#include <stdint.h>

/* A group whose tensors share memory runs as several collectives, its parts, one after the other: each writes
 * only memory that no other tensor of the part reads or writes. The ranks agree on the division, which is in
 * the signature, and all parts belong to one request, so nothing can run between them. */
struct parts {
    uint16_t *of; /* the part of each tensor, counted from 0; NULL: all are in one */
    int count;
};

/* Divides the tensors of a group, mostly into one part. */
hvd_code parts_find(const hvd_request *request, struct parts *parts, hvd_status *status);

void parts_free(struct parts *parts); /* fine if there are none */

#endif
