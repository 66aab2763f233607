/* kernel.c - registers kernels, reads their attributes, and reports their failures. Any thread of TensorFlow.
 */
#include "tensorflow/kernel.h"

#include <stdio.h>

const struct entry_table *engine;

void kernel_register(const char *operation, TF_KernelBuilder *builder)
{
    TF_Status *status = tf.NewStatus();
    tf.RegisterKernelBuilder(operation, builder, status);
    if (tf.GetCode(status))
        fprintf(stderr, "Horovod: kernel of %s: %s\n", operation, tf.Message(status));
    tf.DeleteStatus(status);
}

/* A lost rank is UNKNOWN, as in Horovod. A MonitoredSession takes ABORTED for the loss of one of TensorFlow's
 * own workers, and makes new sessions without end. */
static int code_of(hvd_code code)
{
    enum { UNKNOWN = 2 };
    return code == HVD_PEER_LOST || code == HVD_SHUT_DOWN ? UNKNOWN : engine->absl_code(code);
}

void kernel_fail(TF_OpKernelContext *context, const hvd_status *status)
{
    TF_Status *failure = tf.NewStatus();
    tf.SetStatus(failure, code_of(status->code), status->text);
    tf.OpKernelContext_Failure(context, failure);
    tf.DeleteStatus(failure);
}

int64_t kernel_read_integer(TF_OpKernelConstruction *construction, const char *name, TF_Status *failure)
{
    int64_t value = 0;
    if (!tf.GetCode(failure))
        tf.OpKernelConstruction_GetAttrInt64(construction, name, &value, failure);
    return value;
}
