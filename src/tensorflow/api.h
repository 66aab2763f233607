/* api.h - the part of TensorFlow's C interface (2.12 and newer) that the operations here use. No header of
 * TensorFlow is needed to build, and nothing is linked: the functions are looked up in TensorFlow's library,
 * which is loaded before this one. Any thread, once tf_open has returned. */
#ifndef HVD_TENSORFLOW_API_H
#define HVD_TENSORFLOW_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;

enum { TF_INT32 = 3 }; /* a type */

/* libstdc++'s std::function<void()>: the callback that completes an asynchronous kernel. */
struct tf_function {
    uint64_t object[2];
    bool (*manage)(void *target, const void *source, int what);
    void (*invoke)(const void *object);
};
enum { TF_FUNCTION_DESTROY = 3 }; /* a `what` */

typedef void tf_shape_fn(TF_ShapeInferenceContext *context, TF_Status *status);
typedef void *tf_create_fn(TF_OpKernelConstruction *construction);
typedef void tf_compute_fn(void *kernel, TF_OpKernelContext *context);
typedef void tf_compute_async_fn(void *kernel, TF_OpKernelContext *context, struct tf_function *done);
typedef void tf_delete_fn(void *kernel);

/* FUNCTION(result, name after TF_, parameters) */
#define TF_FUNCTIONS(FUNCTION)                                                                               \
    FUNCTION(TF_Status *, NewStatus, (void))                                                                 \
    FUNCTION(void, DeleteStatus, (TF_Status *))                                                              \
    FUNCTION(void, SetStatus, (TF_Status *, int code, const char *text))                                     \
    FUNCTION(int, GetCode, (const TF_Status *))                                                              \
    FUNCTION(const char *, Message, (const TF_Status *))                                                     \
    FUNCTION(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *name))                           \
    FUNCTION(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                     \
    FUNCTION(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                    \
    FUNCTION(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                   \
    FUNCTION(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                       \
    FUNCTION(void, OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder *, tf_shape_fn *))  \
    FUNCTION(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                            \
    FUNCTION(TF_ShapeHandle *, NewShapeHandle, (void))                                                       \
    FUNCTION(void, DeleteShapeHandle, (TF_ShapeHandle *))                                                    \
    FUNCTION(int64_t, ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext *))                          \
    FUNCTION(void, ShapeInferenceContextGetInput,                                                            \
             (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                               \
    FUNCTION(void, ShapeInferenceContextSetOutput,                                                           \
             (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))                               \
    FUNCTION(int, ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext *, TF_ShapeHandle *))            \
    FUNCTION(int64_t, ShapeInferenceContextRank, (TF_ShapeInferenceContext *, TF_ShapeHandle *))             \
    FUNCTION(TF_ShapeHandle *, ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))                    \
    FUNCTION(TF_ShapeHandle *, ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext *, size_t))    \
    FUNCTION(void, ShapeInferenceContextSubshape,                                                            \
             (TF_ShapeInferenceContext *, TF_ShapeHandle *, int64_t start, int64_t end, TF_ShapeHandle *,    \
              TF_Status *))                                                                                  \
    FUNCTION(                                                                                                \
        void, ShapeInferenceContextConcatenateShapes,                                                        \
        (TF_ShapeInferenceContext *, TF_ShapeHandle *, TF_ShapeHandle *, TF_ShapeHandle *, TF_Status *))     \
    FUNCTION(TF_KernelBuilder *, NewKernelBuilder,                                                           \
             (const char *op, const char *device, tf_create_fn *, tf_compute_fn *, tf_delete_fn *))          \
    FUNCTION(void, RegisterKernelBuilder, (const char *name, TF_KernelBuilder *, TF_Status *))               \
    FUNCTION(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                   \
    FUNCTION(void, OpKernelConstruction_GetAttrString,                                                       \
             (TF_OpKernelConstruction *, const char *, char *, size_t, TF_Status *))                         \
    FUNCTION(void, OpKernelConstruction_GetAttrInt64,                                                        \
             (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *))                              \
    FUNCTION(int, NumInputs, (TF_OpKernelContext *))                                                         \
    FUNCTION(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                         \
    FUNCTION(void, SetOutput, (TF_OpKernelContext *, int, const TF_Tensor *, TF_Status *))                   \
    FUNCTION(                                                                                                \
        TF_Tensor *, AllocateOutput,                                                                         \
        (TF_OpKernelContext *, int, int type, const int64_t *shape, int ndim, size_t bytes, TF_Status *))    \
    FUNCTION(TF_Tensor *, ForwardInputOrAllocateOutput,                                                      \
             (TF_OpKernelContext *, const int *candidates, int count, int output, const int64_t *shape,      \
              int ndim, int *forwarded, TF_Status *))                                                        \
    FUNCTION(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                             \
    FUNCTION(TF_Tensor *, NewTensor,                                                                         \
             (int type, const int64_t *shape, int ndim, void *data, size_t bytes,                            \
              void (*deallocator)(void *data, size_t bytes, void *argument), void *argument))                \
    FUNCTION(void, DeleteTensor, (TF_Tensor *))                                                              \
    FUNCTION(int, TensorType, (const TF_Tensor *))                                                           \
    FUNCTION(int, NumDims, (const TF_Tensor *))                                                              \
    FUNCTION(int64_t, Dim, (const TF_Tensor *, int))                                                         \
    FUNCTION(void *, TensorData, (const TF_Tensor *))                                                        \
    FUNCTION(int64_t, TensorElementCount, (const TF_Tensor *))

/* Since 2.13; NULL in older versions. */
#define TF_ASYNC_FUNCTIONS(FUNCTION)                                                                         \
    FUNCTION(TF_KernelBuilder *, NewAsyncKernelBuilder,                                                      \
             (const char *op, const char *device, tf_create_fn *, tf_compute_async_fn *, tf_delete_fn *))    \
    FUNCTION(void, RunAsyncOpKernelDoneCallback, (struct tf_function *))

struct tf_api {
#define FUNCTION(result, name, parameters) result(*name) parameters;
    TF_FUNCTIONS(FUNCTION)
    TF_ASYNC_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* Complete once tf_open has returned true. */
extern struct tf_api tf;

/* Looks up all functions. Returns false if this process has no TensorFlow, or one without some of them, the
 * first of which is in *missing. */
bool tf_open(const char **missing);

#endif
