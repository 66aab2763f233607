/* json.c - escapes text for JSON. A library would not take this off our hands: Jansson, of which Debian has a
 * static archive, refuses text that is no UTF-8. No state; any thread. */
#include "json.h"
#include "utf8.h"

void json_put_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const char *at = text; *at;) {
        size_t length = utf8_length(at);
        if (!length)
            fputs("\\ufffd", file);
        else if ((unsigned char)*at < ' ')
            fprintf(file, "\\u%04x", *at);
        else
            fprintf(file, *at == '"' || *at == '\\' ? "\\%.*s" : "%.*s", (int)length, at);
        at += length ? length : 1;
    }
    fputc('"', file);
}

void json_put_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\": ", name);
    json_put_string(file, text);
}
