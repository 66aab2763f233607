/* test_outputs.c - results in memory of the caller: an output of another shape than the result is an error of
 * that rank alone, and input and output may share the memory of the rank's own rows. test_exchanges.c tests
 * the values of every type. */
#include "group.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 3, MOST_ROWS = 4 * MOST_RANKS };

static const hvd_operation operations[] = {HVD_ALLGATHER, HVD_REDUCESCATTER, HVD_ALLTOALL};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Two rows a rank, all of them `rank + 1`, so that the results are simple: rows that a rank gets, and the
 * first element of row i. */
static int64_t rows_given(const struct member *member, hvd_operation operation)
{
    return operation == HVD_ALLGATHER ? 2 : 2 * member->size;
}

static int64_t rows_got(const struct member *member, hvd_operation operation)
{
    return operation == HVD_REDUCESCATTER ? 2 : 2 * member->size;
}

static float expected(const struct member *member, hvd_operation operation, int64_t row)
{
    return operation == HVD_REDUCESCATTER ? (float)sum_of(member) : (float)(row / 2 + 1);
}

struct buffers {
    float input[MOST_ROWS * WIDTH], output[MOST_ROWS * WIDTH + 1];
    int64_t in_shape[2], out_shape[2];
    hvd_tensor in, out;
};

static hvd_request request_with(const struct member *member, hvd_operation operation, const char *name,
                                struct buffers *buffers)
{
    for (int i = 0; i < MOST_ROWS * WIDTH; i++) {
        buffers->input[i] = (float)(member->rank + 1);
        buffers->output[i] = -1;
    }
    buffers->in_shape[0] = rows_given(member, operation);
    buffers->out_shape[0] = rows_got(member, operation);
    buffers->in_shape[1] = buffers->out_shape[1] = WIDTH;
    buffers->in = tensor_of(buffers->input, HVD_FLOAT32, buffers->in_shape, 2);
    buffers->out = tensor_of(buffers->output, HVD_FLOAT32, buffers->out_shape, 2);
    hvd_request request = request_of(operation, name, &buffers->in);
    request.outputs = &buffers->out;
    return request;
}

static void check_result(const struct member *member, hvd_operation operation, const float *got)
{
    for (int64_t i = 0; i < rows_got(member, operation) * WIDTH; i++)
        CHECK(got[i] == expected(member, operation, i / WIDTH), "%s: element %d is %g",
              hvd_operation_name(operation), (int)i, got[i]);
}

static hvd_code run(struct member *member, const hvd_request *request, hvd_status *status)
{
    hvd_handle *handle;
    hvd_code code = hvd_submit(member->context, request, &handle, status);
    CHECK(code == HVD_OK, "%s", status->text);
    code = hvd_wait(handle, 60, status);
    hvd_release(handle);
    return code;
}

/* One rank's output has too many rows, or too few: its error names both shapes and its memory is unchanged;
 * the others have their results, and this rank has its result the next time. */
static void wrong_rows(struct member *member, hvd_operation operation, int wrong_rank, int64_t more)
{
    struct buffers buffers;
    hvd_status status;
    char name[64], words[128];
    snprintf(name, sizeof name, "%s %d", hvd_operation_name(operation), wrong_rank);
    hvd_request request = request_with(member, operation, name, &buffers);
    if (member->rank == wrong_rank)
        buffers.out_shape[0] += more;
    hvd_code code = run(member, &request, &status);
    if (member->rank == wrong_rank) {
        int64_t rows = rows_got(member, operation);
        CHECK(code == HVD_MISMATCH, "%s: %s", hvd_code_name(code), status.text);
        snprintf(words, sizeof words, "on rank %d output 0 has shape [%d, 3], but its result has [%d, 3]",
                 member->rank, (int)(rows + more), (int)rows);
        CHECK(strstr(status.text, words), "\"%s\" does not say \"%s\"", status.text, words);
        for (int i = 0; i < MOST_ROWS * WIDTH; i++)
            CHECK(buffers.output[i] == -1, "element %d was written", i);
    } else {
        CHECK(code == HVD_OK, "%s", status.text);
        check_result(member, operation, buffers.output);
    }
    buffers.out_shape[0] = rows_got(member, operation);
    CHECK_OK(run(member, &request, &check_status));
    check_result(member, operation, buffers.output);
}

static void wrong_shapes(struct member *member)
{
    for (int o = 0; o < OPERATIONS; o++)
        for (int rank = 0; rank < member->size; rank++)
            wrong_rows(member, operations[o], rank, rank % 2 ? -1 : 1);
    check_allreduce_works(member, "the job goes on");
}

/* The input shares memory with the output, but not where its own rows belong. */
static void shared_elsewhere(struct member *member)
{
    for (int o = 0; o < OPERATIONS; o++) {
        struct buffers buffers;
        hvd_status status;
        hvd_request request = request_with(member, operations[o], "shared", &buffers);
        bool here = member->rank == member->size - 1;
        if (here)
            buffers.in.data = buffers.output + 1; /* rows of the last rank are at the end */
        hvd_code code = run(member, &request, &status);
        CHECK(code == (here ? HVD_MISMATCH : HVD_OK), "%s: %s", hvd_code_name(code), status.text);
        CHECK(!here || strstr(status.text, "shares memory with its input"), "%s", status.text);
    }
    check_allreduce_works(member, "the job goes on");
}

/* Of its three outputs two are the same memory: they are written one after the other. */
static void run_group(struct member *member, hvd_operation operation, bool fits)
{
    struct buffers buffers[3];
    hvd_tensor inputs[3], outputs[3];
    hvd_request request;
    hvd_status status;
    for (int t = 0; t < 3; t++) {
        request = request_with(member, operation, "group", &buffers[t]);
        inputs[t] = buffers[t].in;
        outputs[t] = buffers[t].out;
    }
    for (int i = 0; i < MOST_ROWS * WIDTH; i++)
        buffers[2].input[i] *= 10;
    buffers[0].out_shape[0] += !fits;
    outputs[2].data = outputs[0].data;
    request.inputs = inputs;
    request.outputs = outputs;
    request.count = 3;
    request.grouped = 1;
    hvd_code code = run(member, &request, &status);
    CHECK(code == (fits ? HVD_OK : HVD_MISMATCH), "%s: %s", hvd_code_name(code), status.text);
    check_result(member, operation, buffers[1].output);
    for (int64_t i = 0; i < rows_got(member, operation) * WIDTH; i++) {
        float tenfold = 10 * expected(member, operation, i / WIDTH);
        CHECK(buffers[0].output[i] == tenfold, "element %d is %g, not %g", (int)i, buffers[0].output[i],
              tenfold);
    }
}

/* Where the first output does not fit on one rank, that is its error at the end: the other ranks need its
 * part in the rest of the group. */
static void groups(struct member *member)
{
    for (int o = 0; o < 2; o++) { /* an alltoall has one tensor */
        run_group(member, operations[o], true);
        for (int rank = 0; rank < member->size; rank++)
            run_group(member, operations[o], member->rank != rank);
    }
    check_allreduce_works(member, "the job goes on");
}

/* What is in the caller's memory can't be taken from the handle; an alltoall's received splits can. */
static void handles(struct member *member)
{
    for (int o = 0; o < OPERATIONS; o++) {
        struct buffers buffers;
        hvd_handle *handle;
        hvd_status status;
        hvd_tensor output;
        hvd_request request = request_with(member, operations[o], NULL, &buffers);
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        CHECK_OK(hvd_wait(handle, 60, &check_status));
        CHECK(hvd_output(handle, 0, &output, &status) == HVD_INVALID_ARGUMENT, "output 0");
        CHECK(strstr(status.text, "in its output tensor"), "%s", status.text);
        hvd_code code = hvd_output(handle, 1, &output, &status);
        CHECK((code == HVD_OK) == (operations[o] == HVD_ALLTOALL), "output 1: %s", hvd_code_name(code));
        CHECK(code || (output.shape[0] == member->size && ((int64_t *)output.data)[0] == 2), "splits");
        hvd_release(handle);
        check_result(member, operations[o], buffers.output);
    }
}

/* A rank that has joined gives no rows. */
static void with_a_joined_rank(struct member *member)
{
    struct buffers buffers;
    hvd_status status;
    hvd_request join = {.struct_size = sizeof join, .operation = HVD_JOIN};
    if (member->rank) {
        hvd_request request = request_with(member, HVD_ALLGATHER, "rows of the others", &buffers);
        buffers.out_shape[0] -= 2;
        CHECK(run(member, &request, &status) == HVD_OK, "%s", status.text);
        for (int64_t i = 0; i < buffers.out_shape[0] * WIDTH; i++)
            CHECK(buffers.output[i] == (float)(i / WIDTH / 2 + 2), "element %d", (int)i);
    }
    CHECK_OK(hvd_run(member->context, &join, NULL, &check_status));
}

GROUP_TEST(test_wrong_shapes, wrong_shapes, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_wrong_shapes_over_hosts, wrong_shapes, 4, 4, .transport = "auto",
           .hosts = (const char *const[]){"a", "b", "b", "a"})
GROUP_TEST(test_shared_elsewhere, shared_elsewhere, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_groups, groups, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_handles, handles, 1, 3, EVERY_TRANSPORT)
GROUP_TEST(test_with_a_joined_rank, with_a_joined_rank, 2, 3, EVERY_TRANSPORT, SETTINGS("join", "all"))
