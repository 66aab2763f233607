/* placement.c - the kernels of the operations that return rank, size and membership of this process, read
 * anew in each run. Any thread of TensorFlow; each run borrows the engine's context. */
#include "tensorflow/placement.h"

#include "tensorflow/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum property { RANK, LOCAL_RANK, LOCAL_SIZE, SIZE, INCLUDED };

struct node {
    enum property property;
    int32_t process_set;
};

/* Returns -1 and sets a status if there is no such process set, or no memory. */
static int32_t property_of_set(hvd_context *context, const struct node *node, hvd_status *status)
{
    hvd_placement placement = engine->placement(context);
    int32_t *ranks = calloc((size_t)placement.size, sizeof *ranks);
    int32_t count = ranks ? engine->process_set_ranks(context, node->process_set, ranks, placement.size) : -1;
    int32_t included = 0;
    for (int32_t i = 0; i < count; i++)
        included |= ranks[i] == placement.rank;
    free(ranks);
    if (count < 0) {
        status->code = ranks ? HVD_INVALID_ARGUMENT : HVD_OUT_OF_MEMORY;
        snprintf(status->text, sizeof status->text, "there is no process set %d", (int)node->process_set);
        return -1;
    }
    return node->property == SIZE ? count : included;
}

static int32_t read_property(hvd_context *context, const struct node *node, hvd_status *status)
{
    hvd_placement placement = engine->placement(context);
    switch (node->property) {
    case RANK:
        return placement.rank;
    case LOCAL_RANK:
        return placement.local_rank;
    case LOCAL_SIZE:
        return placement.local_size;
    default:
        return property_of_set(context, node, status);
    }
}

static void compute(void *kernel, TF_OpKernelContext *context)
{
    hvd_status status;
    int32_t value = -1;
    hvd_context *lent = engine->acquire(&status);
    if (lent) {
        value = read_property(lent, kernel, &status);
        engine->release();
    }
    if (value < 0) {
        kernel_fail(context, &status);
        return;
    }
    TF_Status *failure = tf.NewStatus();
    TF_Tensor *output = tf.AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof value, failure);
    if (output)
        memcpy(tf.TensorData(output), &value, sizeof value);
    else
        tf.OpKernelContext_Failure(context, failure);
    tf.DeleteTensor(output);
    tf.DeleteStatus(failure);
}

static void *create(TF_OpKernelConstruction *construction, enum property property)
{
    TF_Status *failure = tf.NewStatus();
    struct node *node = malloc(sizeof *node);
    if (node) {
        *node = (struct node){.property = property};
        if (property == SIZE || property == INCLUDED)
            node->process_set = (int32_t)kernel_read_integer(construction, "process_set_id", failure);
    } else {
        tf.SetStatus(failure, engine->absl_code(HVD_OUT_OF_MEMORY), "out of memory for a kernel");
    }
    if (tf.GetCode(failure))
        tf.OpKernelConstruction_Failure(construction, failure);
    tf.DeleteStatus(failure);
    return node;
}

#define CREATE(name, property)                                                                               \
    static void *create_##name(TF_OpKernelConstruction *construction)                                        \
    {                                                                                                        \
        return create(construction, property);                                                               \
    }
CREATE(rank, RANK)
CREATE(local_rank, LOCAL_RANK)
CREATE(local_size, LOCAL_SIZE)
CREATE(size, SIZE)
CREATE(included, INCLUDED)

void placement_register(void)
{
    static const struct {
        const char *operation;
        tf_create_fn *create;
    } kernels[] = {
        {"HorovodRank", create_rank},
        {"HorovodLocalRank", create_local_rank},
        {"HorovodLocalSize", create_local_size},
        {"HorovodSize", create_size},
        {"HorovodProcessSetIncluded", create_included},
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        kernel_register(kernels[i].operation,
                        tf.NewKernelBuilder(kernels[i].operation, "CPU", kernels[i].create, compute, free));
}
