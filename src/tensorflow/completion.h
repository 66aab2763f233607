/* completion.h - completes an asynchronous kernel, later and from any thread. */
#ifndef HVD_TENSORFLOW_COMPLETION_H
#define HVD_TENSORFLOW_COMPLETION_H

#include "tensorflow/api.h"

struct completion {
    struct tf_function moved; /* used unless there is a pointer */
    struct tf_function *lasting;
};

/* Whether this TensorFlow has asynchronous kernels, and calls what it is given as expected here. */
bool completion_works(void);

/* In the kernel's own call, as TensorFlow's object may die when that returns. */
struct completion completion_take(struct tf_function *done);

/* Once; TensorFlow may run more of the graph inside. Neither context nor tensors may be used any more. */
void completion_run(struct completion *completion);

#endif
