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

/* Bytes of the well-formed UTF-8 character at the start, 0 when there is none. */
static size_t character_length(const unsigned char *bytes, size_t length)
{
    static const struct {
        unsigned char first, last; /* of the lead byte */
        unsigned char low, high;   /* of the byte behind it: no overlong forms, no surrogates */
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0x80, 0xbf, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (bytes[0] < forms[i].first || bytes[0] > forms[i].last)
            continue;
        if (length < forms[i].length)
            return 0;
        for (size_t b = 1; b < forms[i].length; b++) {
            unsigned char low = b == 1 ? forms[i].low : 0x80, high = b == 1 ? forms[i].high : 0xbf;
            if (bytes[b] < low || bytes[b] > high)
                return 0;
        }
        return forms[i].length;
    }
    return 0;
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
