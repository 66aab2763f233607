/* pages.c - see pages.h. */
#include "base/pages.h"

#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

void *pages_take(size_t bytes)
{
    return bytes < PAGES_LEAST ? malloc(bytes) : platform_pages_take(bytes, 1);
}

void pages_give(void *memory, size_t bytes)
{
    if (bytes < PAGES_LEAST)
        free(memory);
    else if (memory)
        platform_pages_give(memory, bytes);
}

void *pages_resize(void *memory, size_t bytes, size_t wanted)
{
    if (bytes < PAGES_LEAST && wanted < PAGES_LEAST)
        return realloc(memory, wanted);
    void *other = pages_take(wanted);
    if (!other)
        return NULL;
    if (memory)
        memcpy(other, memory, bytes < wanted ? bytes : wanted);
    pages_give(memory, bytes);
    return other;
}
