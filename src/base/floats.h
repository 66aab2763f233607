/* floats.h - the floating-point mode in which the engine computes, whatever the thread's is: frameworks let
 * threads of theirs, and those that these start, take subnormal numbers for zeros. Ranks that compute the
 * same would get different bits. */
#ifndef HVD_BASE_FLOATS_H
#define HVD_BASE_FLOATS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLOATS_IEEE  0x1f80U /* round to nearest, subnormal numbers count, no traps */
#define FLOATS_FLAGS 0x003fU /* exceptions that have happened */

/* From here to floats_end; returns the thread's own mode. */
static inline uint64_t floats_begin(void)
{
    unsigned own = _mm_getcsr();
    if ((own & ~FLOATS_FLAGS) != FLOATS_IEEE)
        _mm_setcsr(FLOATS_IEEE);
    return own;
}

static inline void floats_end(uint64_t own)
{
    if ((own & ~FLOATS_FLAGS) != FLOATS_IEEE)
        _mm_setcsr((unsigned)own);
}

#elif defined(__aarch64__)

static inline uint64_t floats_begin(void)
{
    uint64_t own;
    __asm__ volatile("mrs %0, fpcr" : "=r"(own));
    if (own)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0) : "memory");
    return own;
}

static inline void floats_end(uint64_t own)
{
    if (own)
        __asm__ volatile("msr fpcr, %0" : : "r"(own) : "memory");
}

#else /* as the thread does */

static inline uint64_t floats_begin(void)
{
    return 0;
}

static inline void floats_end(uint64_t own)
{
    (void)own;
}
#endif

#endif
