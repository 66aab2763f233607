/* signature.h - reading a signature piece by piece; shared by request.c, difference.c and the engine. */
#ifndef HVD_COORDINATE_SIGNATURE_H
#define HVD_COORDINATE_SIGNATURE_H

#include "coordinate/request.h"

struct signature_head {
    hvd_operation operation;
    hvd_reduction reduction;
    int device_type;
    int32_t root;
    double prescale, postscale;
    int32_t priority;
    int grouped;
    int count;
    bool may_fuse;
    int first_dimension; /* of those that ranks compare: 0 or 1 */
};

struct signature_tensor {
    hvd_dtype dtype;
    int ndim;
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* False when the bytes are malformed. */
bool signature_read_head(struct wire_reader *reader, struct signature_head *head);
/* The ranks of a process set, u32 each. */
bool signature_read_ranks(struct wire_reader *reader, struct wire_reader *ranks);
bool signature_read_tensor(struct wire_reader *reader, const struct signature_head *head,
                           struct signature_tensor *tensor);

#endif
