/* kernel.h - how the element kernels of this folder are compiled and found. Internal to src/device. Kernels
 * are pure functions, and their tables constant; any thread. */
#ifndef HVD_DEVICE_KERNEL_H
#define HVD_DEVICE_KERNEL_H

#include "device/reduce.h"

#include <math.h>
#include <stdint.h>

/* KERNEL: a function that is compiled for several instruction sets, of which the loader picks one. It has no
 * effect under sanitizers, as the loader would call into them before they are set up, or in tests of one
 * level. Clang supports these levels from version 18 on. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) &&                                        \
    (!defined(__clang__) || __clang_major__ >= 18) && !defined(__SANITIZE_ADDRESS__) &&                      \
    !defined(__SANITIZE_THREAD__) && !defined(HVD_ONE_LEVEL)
#define KERNEL __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define KERNEL
#endif

/* KERNEL_LOOP: operands may be equal, but no element depends on another one. */
#if defined(__clang__)
#define KERNEL_LOOP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define KERNEL_LOOP _Pragma("GCC ivdep")
#else
#define KERNEL_LOOP
#endif

/* ONE_NAN: of two NaNs the processor returns the one that the compiler happens to put first, which may differ
 * between the body and the end of a loop. Ranks that compute the same sum must get the same bits, so every
 * NaN that is computed becomes this one. */
#define ONE_NAN(value) ((value) == (value) ? (value) : NAN)

/* Converts between a half type and float32. */
typedef void (*convert_fn)(void *result, const void *source, size_t elements);

/* The factors of the operands in kernels of half types. */
struct weights {
    float a, b;
};

/* Does what reduce_scale does, for one type. */
typedef void (*scale_fn)(void *result, const void *a, size_t elements, double factor, int64_t divisor);

/* NULL: the type has no such operation, see types_check_reduction. */
struct kernels {
    combine_fn sum, min, max, product;
    scale_fn scale;
    weigh_fn weigh;           /* of half types */
    convert_fn widen, narrow; /* of half types; a NaN that is narrowed is ONE_NAN */
};

/* Returns the fastest kernels of this processor. */
const struct kernels *kernels_of(hvd_dtype dtype);

/* kernels_UINT8, kernels_FLOAT32, ... : the portable kernels of each row of dtypes.def. */
#define DTYPE(name, ...) extern const struct kernels kernels_##name;
#include "base/dtypes.def"
#undef DTYPE

/* Returns kernels of a 16-bit float that use instructions of this processor, the fastest at place 0; NULL
 * after the last. */
const struct kernels *kernels_native(hvd_dtype dtype, int place);

void narrow_bfloat16(void *result, const void *source, size_t elements);

#endif
