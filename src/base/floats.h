/* floats.h - the floating-point mode in which the engine computes, whatever the mode of the calling thread
 * is. Frameworks let their threads treat subnormal numbers as zeros; without one mode, ranks that compute the
 * same would get different bits. Any thread; floats_begin and floats_end are called in pairs by the same
 * thread. */
#ifndef HVD_BASE_FLOATS_H
#define HVD_BASE_FLOATS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLOATS_IEEE  0x1f80U /* round to nearest, subnormal numbers count, no traps */
#define FLOATS_FLAGS 0x003fU /* exceptions that have happened */

/* Sets the engine's mode until floats_end; returns the mode of the thread, for floats_end. */
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
