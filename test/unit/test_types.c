/* test_types.c - the tables of element types: sizes, names, and which type knows which reduction. */
#include "base/types.h"
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers on the wire stay what they are. */
TEST(test_numbers)
{
    static const struct {
        int number;
        const char *name;
        size_t size;
    } rows[] = {{0, "uint8", 1},   {1, "int8", 1},       {2, "uint16", 2},      {3, "int16", 2},
                {4, "int32", 4},   {5, "int64", 8},      {6, "float16", 2},     {7, "float32", 4},
                {8, "float64", 8}, {9, "bool", 1},       {10, "bfloat16", 2},   {11, "uint32", 4},
                {12, "uint64", 8}, {13, "complex64", 8}, {14, "complex128", 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(dtype_known(rows[i].number));
        assert_string_equal(hvd_dtype_name((hvd_dtype)rows[i].number), rows[i].name);
        assert_int_equal(hvd_dtype_size((hvd_dtype)rows[i].number), rows[i].size);
    }
    assert_false(dtype_known(200));
    assert_false(dtype_known(-1));
    assert_string_equal(hvd_dtype_name((hvd_dtype)255), "unknown");
}

static void check_refused(hvd_dtype dtype, hvd_reduction reduction, double factor, const char *words)
{
    ASSERT_FAILS(types_check_reduction(HVD_ALLREDUCE, dtype, reduction, (double[]){1, factor}, &check_status),
                 HVD_INVALID_ARGUMENT, words);
}

TEST(test_reductions_of_types)
{
    check_refused(HVD_BOOL, HVD_AVERAGE, 1, "no average of bool; what it has: sum, min, max, product");
    check_refused(HVD_BOOL, HVD_SUM, 0, "bool can't be multiplied");
    check_refused(HVD_UINT8, HVD_SUM, NAN, "uint8 can't be multiplied by 1 before and nan after");
    check_refused(HVD_COMPLEX64, HVD_MIN, 1, "no min of complex64; what it has: average, sum, product");
    check_refused(HVD_INT32, HVD_ADASUM, 1, "no adasum of int32");
    check_refused(HVD_COMPLEX128, HVD_MAX, 2, "no max of complex128");
    static const int allowed[] = {[FAMILY_logical] = 4, /* no average, no Adasum */
                                  [FAMILY_integer] = 5, /* no Adasum */
                                  [FAMILY_real] = 6,
                                  [FAMILY_half] = 6,
                                  [FAMILY_complex] = 3}; /* no order */
#define DTYPE(dtype, text, storage, compute, family, ...)                                                    \
    {                                                                                                        \
        int count = 0;                                                                                       \
        for (int r = 0; r < 16; r++)                                                                         \
            count += !types_check_reduction(HVD_ALLREDUCE, HVD_##dtype, (hvd_reduction)r, (double[]){1, 1},  \
                                            NULL);                                                           \
        assert_int_equal(count, allowed[FAMILY_##family]);                                                   \
    }
#include "base/dtypes.def"
#undef DTYPE
    ASSERT_OK(types_check_reduction(HVD_ALLREDUCE, HVD_INT8, HVD_AVERAGE, (double[]){2, 0}, &check_status));
}

/* A refusal lists only the reductions of the operation. */
TEST(test_reductions_of_reducescatter)
{
    hvd_status status;
    types_check_reduction(HVD_REDUCESCATTER, HVD_BOOL, HVD_AVERAGE, (double[]){1, 1}, &status);
    assert_non_null(strstr(status.text, "what it has: sum."));
}

/* Facts that follow from another column are stated once. */
TEST(test_operations)
{
#define OPERATION(name, text, ...)                                                                           \
    do {                                                                                                     \
        const struct operation *row = &operation_table[HVD_##name];                                          \
        assert_true(operation_known(HVD_##name) && (int)HVD_##name < OPERATION_NUMBERS);                     \
        assert_string_equal(hvd_operation_name(HVD_##name), text);                                           \
        assert_int_equal(row->result == RESULT_nothing, row->shape == SHAPE_no_tensors);                     \
        assert_int_equal(operation_makes_results(HVD_##name),                                                \
                         row->result != RESULT_nothing && row->result != RESULT_same);                       \
        assert_false(operation_reduces(HVD_##name) && row->shape == SHAPE_no_tensors);                       \
    } while (0);
#include "base/operations.def"
#undef OPERATION
    assert_false(operation_known(OPERATION_NUMBERS));
    assert_true(operation_does(HVD_ALLREDUCE, HVD_ADASUM));
    assert_true(operation_does(HVD_REDUCESCATTER, HVD_AVERAGE));
    assert_false(operation_does(HVD_REDUCESCATTER, HVD_MIN));
    ASSERT_FAILS(types_check_reduction(HVD_REDUCESCATTER, HVD_INT8, HVD_MIN, (double[]){1, 1}, &check_status),
                 HVD_INVALID_ARGUMENT, "reducescatter: the reduction is min; it may be average, sum");
}
