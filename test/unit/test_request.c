/* test_request.c - signatures: what they hold, what is refused, and how two of them differ. */
#include "coordinate/mismatch.h"
#include "coordinate/request.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double data[64];

struct example {
    hvd_request request;
    hvd_tensor inputs[2], outputs[2];
    int64_t shapes[2][HVD_MAX_DIMENSIONS + 1];
};

/* An allreduce of one float32 tensor [2, 3]. */
static struct example *example_of(hvd_operation operation)
{
    static struct example examples[8];
    static int next;
    struct example *e = &examples[next++ % 8];
    memset(e, 0, sizeof *e);
    for (int i = 0; i < 2; i++) {
        e->shapes[i][0] = 2;
        e->shapes[i][1] = 3;
        e->inputs[i] = (hvd_tensor){data, e->shapes[i], 2, HVD_FLOAT32, HVD_CPU, 0};
        e->outputs[i] = e->inputs[i];
    }
    e->request = (hvd_request){.struct_size = sizeof(hvd_request),
                               .operation = operation,
                               .count = operation != HVD_BARRIER,
                               .inputs = e->inputs,
                               .reduction = HVD_SUM};
    return e;
}

static struct signature encode(const struct example *e)
{
    uint32_t length;
    ASSERT_OK(signature_measure(&e->request, &length, &check_status));
    return signature_encode(&e->request, NULL, malloc(length), length);
}

static bool equal(const struct example *a, const struct example *b)
{
    struct signature first = encode(a), second = encode(b);
    bool same = signature_equal(&first, &second);
    free(first.bytes);
    free(second.bytes);
    return same;
}

static void check_refused(const struct example *e, hvd_code code, const char *words)
{
    uint32_t length;
    hvd_status status = {0};
    assert_int_equal(signature_measure(&e->request, &length, &status), code);
    check_text(status.text, words);
}

/* ---- what counts -------------------------------------------------------------------------------------- */

/* Whether `b`, after some change, is the same request as `a`. */
#define CHANGED(operation, change, same)                                                                     \
    do {                                                                                                     \
        struct example *a = example_of(operation), *b = example_of(operation);                               \
        change;                                                                                              \
        assert_int_equal(equal(a, b), same);                                                                 \
    } while (0)

TEST(what_must_agree_is_compared)
{
    CHANGED(HVD_ALLREDUCE, (void)b, true);
    CHANGED(HVD_ALLREDUCE, b->request.prescale = &(double){1}, true);
    CHANGED(HVD_ALLREDUCE, b->request.prescale = &(double){0}, false);
    CHANGED(HVD_ALLREDUCE, a->request.prescale = &(double){0}; b->request.prescale = &(double){-0.0}, false);
    CHANGED(HVD_ALLREDUCE, a->request.prescale = &(double){NAN}; b->request.prescale = &(double){-NAN}, true);
    CHANGED(HVD_ALLREDUCE, b->request.prescale = &(double){2}, false);
    CHANGED(HVD_ALLREDUCE, b->request.priority = -1, false);
    CHANGED(HVD_ALLREDUCE, b->request.grouped = 1, false);
    CHANGED(HVD_ALLREDUCE, b->request.count = 2, false);
    CHANGED(HVD_ALLREDUCE, b->shapes[0][1] = 4, false);
    CHANGED(HVD_BROADCAST, b->request.root = 1, false);
    CHANGED(HVD_ALLGATHER, b->shapes[0][1] = 4, false);
    CHANGED(HVD_REDUCESCATTER, b->shapes[0][0] = 0, false); /* all must give the same rows */
    CHANGED(HVD_REDUCESCATTER, b->request.reduction = HVD_AVERAGE, false);
    CHANGED(HVD_REDUCESCATTER, b->request.postscale = &(double){2}, false);
}

TEST(what_does_not_matter_is_left_out)
{
    static const int64_t splits[] = {2, 0};
    CHANGED(HVD_BROADCAST, b->request.reduction = HVD_MAX, true);
    CHANGED(HVD_BROADCAST, b->request.prescale = &(double){NAN}, true);
    CHANGED(HVD_BROADCAST, b->request.outputs = b->outputs, true);
    CHANGED(HVD_ALLGATHER, b->shapes[0][0] = 0, true); /* each rank has its own number of rows */
    CHANGED(HVD_ALLTOALL, b->shapes[0][0] = 4, true);
    CHANGED(HVD_ALLTOALL, b->request.splits = splits, true); /* these, too */
}

TEST(summary_has_what_the_root_needs)
{
    struct example *e = example_of(HVD_ALLREDUCE);
    struct signature_summary summary, other;
    e->request.priority = -7;
    e->request.count = 2;
    struct signature signature = encode(e);
    assert_true(signature_summarize(&signature, &summary));
    assert_int_equal(summary.operation, HVD_ALLREDUCE);
    assert_int_equal(summary.dtype, HVD_FLOAT32);
    assert_int_equal(summary.device_type, HVD_CPU);
    assert_int_equal(summary.bytes, 48);
    assert_int_equal(summary.priority, -7);
    assert_true(summary.may_fuse);
    e->request.priority = 0;
    e->shapes[0][0] = 9;
    struct signature fusable = encode(e);
    assert_true(signature_summarize(&fusable, &other));
    assert_memory_equal(summary.fusion_key, other.fusion_key, FUSION_KEY_LENGTH);
    free(fusable.bytes);
    e->request.postscale = &(double){0.5};
    fusable = encode(e);
    assert_true(signature_summarize(&fusable, &other));
    assert_memory_not_equal(summary.fusion_key, other.fusion_key, FUSION_KEY_LENGTH);
    free(fusable.bytes);
    free(signature.bytes);
    signature = encode(example_of(HVD_ALLGATHER));
    assert_true(signature_summarize(&signature, &summary));
    assert_false(summary.may_fuse);
    assert_int_equal(summary.bytes, 0);
    free(signature.bytes);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

/* Equal except for one change. */
#define REFUSED(operation, change, code, words)                                                              \
    do {                                                                                                     \
        struct example *e = example_of(operation);                                                           \
        change;                                                                                              \
        check_refused(e, code, words);                                                                       \
    } while (0)
#define INVALID(operation, change, words) REFUSED(operation, change, HVD_INVALID_ARGUMENT, words)

TEST(bad_operations_are_refused)
{
    INVALID((hvd_operation)99, (void)e, "operation number 99");
    INVALID(HVD_ALLREDUCE, e->request.reduction = (hvd_reduction)9, "reduction number 9");
    INVALID(HVD_ALLREDUCE, e->request.count = 0, "of 0 tensors");
    INVALID(HVD_ALLREDUCE, e->request.count = -1, "of -1 tensors");
    INVALID(HVD_ALLREDUCE, e->request.inputs = NULL, "inputs is NULL");
    INVALID(HVD_BARRIER, e->request.count = 1, "it takes none");
    INVALID(HVD_ALLTOALL, e->request.count = 2, "alltoall of 2 tensors");
    INVALID(HVD_REDUCESCATTER, e->request.reduction = HVD_MAX, "reducescatter: the reduction is max");
    INVALID(HVD_BROADCAST, e->request.root = -1, "rank -1");
}

TEST(impossible_reductions_are_refused)
{
    struct example *e = example_of(HVD_ALLREDUCE);
    e->inputs[0].dtype = HVD_BOOL;
    free(encode(e).bytes);
    e->request.reduction = HVD_AVERAGE;
    check_refused(e, HVD_INVALID_ARGUMENT, "allreduce: there is no average of bool");
    e->request.reduction = HVD_SUM;
    e->request.postscale = &(double){0};
    check_refused(e, HVD_INVALID_ARGUMENT, "bool can't be multiplied");
    e->inputs[0].dtype = HVD_INT32;
    free(encode(e).bytes);
    e->request.postscale = &(double){INFINITY};
    check_refused(e, HVD_INVALID_ARGUMENT, "int32 can't be multiplied by 1 before and inf after");
    e->inputs[0].dtype = HVD_FLOAT16;
    free(encode(e).bytes);
    e->request.postscale = &(double){1};
    free(encode(e).bytes);
    e->inputs[0].dtype = HVD_COMPLEX64;
    e->request.reduction = HVD_MAX;
    check_refused(e, HVD_INVALID_ARGUMENT, "allreduce: there is no max of complex64");
    e->request.operation = HVD_BROADCAST; /* reduces nothing */
    free(encode(e).bytes);
}

TEST(bad_tensors_are_refused)
{
    INVALID(HVD_ALLREDUCE, e->inputs[0].dtype = (hvd_dtype)99, "type number 99");
    INVALID(HVD_ALLREDUCE, e->inputs[0].device_type = 0, "device of type 0, which does not exist");
    INVALID(HVD_ALLREDUCE, e->inputs[0].device_type = 256, "device of type 256");
    INVALID(HVD_ALLREDUCE, e->shapes[0][1] = -3, "[2, -3]");
    INVALID(HVD_ALLREDUCE, e->inputs[0].data = NULL, "no data");
    INVALID(HVD_ALLREDUCE, e->inputs[0].shape = NULL, "no shape");
    INVALID(HVD_ALLREDUCE, e->inputs[0].ndim = HVD_MAX_DIMENSIONS + 1, "33 dimensions");
    INVALID(HVD_ALLREDUCE, e->inputs[0].ndim = -1, "-1 dimensions");
    INVALID(HVD_ALLGATHER, e->inputs[0].ndim = 0, "no dimensions; it must have rows");
    INVALID(HVD_REDUCESCATTER, e->inputs[0].ndim = 0, "no dimensions; it must have rows");
}

TEST(tensors_that_do_not_fit_are_refused)
{
    struct example *e = example_of(HVD_ALLREDUCE);
    e->request.outputs = e->outputs;
    e->outputs[0].device_type = 2;
    check_refused(e, HVD_INVALID_ARGUMENT, "on a device of type 2, tensor 0 on one of type 1");
    e->outputs[0].device_type = HVD_CPU;
    e->outputs[0].shape = e->shapes[1];
    e->shapes[1][0] = 3;
    check_refused(e, HVD_INVALID_ARGUMENT, "output 0 is float32 [3, 3], its input float32 [2, 3]");
}

TEST(a_group_may_have_several_types)
{
    static const hvd_operation operations[] = {HVD_REDUCESCATTER, HVD_ALLREDUCE, HVD_BROADCAST};
    for (int i = 0; i < 3; i++) {
        struct signature_summary summary;
        struct example *e = example_of(operations[i]);
        e->request.count = 2;
        e->inputs[1].dtype = HVD_FLOAT64;
        struct signature signature = encode(e);
        assert_true(signature_summarize(&signature, &summary));
        assert_int_equal(summary.types, operations[i] == HVD_BROADCAST ? 1 << HVD_UINT8
                                                                       : 1 << HVD_FLOAT32 | 1 << HVD_FLOAT64);
        assert_int_equal(summary.may_fuse, operations[i] == HVD_BROADCAST);
        assert_int_equal(summary.bytes, 6 * 4 + 6 * 8);
        free(signature.bytes);
        e->inputs[1].dtype = HVD_FLOAT32;
        signature = encode(e);
        assert_true(signature_summarize(&signature, &summary) && summary.may_fuse);
        free(signature.bytes);
    }
    struct example *e = example_of(HVD_ALLREDUCE);
    e->request.count = 2;
    e->request.reduction = HVD_MAX;
    e->inputs[1].dtype = HVD_COMPLEX64;
    check_refused(e, HVD_INVALID_ARGUMENT, "there is no max of complex64");
}

TEST(results_have_rows_of_their_own)
{
    static const hvd_operation operations[] = {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER};
    for (int i = 0; i < 3; i++) {
        struct example *e = example_of(operations[i]);
        e->request.outputs = e->outputs;
        e->outputs[0].shape = e->shapes[1];
        e->shapes[1][0] = 7;
        free(encode(e).bytes);
        e->shapes[1][1] = 4;
        check_refused(e, HVD_INVALID_ARGUMENT, "output 0 is float32 [7, 4], its input float32 [2, 3]");
        check_refused(e, HVD_INVALID_ARGUMENT, "must be the same but for the first dimension");
        e->shapes[1][1] = 3;
        e->outputs[0].dtype = HVD_INT32;
        check_refused(e, HVD_INVALID_ARGUMENT, "output 0 is int32 [7, 3], its input float32 [2, 3]");
        e->outputs[0].dtype = HVD_FLOAT32;
        e->outputs[0].data = NULL;
        check_refused(e, HVD_INVALID_ARGUMENT, "has no data");
    }
}

TEST(without_elements_no_data_are_needed)
{
    struct example *e = example_of(HVD_ALLREDUCE);
    e->inputs[0].data = NULL;
    e->shapes[0][0] = 0;
    free(encode(e).bytes);
}

TEST(a_signature_has_a_limit)
{
    static hvd_tensor tensors[REQUEST_TENSOR_LIMIT];
    struct example *e = example_of(HVD_ALLREDUCE);
    e->inputs[0].ndim = 20;
    for (int d = 0; d < 20; d++)
        e->shapes[0][d] = 1;
    for (int i = 0; i < REQUEST_TENSOR_LIMIT; i++)
        tensors[i] = e->inputs[0];
    e->request.inputs = tensors;
    e->request.count = REQUEST_TENSOR_LIMIT;
    check_refused(e, HVD_INVALID_ARGUMENT, "split the group");
}

/* Every prefix of a signature, and every one with a byte too many, is no signature. */
TEST(cut_signatures_are_malformed)
{
    struct example *e = example_of(HVD_ALLREDUCE);
    struct signature_summary summary;
    e->request.count = 2;
    struct signature signature = encode(e);
    uint8_t *longer = calloc(1, signature.length + 1);
    memcpy(longer, signature.bytes, signature.length);
    for (uint32_t length = 0; length < signature.length; length++) {
        struct signature cut = {longer, length};
        assert_false(signature_summarize(&cut, &summary));
    }
    struct signature padded = {longer, signature.length + 1};
    assert_false(signature_summarize(&padded, &summary));
    longer[0] = 77; /* no operation */
    padded.length = signature.length;
    assert_false(signature_summarize(&padded, &summary));
    free(longer);
    free(signature.bytes);
}

/* ---- differences --------------------------------------------------------------------------------------- */

static void check_difference(const struct example *a, const struct example *b, const char *what,
                             const char *says_a, const char *says_b)
{
    struct signature first = encode(a), second = encode(b);
    char words[3][128];
    signature_difference(&first, &second, NULL, words[0], words[1], words[2], sizeof words[0]);
    assert_string_equal(words[0], what);
    assert_string_equal(words[1], says_a);
    assert_string_equal(words[2], says_b);
    free(first.bytes);
    free(second.bytes);
}

TEST(differences_are_named)
{
    struct example *a = example_of(HVD_ALLREDUCE), *b = example_of(HVD_ALLREDUCE);
    b->shapes[0][1] = 4;
    check_difference(a, b, "the shape of tensor 0", "[2, 3]", "[2, 4]");
    b->inputs[0].dtype = HVD_FLOAT16;
    check_difference(a, b, "the type of tensor 0", "float32", "float16");
    b->request.count = 2;
    b->inputs[1].dtype = HVD_FLOAT16;
    check_difference(a, b, "the number of tensors", "1", "2");
    b->request.grouped = 1;
    check_difference(a, b, "grouping", "a single tensor", "a group");
    b->request.priority = 5;
    check_difference(a, b, "the priority", "0", "5");
    b->request.postscale = &(double){0.25};
    check_difference(a, b, "the postscale factor", "1", "0.25");
    b->request.reduction = HVD_MAX;
    check_difference(a, b, "the reduction", "sum", "max");
    check_difference(a, example_of(HVD_BARRIER), "the operation", "allreduce", "barrier");
    a = example_of(HVD_BROADCAST), b = example_of(HVD_BROADCAST);
    b->request.root = 3;
    check_difference(a, b, "the root rank", "0", "3");
    a = example_of(HVD_ALLGATHER), b = example_of(HVD_ALLGATHER);
    b->shapes[0][1] = 7;
    check_difference(a, b, "the shape of tensor 0", "[*, 3]", "[*, 7]");
    b->inputs[0].ndim = 1;
    check_difference(a, b, "the shape of tensor 0", "[*, 3]", "[*]");
}
