/* completion.h - completes an asynchronous kernel, later and from any thread. */
#ifndef HVD_TENSORFLOW_COMPLETION_H
#define HVD_TENSORFLOW_COMPLETION_H

#include "tensorflow/api.h"

struct completion {
    struct tf_function moved; /* used unless there is a pointer */
    struct tf_function *lasting;
};

/* Returns true if this TensorFlow has asynchronous kernels, and runs a callback as expected here. */
bool completion_works(void);

/* Takes ownership of the callback. Call it in the kernel's own call, whose return may destroy TensorFlow's
 * object. */
struct completion completion_keep(struct tf_function *done);

/* Runs the callback, once. TensorFlow may run more of the graph inside; context and tensors must no longer be
 * used. */
void completion_run(struct completion *completion);

#endif
