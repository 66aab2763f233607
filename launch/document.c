/* document.c - see document.h. */
#include "document.h"
#include "live_html.h"

#include <string.h>

const char document_policy[] = LIVE_HTML_POLICY;

void document_write(FILE *file, const char *data)
{
    static const char mark[] = "id=\"data\">";
    const char *all = (const char *)live_html, *after = strstr(all, mark) + strlen(mark);
    fwrite(all, 1, (size_t)(after - all), file);
    if (data) {
        /* In JSON this character occurs in texts only, where it could end the element. */
        for (const char *next; (next = strchr(data, '<')); data = next + 1) {
            fwrite(data, 1, (size_t)(next - data), file);
            fputs("\\u003c", file);
        }
        fputs(data, file);
        after += strlen("null");
    }
    fputs(after, file);
}
