/* nontemporal.c - copies with stores that bypass the caches, eight bytes or a line at a time. Any thread. */
#include "base/nontemporal.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

#define LINE 64

static void copy_lines(char *to, const char *from, size_t lines)
{
    for (; lines; lines--, to += LINE, from += LINE) {
        for (int at = 0; at < LINE; at += 16)
            _mm_stream_si128((__m128i *)(void *)(to + at),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    }
    _mm_sfence(); /* they keep no order by themselves */
}

void nontemporal_copy(void *to, const void *from, size_t length)
{
    char *target = to;
    const char *source = from;
    size_t head = -(uintptr_t)to % LINE;
    if (head > length)
        head = length;
    size_t tail = (length - head) % LINE;
    memcpy(target, source, head);
    copy_lines(target + head, source + head, (length - head) / LINE);
    memcpy(target + length - tail, source + length - tail, tail);
}

#else

void nontemporal_copy(void *to, const void *from, size_t length)
{
    memcpy(to, from, length);
}
#endif
