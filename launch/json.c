/* json.c - escapes text for JSON. A library would not take this off our hands: Jansson, of which Debian has a
 * static archive, refuses text that is no UTF-8. No state; any thread. */
#include "json.h"

#include <stdbool.h>
#include <stdint.h>

/* Returns the number of bytes of the character, or 0 if it is no UTF-8: cut, longer than it needs to be, half
 * of a surrogate pair, or beyond Unicode. */
static size_t utf8_length(const unsigned char *at)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    uint32_t character = *at & (0x7f >> length);
    if (*at < 0x80)
        return 1;
    if (*at < 0xc0 || *at > 0xf7)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        character = character << 6 | (at[i] & 0x3f);
    }
    bool surrogate = character >= 0xd800 && character <= 0xdfff;
    return character >= least[length] && character <= 0x10ffff && !surrogate ? length : 0;
}

void json_put_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": \"", name);
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t length = utf8_length(at);
        if (!length)
            fputs("\\ufffd", file);
        else if (*at < ' ')
            fprintf(file, "\\u%04x", *at);
        else
            fprintf(file, *at == '"' || *at == '\\' ? "\\%.*s" : "%.*s", (int)length, (const char *)at);
        at += length ? length : 1;
    }
    fputc('"', file);
}
