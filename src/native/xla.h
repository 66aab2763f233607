/* xla.h - the part of XLA's foreign function interface (version 0.x) that its handlers here use, by
 * layout: no header of XLA is needed to build. Fields after the last one used are left out; fields newer than
 * the oldest supported version are guarded by struct_size. test/python/test_jax.py compares all offsets with
 * the header that jaxlib ships. */
#ifndef HVD_NATIVE_XLA_H
#define HVD_NATIVE_XLA_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_S64 = 5, XLA_F64 = 12 };      /* types of scalars; those of tensors are in base/dtypes.def */
enum { XLA_SCALAR = 3, XLA_STRING = 4 }; /* kinds of attributes */
enum { XLA_EXECUTE = 3 };                /* the stage in which buffers may be used */
enum { XLA_METADATA_EXTENSION = 1 };     /* the registration's call, which only reads the version */
enum { XLA_FUTURE_CREATE_SIZE = 24 };    /* versions differ; all accept this one */

/* Every struct of the interface starts with this. */
struct xla_extension {
    size_t struct_size;
    int kind;
    struct xla_extension *next;
};
struct xla_head {
    size_t struct_size;
    struct xla_extension *extensions;
};

struct xla_version {
    struct xla_head head;
    int major, minor;
};
struct xla_metadata {
    size_t struct_size;
    struct xla_version version;
    uint32_t traits;
};
struct xla_metadata_extension {
    struct xla_extension extension;
    struct xla_metadata *metadata;
};

struct xla_buffer {
    struct xla_head head;
    int type;
    void *data;
    int64_t rank;
    int64_t *dims;
};
struct xla_text { /* without a zero at the end */
    const char *start;
    size_t length;
};
struct xla_scalar {
    int type;
    void *value;
};

struct xla_buffers {
    struct xla_head head;
    int64_t count;
    int *kinds;
    struct xla_buffer **buffers;
};
struct xla_attributes {
    struct xla_head head;
    int64_t count;
    int *kinds;
    struct xla_text **names;
    void **values; /* struct xla_scalar *, struct xla_text *, ... by kind */
};

struct xla_error;
struct xla_future;
struct xla_error_args {
    struct xla_head head;
    const char *message;
    int code;
};
struct xla_future_args { /* to create one, where `future` is written, and to complete it */
    struct xla_head head;
    struct xla_future *future;
};
struct xla_future_error_args {
    struct xla_head head;
    struct xla_future *future;
    struct xla_error *error;
};

/* The caller owns an error that a function returns. */
struct xla_api {
    struct xla_head head;
    struct xla_version version;
    const void *internal;
    struct xla_error *(*error_create)(struct xla_error_args *args);
    void *unused[12];
    struct xla_error *(*future_create)(struct xla_future_args *args);
    struct xla_error *(*future_set_available)(struct xla_future_args *args);
    struct xla_error *(*future_set_error)(struct xla_future_error_args *args);
};

struct xla_frame {
    struct xla_head head;
    const struct xla_api *api; /* NULL for the registration's call in versions up to 0.1 */
    void *context;
    int stage;
    struct xla_buffers inputs, outputs;
    struct xla_attributes attributes;
    struct xla_future *future; /* out: if not NULL, the buffers stay until it is completed */
};

/* The handler of all operations. Attributes, all needed: `name` (text), `operation`, `reduction`, `root`,
 * `process_set`, `grouped`, `generated` (int64), `prescale`, `postscale` (float64), as of hvd_request; `step`
 * (int64), not 0 in the one call of an optimizer's update that reports it, under the call's name. Inputs and
 * outputs are the tensors, of any types. Any thread; it keeps an XLA thread no longer than entry_help runs.
 */
struct xla_error *xla_handler(struct xla_frame *frame);

#endif
