/* request.h - validation and canonical encoding of a request, by which ranks compare requests of one name. No
 * state; any thread.
 *
 * A signature is the canonical encoding of every field that the ranks must agree on: operation, reduction,
 * factors, root, device, priority, and per tensor the type, the part of the group and the shape (without the
 * first dimension if it may differ by rank). Equal requests have equal bytes. Decoding is bounds-checked:
 * signatures arrive from other ranks. */
#ifndef HVD_COORDINATE_REQUEST_H
#define HVD_COORDINATE_REQUEST_H

#include "base/wire.h"
#include "horovod.h"

#include <stdbool.h>

#define REQUEST_NAME_LIMIT      1024    /* bytes of a name with its operation and the terminating NUL */
#define REQUEST_SIGNATURE_LIMIT 1048576 /* bytes */
#define REQUEST_TENSOR_LIMIT    16384   /* tensors of one group */
#define REQUEST_RANK_LIMIT      131072  /* ranks of one process set */

struct signature {
    uint8_t *bytes;
    uint32_t length;
};

/* The fields of a signature that the coordinator uses. */
struct signature_summary {
    hvd_operation operation;
    hvd_reduction reduction;
    hvd_dtype dtype; /* of tensor 0 if the operation reduces, otherwise that of bytes */
    uint32_t types;  /* bits 1 << hvd_dtype: of all tensors if it reduces, otherwise that of bytes */
    int device_type; /* hvd_device_type */
    int tensors;
    const uint8_t *fusion_key; /* the first FUSION_KEY_LENGTH bytes, which must be equal in a batch */
    uint64_t bytes;            /* payload of one rank; 0 if it may differ by rank */
    int32_t priority;
    int32_t root; /* of a broadcast; the process set of a removal; otherwise 0 */
    bool may_fuse, grouped, prescaled;
};

#define FUSION_KEY_LENGTH 24

/* Returns a factor of a request, which is 1 unless given. */
static inline double factor_of(const double *given)
{
    return given ? *given : 1;
}

/* Checks the request (ranges, shapes, NULLs), with texts for the user, and returns the length of its
 * signature. */
hvd_code signature_measure(const hvd_request *request, uint32_t *length, hvd_status *status);

/* Encodes a request that was measured; `bytes` has room for it. `parts`: the step in which each tensor of a
 * group runs, see engine/handle.h; NULL: all run at once. */
struct signature signature_encode(const hvd_request *request, const uint16_t *parts, uint8_t *bytes,
                                  uint32_t length);

/* Reads the factors of a summary from its fusion key. */
void signature_factors(const struct signature_summary *summary, double *prescale, double *postscale);

/* Returns false if the bytes are not a well-formed signature. */
bool signature_summarize(const struct signature *signature, struct signature_summary *summary);

bool signature_equal(const struct signature *a, const struct signature *b);

/* ---- reading a signature piece by piece ---------------------------------------------------------------- */

struct signature_head {
    hvd_operation operation;
    hvd_reduction reduction;
    hvd_dtype dtype; /* of tensor 0 if the operation reduces, otherwise that of bytes */
    int device_type;
    int32_t root;
    double prescale, postscale;
    int32_t priority;
    int grouped;
    int count;
    bool may_fuse;
    int first_dimension; /* ranks compare shapes from this dimension on: 0 or 1 */
};

struct signature_tensor {
    hvd_dtype dtype;
    int ndim, part;
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* These return false if the bytes are malformed. */
bool signature_read_head(struct wire_reader *reader, struct signature_head *head);
/* Reads the ranks of a process set, u32 each. */
bool signature_read_ranks(struct wire_reader *reader, struct wire_reader *ranks);
bool signature_read_tensor(struct wire_reader *reader, const struct signature_head *head,
                           struct signature_tensor *tensor);

#endif
