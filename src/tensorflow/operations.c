/* operations.c - the definitions of the operations. The thread that loads this library in tf.load_op_library
 * registers them; TensorFlow then makes a Python function of each. */
#include "tensorflow/operations.h"

#include "tensorflow/api.h"
#include "tensorflow/collectives.h"
#include "tensorflow/completion.h"
#include "tensorflow/kernel.h"
#include "tensorflow/placement.h"

#include <stdint.h>
#include <stdio.h>

#define TYPES                                                                                                \
    "{bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float, double, "       \
    "complex64, complex128}"
static const char one[] = "T: " TYPES;
static const char some[] = "T: list(" TYPES ") >= 1";

/* Equal on all ranks and unique among operations in flight; unused for an unnamed one, which the engine
 * numbers. */
#define NAME "tensor_name: string = ''", "unnamed: int = 0"
#define SET  "process_set_id: int = 0"
/* Factors are the bits of a float64, as TensorFlow's attributes have floats of 32 bits only. */
#define REDUCING "reduce_op: int", "prescale_bits: int", "postscale_bits: int"
#define ROOT     "root_rank: int"
/* Not 0 in the one operation of an update that reports it (hvd_optimizer_step), under the operation's name.
 */
#define STEP "step: int = 0"

/* A resource that is never read. It keeps TensorFlow from folding and merging operations. Being stateful
 * would also do that, but TensorFlow runs stateful operations one after another unless they have resources of
 * their own. */
#define TOKEN "token: resource"

static const char *load_error = "TensorFlow is not loaded; import it first";

/* ---- shapes: one output for every input except the token, unless stated otherwise --------------------- */

static int outputs_of(TF_ShapeInferenceContext *context)
{
    return (int)tf.ShapeInferenceContextNumInputs(context) - 1;
}

static void same_shapes(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *shape = tf.NewShapeHandle();
    for (int i = 0; i < outputs_of(context) && !tf.GetCode(status); i++) {
        tf.ShapeInferenceContextGetInput(context, i, shape, status);
        if (!tf.GetCode(status))
            tf.ShapeInferenceContextSetOutput(context, i, shape, status);
    }
    tf.DeleteShapeHandle(shape);
}

/* Sets an output's shape: all extents except the first are the input's; unknown if the input's rank is
 * unknown. */
static void set_rows(TF_ShapeInferenceContext *context, int index, TF_Status *status)
{
    TF_ShapeHandle *input = tf.NewShapeHandle(), *rest = tf.NewShapeHandle(), *output = tf.NewShapeHandle();
    TF_ShapeHandle *any = tf.ShapeInferenceContextVectorFromSize(context, SIZE_MAX);
    tf.ShapeInferenceContextGetInput(context, index, input, status);
    if (!tf.GetCode(status) && tf.ShapeInferenceContextRankKnown(context, input) &&
        tf.ShapeInferenceContextRank(context, input) > 0) {
        tf.ShapeInferenceContextSubshape(context, input, 1, INT64_MAX, rest, status);
        if (!tf.GetCode(status))
            tf.ShapeInferenceContextConcatenateShapes(context, any, rest, output, status);
    }
    if (!tf.GetCode(status))
        tf.ShapeInferenceContextSetOutput(context, index, output, status);
    tf.DeleteShapeHandle(any);
    tf.DeleteShapeHandle(input);
    tf.DeleteShapeHandle(rest);
    tf.DeleteShapeHandle(output);
}

static void rows_of_all(TF_ShapeInferenceContext *context, TF_Status *status)
{
    for (int i = 0; i < outputs_of(context) && !tf.GetCode(status); i++)
        set_rows(context, i, status);
}

static void rows_and_counts(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *counts = tf.ShapeInferenceContextVectorFromSize(context, SIZE_MAX);
    set_rows(context, 0, status);
    if (!tf.GetCode(status))
        tf.ShapeInferenceContextSetOutput(context, 1, counts, status);
    tf.DeleteShapeHandle(counts);
}

static void scalar(TF_ShapeInferenceContext *context, TF_Status *status)
{
    TF_ShapeHandle *shape = tf.ShapeInferenceContextScalar(context);
    tf.ShapeInferenceContextSetOutput(context, 0, shape, status);
    tf.DeleteShapeHandle(shape);
}

/* ---- definitions -------------------------------------------------------------------------------------- */

enum { MOST = 9 }; /* attributes of one, and a NULL */

static const struct definition {
    const char *name;
    const char *attributes[MOST];
    const char *inputs[MOST];
    const char *outputs[MOST];
    tf_shape_fn *shape;
} definitions[] = {
    {"HorovodAllreduce", {one, NAME, SET, REDUCING, STEP}, {"tensor: T", TOKEN}, {"output: T"}, same_shapes},
    {"HorovodGroupedAllreduce",
     {some, NAME, SET, REDUCING, STEP},
     {"tensors: T", TOKEN},
     {"outputs: T"},
     same_shapes},
    {"HorovodAllgather", {one, NAME, SET}, {"tensor: T", TOKEN}, {"output: T"}, rows_of_all},
    {"HorovodGroupedAllgather", {some, NAME, SET}, {"tensors: T", TOKEN}, {"outputs: T"}, rows_of_all},
    {"HorovodReducescatter", {one, NAME, SET, REDUCING}, {"tensor: T", TOKEN}, {"output: T"}, rows_of_all},
    {"HorovodGroupedReducescatter",
     {some, NAME, SET, REDUCING},
     {"tensors: T", TOKEN},
     {"outputs: T"},
     rows_of_all},
    {"HorovodBroadcast", {one, NAME, SET, ROOT}, {"tensor: T", TOKEN}, {"output: T"}, same_shapes},
    {"HorovodAlltoall",
     {one, NAME, SET, "splits_given: int"},
     {"tensor: T", "splits: int64", TOKEN},
     {"output: T", "received_splits: int64"},
     rows_and_counts},
    {"HorovodJoin", {NAME, SET}, {TOKEN}, {"last: int32"}, scalar},
    {"HorovodRank", {NULL}, {NULL}, {"rank: int32"}, scalar},
    {"HorovodLocalRank", {NULL}, {NULL}, {"rank: int32"}, scalar},
    {"HorovodLocalSize", {NULL}, {NULL}, {"size: int32"}, scalar},
    {"HorovodSize", {SET}, {NULL}, {"size: int32"}, scalar},
    {"HorovodProcessSetIncluded", {SET}, {NULL}, {"included: int32"}, scalar},
};

static void define(const struct definition *definition)
{
    TF_Status *status = tf.NewStatus();
    TF_OpDefinitionBuilder *builder = tf.NewOpDefinitionBuilder(definition->name);
    for (const char *const *each = definition->attributes; *each; each++)
        tf.OpDefinitionBuilderAddAttr(builder, *each);
    for (const char *const *each = definition->inputs; *each; each++)
        tf.OpDefinitionBuilderAddInput(builder, *each);
    for (const char *const *each = definition->outputs; *each; each++)
        tf.OpDefinitionBuilderAddOutput(builder, *each);
    tf.OpDefinitionBuilderSetIsStateful(builder, true);
    tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, definition->shape);
    tf.RegisterOpDefinition(builder, status);
    if (tf.GetCode(status))
        fprintf(stderr, "Horovod: operation %s: %s\n", definition->name, tf.Message(status));
    tf.DeleteStatus(status);
}

__attribute__((constructor)) static void load(void)
{
    static char text[128];
    const char *missing = NULL;
    if (!tf_open(&missing)) {
        snprintf(text, sizeof text, "this TensorFlow has no %s; horovod.tensorflow needs 2.12 or newer",
                 missing);
        load_error = text;
        return;
    }
    for (size_t i = 0; i < sizeof definitions / sizeof *definitions; i++)
        define(&definitions[i]);
    collectives_register(completion_works());
    placement_register();
    load_error = NULL;
}

__attribute__((visibility("default"))) const char *horovod_tensorflow_bind(const struct entry_table *table,
                                                                           int *asynchronous)
{
    if (table->struct_size < sizeof *table)
        return "this library is of a newer Horovod than the engine";
    engine = table;
    *asynchronous = completion_works();
    return load_error;
}
