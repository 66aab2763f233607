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

void kernel_fail(TF_OpKernelContext *context, const hvd_status *status)
{
    TF_Status *failure = tf.NewStatus();
    tf.SetStatus(failure, engine->absl_code(status->code), status->text);
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
