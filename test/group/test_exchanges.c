/* test_exchanges.c - operations that give every rank rows of its own: type x size on every transport and 1 to
 * 8 ranks, against a division and sums done by hand. */
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows that a rank keeps of `rows`, as the reference of a division. */
static void rows_kept(int64_t rows, int size, int rank, int64_t *first, int64_t *count)
{
    *first = 0;
    for (int r = 0; r <= rank; r++) {
        *first += r ? *count : 0;
        *count = rows / size + (r < rows % size);
    }
}

enum { ENGINE_ALLOCATES, OUTPUT_GIVEN, GIVEN_IN_PLACE, OUTPUT_KINDS };

static void reducescatter_case(struct member *member, hvd_dtype type, hvd_reduction reduction, int64_t rows,
                               int64_t width, int output)
{
    trial_run(member, (struct trial){.operation = HVD_REDUCESCATTER,
                                     .type = type,
                                     .reduction = reduction,
                                     .rows = rows,
                                     .width = width,
                                     .given = output != ENGINE_ALLOCATES,
                                     .in_place = output == GIVEN_IN_PLACE});
}

/* Results in the caller's memory, of every type. */
static void allgather_given(struct member *member)
{
    static const int64_t rows[] = {0, 1, 40, 3001};
    for (int t = 0; t < DTYPES; t++)
        for (int output = OUTPUT_GIVEN; output < OUTPUT_KINDS; output++)
            trial_run(member, (struct trial){.operation = HVD_ALLGATHER,
                                             .type = dtypes[t],
                                             .rows = rows[(t + output) % 4],
                                             .width = 1 + t % 3,
                                             .given = true,
                                             .in_place = output == GIVEN_IN_PLACE});
}

static void reducescatter_product(struct member *member)
{
    static const int64_t rows[] = {0, 1, 3, 8, 1001, 60011};
    for (int t = 0; t < DTYPES; t++) {
        for (int c = 0; c < 6; c++) {
            hvd_reduction reduction = (t + c) % 2 ? HVD_SUM : HVD_AVERAGE;
            if ((t + c) % 3 != 0 && reduction_takes(reduction, dtypes[t]))
                reducescatter_case(member, dtypes[t], reduction, rows[c], 1 + (t + c) % 3,
                                   (t / 2 + c) % OUTPUT_KINDS);
        }
        reducescatter_case(member, dtypes[t], HVD_SUM, 5, 0, t % OUTPUT_KINDS);
    }
}

/* A group with tensors of fewer rows than ranks among them, with factors; twice gives the same bits. */
static void reducescatter_group(struct member *member)
{
    float data[3][40];
    int64_t shapes[3][2] = {{1, 5}, {20, 2}, {0, 3}};
    hvd_tensor tensors[3], outputs[2][3];
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < 40; i++)
            data[t][i] = 0.1F * (float)(i + 1) / (float)(member->rank + 3 + t);
        tensors[t] = tensor_of(data[t], HVD_FLOAT32, shapes[t], 2);
    }
    hvd_request request = request_of(HVD_REDUCESCATTER, "group", tensors);
    request.count = 3;
    request.grouped = 1;
    request.prescale = &(double){3};
    request.postscale = &(double){0.5};
    for (int turn = 0; turn < 2; turn++)
        CHECK_OK(hvd_run(member->context, &request, outputs[turn], &check_status));
    for (int t = 0; t < 3; t++) {
        int64_t first, kept = 0, width = shapes[t][1];
        rows_kept(shapes[t][0], member->size, member->rank, &first, &kept);
        CHECK(outputs[0][t].shape[0] == kept, "tensor %d of a group: %d rows, not %d", t,
              (int)outputs[0][t].shape[0], (int)kept);
        const float *got = outputs[0][t].data;
        for (int64_t i = 0; i < kept * width; i++) {
            double sum = 0;
            for (int rank = 0; rank < member->size; rank++)
                sum += 0.15 * (double)(first * width + i + 1) / (rank + 3 + t);
            CHECK(got[i] > 0.9999 * sum && got[i] < 1.0001 * sum, "tensor %d of a group: %g, not %g", t,
                  (double)got[i], sum);
        }
        CHECK(!memcmp(got, outputs[1][t].data, (size_t)(kept * width) * sizeof *got), "other bits");
        hvd_free(outputs[0][t].data);
        hvd_free(outputs[1][t].data);
    }
}

/* Many at once, so that they fuse: each keeps its own rows. */
static void reducescatters_at_once(struct member *member)
{
    enum { COUNT = 30 };
    int64_t data[COUNT][COUNT], shapes[COUNT][1];
    hvd_handle *handles[COUNT];
    for (int n = 0; n < COUNT; n++) {
        char name[24];
        snprintf(name, sizeof name, "at once %d", n);
        shapes[n][0] = n;
        for (int i = 0; i < n; i++)
            data[n][i] = 100 * n + i;
        hvd_tensor tensor = tensor_of(data[n], HVD_INT64, shapes[n], 1);
        hvd_request request = request_of(HVD_REDUCESCATTER, name, &tensor);
        CHECK_OK(hvd_submit(member->context, &request, &handles[n], &check_status));
    }
    for (int n = 0; n < COUNT; n++) {
        int64_t first, kept = 0;
        hvd_tensor output;
        CHECK_OK(hvd_wait(handles[n], -1, &check_status));
        CHECK_OK(hvd_output(handles[n], 0, &output, &check_status));
        rows_kept(n, member->size, member->rank, &first, &kept);
        CHECK(output.shape[0] == kept, "operation %d of many: %d rows", n, (int)output.shape[0]);
        for (int64_t i = 0; i < kept; i++)
            CHECK(((int64_t *)output.data)[i] == member->size * (100 * n + first + i), "operation %d", n);
        hvd_release(handles[n]);
    }
}

/* How many rows rank `from` gives to rank `to`. */
static int64_t rows_to(int pattern, int from, int to)
{
    switch (pattern) {
    case 0:
        return 0;
    case 1:
        return 3;
    case 2:
        return (from + to) % 3;
    case 3:
        return from == 1 ? 700 : 0;
    case 4:
        return to == 0 ? 5 : 0;
    default:
        return (from * 5 + to * 3) % 7 * 1500;
    }
}

static double row_value(int from, int to, int64_t i)
{
    return from * 1e6 + to * 1e5 + (double)i;
}

/* The output and the received splits of one rank. */
static void check_exchange(const struct member *member, const hvd_tensor *outputs, int pattern, int64_t width)
{
    const double *got = outputs[0].data;
    const int64_t *received = outputs[1].data;
    int64_t rows = 0;
    CHECK(outputs[1].ndim == 1 && outputs[1].shape[0] == member->size && outputs[1].dtype == HVD_INT64,
          "alltoall %d: the received splits have another form", pattern);
    for (int from = 0; from < member->size; from++) {
        int64_t given = rows_to(pattern, from, member->rank);
        CHECK(received[from] == given, "alltoall %d: %d rows from %d", pattern, (int)received[from], from);
        for (int64_t i = 0; i < given * width; i++)
            CHECK(*got++ == row_value(from, member->rank, i), "alltoall %d: element %d from %d", pattern,
                  (int)i, from);
        rows += given;
    }
    CHECK(outputs[0].ndim == 2 && outputs[0].shape[0] == rows && outputs[0].shape[1] == width,
          "alltoall %d: shape [%d, %d]", pattern, (int)outputs[0].shape[0], (int)outputs[0].shape[1]);
}

static void alltoall_case(struct member *member, int pattern, int64_t width, bool even, bool given)
{
    int64_t splits[MOST_RANKS + 3], shape[] = {even ? 0 : 2, width}; /* two rows that go nowhere */
    for (int to = 0; to < member->size; to++)
        shape[0] += splits[to] = rows_to(pattern, member->rank, to);
    double *input = calloc((size_t)(shape[0] * width) + 1, sizeof *input), *next = input;
    for (int to = 0; to < member->size; to++)
        for (int64_t i = 0; i < splits[to] * width; i++)
            *next++ = row_value(member->rank, to, i);
    int64_t result_shape[] = {0, width};
    for (int from = 0; from < member->size; from++)
        result_shape[0] += rows_to(pattern, from, member->rank);
    double *own = malloc((size_t)(result_shape[0] * width) * sizeof *own + 1);
    hvd_tensor in = tensor_of(input, HVD_FLOAT64, shape, 2), outputs[2];
    hvd_request request = request_of(HVD_ALLTOALL, even ? "even" : "uneven", &in);
    request.splits = even ? NULL : splits;
    outputs[0] = tensor_of(own, HVD_FLOAT64, result_shape, 2);
    request.outputs = given ? outputs : NULL;
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    check_exchange(member, outputs, pattern, width);
    if (!given)
        hvd_free(outputs[0].data);
    hvd_free(outputs[1].data);
    free(own);
    free(input);
}

static void alltoall_product(struct member *member)
{
    for (int pattern = 0; pattern < 6; pattern++)
        for (int64_t width = 0; width < 4; width += 1 + width)
            alltoall_case(member, pattern, width, false, width == 1);
    alltoall_case(member, 0, 2, true, false);
    alltoall_case(member, 1, 2, true, true);
}

static void check_splits_refused(struct member *member, int64_t rows, const int64_t *splits,
                                 const char *words)
{
    hvd_status status;
    float data[64] = {0};
    hvd_tensor in = tensor_of(data, HVD_FLOAT32, &rows, 1), outputs[2];
    hvd_request request = request_of(HVD_ALLTOALL, "refused", &in);
    request.splits = splits;
    hvd_code code = hvd_run(member->context, &request, outputs, &status);
    CHECK(code == HVD_INVALID_ARGUMENT, "refused splits: %s", hvd_code_name(code));
    CHECK(strstr(status.text, words), "\"%s\" does not say \"%s\"", status.text, words);
}

static void alltoall_refusals(struct member *member)
{
    int64_t splits[8] = {0};
    splits[member->size - 1] = 8;
    check_splits_refused(member, 7, splits, "exceed");
    splits[member->size - 1] = -1;
    check_splits_refused(member, 7, splits, "is -1");
    splits[member->size - 1] = INT64_MAX;
    check_splits_refused(member, 7, splits, "exceed");
    if (member->size > 1)
        check_splits_refused(member, member->size + 1, NULL, "evenly");
}

static void all_cases(struct member *member)
{
    allgather_given(member);
    reducescatter_product(member);
    reducescatter_group(member);
    reducescatters_at_once(member);
    alltoall_refusals(member);
    alltoall_product(member);
}

#define VARIANT(name, over, ...)                                                                             \
    GROUP_TEST(name, all_cases, 1, MOST_RANKS, .transport = over, SETTINGS(__VA_ARGS__))
VARIANT(over_shm, "shm", "cache_capacity", "1024")
VARIANT(over_tcp_tiny_cache, "tcp", "cache_capacity", "8")
VARIANT(over_shm_direct_reads, "shm", "shm_path", "direct")
GROUP_TEST(over_shm_direct_reads_tiny_buffers, all_cases, 2, 3, .transport = "shm",
           SETTINGS("shm_path", "direct", "shm_ring_bytes", "4096"))
GROUP_TEST(over_shm_nontemporal_stores, all_cases, 2, 3, .transport = "shm",
           SETTINGS("shm_path", "nontemporal"))
GROUP_TEST(over_faulty_shm, all_cases, 3, 3, .transport = "faulty-shm", .seconds = 300)
GROUP_TEST(over_faulty_tcp, all_cases, 2, 3, .transport = "faulty-tcp", .seconds = 300)
GROUP_TEST(over_tcp_encrypted, all_cases, 2, 3, .transport = "tcp", SETTINGS("encryption", "1"))
static const char *const hosts[8] = {"a", "b", "b", "a", "b", "c", "c", "a"};
GROUP_TEST(over_hosts, all_cases, 2, MOST_RANKS, .transport = "auto", .hosts = hosts)
VARIANT(over_shm_tiny_buffers_no_cache, "shm", "shm_ring_bytes", "4096", "cache_capacity", "0")

/* Where most pairs have no link at first. */
GROUP_TEST(alltoall_opens_links, alltoall_product, MOST_RANKS + 1, MOST_RANKS + 3, EVERY_TRANSPORT)
GROUP_TEST(alltoall_opens_faulty_links, alltoall_product, 5, 5, .transport = "faulty-tcp", .seconds = 300)
