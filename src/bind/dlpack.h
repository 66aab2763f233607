/* dlpack.h - declares the part of DLPack's frozen binary interface that the module uses, versions 0.x and 1.x
 * (https://dmlc.github.io/dlpack). It has no functions, only types. */
#ifndef HVD_BIND_DLPACK_H
#define HVD_BIND_DLPACK_H

#include <stdint.h>

typedef struct {
    uint32_t major, minor;
} DLPackVersion;

typedef struct {
    int32_t device_type, device_id;
} DLDevice;

enum {
    DL_CPU = 1,
    DL_CUDA = 2,
    DL_CUDA_HOST = 3,  /* page-locked memory of the host; the engine treats it as any other */
    DL_ROCM_HOST = 11, /* the same of ROCm */
    DL_CUDA_MANAGED = 13,
};

/* The numbers by which __dlpack__ takes the default stream of a device. */
enum { DL_DEFAULT_STREAM = 0, DL_CUDA_DEFAULT_STREAM = 1 };

typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;

enum {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_SMALL_FLOATS = 7, /* the first type of 8 bits or fewer */
};

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides; /* strides in elements; NULL if dense and row-major */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DL_FLAG_READ_ONLY UINT64_C(1)

typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor tensor;
} DLManagedTensorVersioned;

/* A table that a tensor type may offer, by which C code describes its tensors without a Python call. */
typedef struct DLExchangeHeader {
    DLPackVersion version;
    struct DLExchangeHeader *previous; /* of an older major version */
} DLExchangeHeader;

typedef struct {
    DLExchangeHeader header;
    void *allocate, *managed_from_object, *managed_to_object;
    int (*tensor_from_object)(void *object,
                              DLTensor *tensor); /* returns 0 and a borrowed tensor; may be NULL */
    /* Reports the stream to which the calling thread queues work. Returns 0 on success. May be NULL. */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
} DLExchangeTable;

#endif
