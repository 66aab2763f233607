/* pages.c - see pages.h. */
#include "base/pages.h"

#include "base/platform.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* malloc's; all that AddressSanitizer shall see the ends of. */
static bool is_small(size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    (void)bytes;
    return true;
#else
    return bytes < PAGES_LEAST;
#endif
}

void *pages_take(size_t bytes)
{
    return is_small(bytes) ? malloc(bytes) : platform_pages_take(bytes, 1);
}

void pages_give(void *memory, size_t bytes)
{
    if (is_small(bytes))
        free(memory);
    else if (memory)
        platform_pages_give(memory, bytes);
}

void *pages_resize(void *memory, size_t bytes, size_t wanted)
{
    if (is_small(bytes) && is_small(wanted))
        return realloc(memory, wanted);
    void *other = pages_take(wanted);
    if (!other)
        return NULL;
    if (memory)
        memcpy(other, memory, bytes < wanted ? bytes : wanted);
    pages_give(memory, bytes);
    return other;
}
