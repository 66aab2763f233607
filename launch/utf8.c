/* utf8.c - see utf8.h. */
#include "utf8.h"

#include <stdbool.h>
#include <stdint.h>

size_t utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
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
