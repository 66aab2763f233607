/* test_identity.c - the identity of every reduction, through the kernels: e op x is x, both ways. */
#include "device/memory.h"
#include "device/reduce.h"
#include "numbers.h"
#include "test.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ELEMENTS = 37 };

#define MINUS_ZERO_logical(storage) 0
#define MINUS_ZERO_integer(storage) 0
#define MINUS_ZERO_half(storage)    ((storage)(1 << (8 * sizeof(storage) - 1)))
#define MINUS_ZERO_real(storage)    (-(storage)0)
#define MINUS_ZERO_complex(storage) (-(storage)0)

/* Patterns that are a number in every type: bytes 0 or 1, so no NaN; and in sums -0, which 0 would change. */
static void fill_with_numbers(uint8_t *data, size_t elements, hvd_dtype dtype, hvd_reduction reduction)
{
    for (size_t i = 0; i < elements * hvd_dtype_size(dtype); i++)
        data[i] = (uint8_t)(i * 7 % 3 == 0);
    for (size_t i = 0; i < elements && reduction == HVD_SUM; i += 5) {
#define DTYPE(name, text, storage, compute, family, ...)                                                     \
    if (dtype == HVD_##name)                                                                                 \
        ((storage *)data)[i] = MINUS_ZERO_##family(storage);
#include "base/dtypes.def"
#undef DTYPE
    }
}

static void check(hvd_dtype dtype, hvd_reduction reduction)
{
    static _Alignas(16) uint8_t x[ELEMENTS * 16], e[ELEMENTS * 16], result[ELEMENTS * 16];
    size_t bytes = ELEMENTS * hvd_dtype_size(dtype);
    if (!reduction_takes(reduction, dtype))
        return;
    fill_with_numbers(x, ELEMENTS, dtype, reduction);
    uint8_t element[IDENTITY_BYTES];
    identity_element(dtype, reduction, element);
    memory_host.fill(e, element, hvd_dtype_size(dtype), ELEMENTS, NULL);
    reduce_combine(dtype, reduction)(result, e, x, ELEMENTS);
    if (memcmp(result, x, bytes))
        fail_msg("identity %s x is not x for %s", reduction_name(reduction), hvd_dtype_name(dtype));
    reduce_combine(dtype, reduction)(result, x, e, ELEMENTS);
    if (memcmp(result, x, bytes))
        fail_msg("x %s identity is not x for %s", reduction_name(reduction), hvd_dtype_name(dtype));
}

TEST(test_every_pair)
{
    static const hvd_reduction some[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
    for (size_t t = 0; t < DTYPES; t++) {
        for (size_t r = 0; r < sizeof some / sizeof *some; r++)
            check(dtypes[t], some[r]);
    }
}
