/* dtype.c - converts element types from and to the numbers of frameworks, by a table from dtypes.def. Any
 * thread; also compiled into TensorFlow's library, so it has only constant data and calls nothing. */
#include "native/dtype.h"

static const struct {
    hvd_dtype dtype;
    int numbers[FRAMEWORKS];
} types[] = {
#define DTYPE(name, text, storage, compute, family, format, letters, dlpack, xla, tensorflow, mxnet)         \
    {HVD_##name, {xla, tensorflow, mxnet}},
#include "base/dtypes.def"
#undef DTYPE
};

hvd_dtype dtype_of(enum framework framework, int number)
{
    for (size_t i = 0; number >= 0 && i < sizeof types / sizeof *types; i++) {
        if (types[i].numbers[framework] == number)
            return types[i].dtype;
    }
    return (hvd_dtype)-1;
}

int dtype_number(enum framework framework, hvd_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype == dtype)
            return types[i].numbers[framework];
    }
    return -1;
}
