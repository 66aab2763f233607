/* cpu_model.c - see cpu_model.h. */
#include "device/cpu_model.h"

#if defined(HVD_OWN_CPU_MODEL) && defined(__x86_64__)
#include <cpuid.h>
#include <stdbool.h>

/* Only those that kernel.h and reduce_x86.c ask for. */
enum feature {
    AVX = 9,
    AVX2 = 10,
    AVX512F = 15,
    AVX512BW = 21,
    AVX512DQ = 22,
    AVX512BF16 = 36,
    F16C = 49,
    LEVEL_2 = 96,
    LEVEL_3 = 97,
    LEVEL_4 = 98
};

enum { YMM = 0x6, ZMM = 0xe6 }; /* registers that the system saves */

struct cpu_model __cpu_model;
unsigned __cpu_features2[3];

static void set(enum feature feature, bool there)
{
    unsigned *words = feature < 32 ? __cpu_model.features : __cpu_features2 - 1;
    words[feature / 32] |= (unsigned)there << feature % 32;
}

/* Returns true if all these bits are set. */
static bool has(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}

int __cpu_indicator_init(void)
{
    unsigned a, b, c, base = 0, extended = 0, more = 0, low = 0, high;
    if (!__get_cpuid(1, &a, &b, &base, &high))
        return -1;
    __get_cpuid_count(7, 0, &a, &extended, &c, &high);
    __get_cpuid(0x80000001, &a, &b, &more, &high);
    if (!__get_cpuid_count(7, 1, &c, &b, &a, &high))
        c = 0;
    if (has(base, bit_OSXSAVE))
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    bool ymm = has(low, YMM), zmm = has(low, ZMM);
    bool level_2 = has(base, bit_SSE3 | bit_SSSE3 | bit_SSE41 | bit_SSE42 | bit_POPCNT | bit_CMPXCHG16B) &&
                   has(more, bit_LAHF_LM);
    bool level_3 = level_2 && ymm && has(base, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE) &&
                   has(extended, bit_AVX2 | bit_BMI | bit_BMI2) && has(more, bit_LZCNT);
    bool level_4 = level_3 && zmm &&
                   has(extended, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL);
    set(AVX, ymm && has(base, bit_AVX));
    set(F16C, ymm && has(base, bit_F16C));
    set(AVX2, ymm && has(extended, bit_AVX2));
    set(AVX512F, zmm && has(extended, bit_AVX512F));
    set(AVX512BW, zmm && has(extended, bit_AVX512BW));
    set(AVX512DQ, zmm && has(extended, bit_AVX512DQ));
    set(AVX512BF16, zmm && has(c, bit_AVX512BF16));
    set(LEVEL_2, level_2);
    set(LEVEL_3, level_3);
    set(LEVEL_4, level_4);
    return 0;
}
#endif
