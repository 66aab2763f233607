/* append.c - see append.h. */
#include "base/append.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void append_text(char *text, size_t capacity, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}
