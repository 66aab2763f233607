/* ptx_text.h - words and marks of a PTX text, for ptx_load.c. */
#ifndef HVD_TEST_STANDIN_PTX_TEXT_H
#define HVD_TEST_STANDIN_PTX_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct ptx_text {
    const char *at;
    int line;
    char *why; /* of the first failure; PTX_TEXT bytes */
    bool failed;
};

/* Remembers the first failure, with its line; returns false. */
__attribute__((format(printf, 2, 3))) bool ptx_text_fail(struct ptx_text *text, const char *format, ...);

/* Skips blanks and comments. */
bool ptx_text_ends(struct ptx_text *text);
char ptx_text_peek(struct ptx_text *text);

/* Reads this mark; returns false if something else follows. */
bool ptx_text_take(struct ptx_text *text, char mark);
bool ptx_text_expect(struct ptx_text *text, char mark);

/* Reads letters, digits, and "_$%."; fails if there are none. */
bool ptx_text_word(struct ptx_text *text, char *word, size_t capacity);
bool ptx_text_number(struct ptx_text *text, unsigned long *number);

/* Skips everything up to this mark, and the mark. */
void ptx_text_skip(struct ptx_text *text, char mark);

#endif
