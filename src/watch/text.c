/* text.c - see text.h. */
#include "watch/text.h"

#include <stdarg.h>
#include <stdio.h>

void text_add(struct wire_writer *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length > 0 && wire_reserve(text, text->length + (size_t)length + 1)) {
        vsnprintf((char *)text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

/* Bytes of the well-formed UTF-8 character at the start, 0 when there is none: neither overlong forms, nor
 * surrogates, nor anything above U+10FFFF. */
static size_t character_length(const unsigned char *bytes, size_t length)
{
    size_t whole = *bytes < 0x80   ? 1
                   : *bytes < 0xc0 ? 0
                   : *bytes < 0xe0 ? 2
                   : *bytes < 0xf0 ? 3
                   : *bytes < 0xf8 ? 4
                                   : 0;
    uint32_t character = whole < 2 ? *bytes : *bytes & 0x7fu >> whole;
    if (whole > length)
        return 0;
    for (size_t i = 1; i < whole; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        character = character << 6 | (bytes[i] & 0x3f);
    }
    bool overlong = character < (whole == 2 ? 0x80u : whole == 3 ? 0x800u : whole == 4 ? 0x10000u : 0);
    bool surrogate = character >> 11 == 0xd800 >> 11;
    return overlong || surrogate || character > 0x10ffff ? 0 : whole;
}

void text_add_escaped(struct wire_writer *text, const char *bytes, size_t length)
{
    while (length) {
        size_t step = character_length((const unsigned char *)bytes, length);
        if (!step)
            text_add(text, "\\ufffd");
        else if (*bytes == '"' || *bytes == '\\')
            text_add(text, "\\%c", *bytes);
        else if ((unsigned char)*bytes < 0x20 || *bytes == 0x7f)
            text_add(text, "\\u%04x", (unsigned)*bytes);
        else
            text_add(text, "%.*s", (int)step, bytes);
        step = step ? step : 1;
        bytes += step;
        length -= step;
    }
}
