/* ptx_text.c - see ptx_text.h. */
#include "standin/ptx_text.h"

#include "standin/ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptx_text_fail(struct ptx_text *text, const char *format, ...)
{
    va_list list;
    if (text->failed)
        return false;
    int length = snprintf(text->why, PTX_TEXT, "line %d: ", text->line);
    va_start(list, format);
    vsnprintf(text->why + length, PTX_TEXT - (size_t)length, format, list);
    va_end(list);
    text->failed = true;
    return false;
}

static void skip_comment(struct ptx_text *text)
{
    if (text->at[1] == '/') {
        text->at += strcspn(text->at, "\n");
        return;
    }
    const char *end = strstr(text->at, "*/");
    for (end = end ? end + 2 : text->at + strlen(text->at); text->at < end; text->at++)
        text->line += *text->at == '\n';
}

static void skip_blanks(struct ptx_text *text)
{
    for (;;) {
        if (text->at[0] == '/' && (text->at[1] == '/' || text->at[1] == '*')) {
            skip_comment(text);
        } else if (isspace((unsigned char)*text->at)) {
            text->line += *text->at++ == '\n';
        } else {
            return;
        }
    }
}

bool ptx_text_ends(struct ptx_text *text)
{
    return ptx_text_peek(text) == '\0';
}

char ptx_text_peek(struct ptx_text *text)
{
    skip_blanks(text);
    return *text->at;
}

bool ptx_text_take(struct ptx_text *text, char mark)
{
    if (ptx_text_peek(text) != mark)
        return false;
    text->at++;
    return true;
}

bool ptx_text_expect(struct ptx_text *text, char mark)
{
    return ptx_text_take(text, mark) || ptx_text_fail(text, "'%c' is missing at '%.12s'", mark, text->at);
}

bool ptx_text_word(struct ptx_text *text, char *word, size_t capacity)
{
    size_t length = 0;
    skip_blanks(text);
    while (isalnum((unsigned char)text->at[length]) ||
           (text->at[length] && strchr("_$%.", text->at[length]) != NULL))
        length++;
    if (!length || length >= capacity) {
        *word = '\0';
        return ptx_text_fail(text, "a word is missing, or is too long, at '%.12s'", text->at);
    }
    memcpy(word, text->at, length);
    word[length] = '\0';
    text->at += length;
    return true;
}

bool ptx_text_number(struct ptx_text *text, unsigned long *number)
{
    char word[32], *end;
    if (!ptx_text_word(text, word, sizeof word))
        return false;
    *number = strtoul(word, &end, 0);
    return !*end || ptx_text_fail(text, "%s is not a number", word);
}

void ptx_text_skip(struct ptx_text *text, char mark)
{
    bool skipped = false;
    while (*text->at && !skipped) {
        skipped = *text->at == mark;
        text->line += *text->at++ == '\n';
    }
}
