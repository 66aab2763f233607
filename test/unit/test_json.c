/* test_json.c - text of any bytes as JSON. */
#include "../../launch/json.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD "\\ufffd"

static const struct {
    const char *text, *json;
} cases[] = {
    {"", ""},
    {"KeyError: 'x'", "KeyError: 'x'"},
    {"a \"b\" \\ / c", "a \\\"b\\\" \\\\ / c"},
    {"one\n\ttwo\r\x1b[0m\x7f", "one\\u000a\\u0009two\\u000d\\u001b[0m\x7f"},
    {"gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x98\x80",
     "gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x98\x80"},
    {"gr\xf6\xdf"
     "e",
     "gr" BAD BAD "e"},                                /* Latin-1 */
    {"cut \xe2\x82", "cut " BAD BAD},                  /* at the end */
    {"cut \xf0\x9f\x98\"", "cut " BAD BAD BAD "\\\""}, /* the quote is not lost */
    {"\x80\xbf", BAD BAD},
    {"\xc0\xaf \xc1\xbf \xe0\x80\xaf \xf0\x8f\xbf\xbf",
     BAD BAD " " BAD BAD " " BAD BAD BAD " " BAD BAD BAD BAD},
    {"\xed\x9f\xbf \xed\xa0\x80 \xed\xbf\xbf \xee\x80\x80",
     "\xed\x9f\xbf " BAD BAD BAD " " BAD BAD BAD " \xee\x80\x80"},              /* surrogates */
    {"\xf4\x8f\xbf\xbf \xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf " BAD BAD BAD BAD}, /* the end of Unicode */
    {"\xf8\x88\x80\x80\x80 \xfe\xff", BAD BAD BAD BAD BAD " " BAD BAD},
};

/* Returns what is written for the text between the quotes; free it. */
static char *json_of(const char *text)
{
    char *whole = NULL;
    size_t length;
    FILE *file = open_memstream(&whole, &length);
    assert_non_null(file);
    json_put_text(file, "n", text);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(strlen(whole), length);
    assert_memory_equal(whole, "\"n\": \"", 6);
    assert_int_equal(whole[length - 1], '"');
    memmove(whole, whole + 6, length - 7);
    whole[length - 7] = '\0';
    return whole;
}

TEST(test_texts)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = json_of(cases[i].text);
        assert_string_equal(json, cases[i].json);
        free(json);
    }
}

/* One byte and pairs of bytes, each with a letter behind: it always survives, and nothing but UTF-8 passes.
 */
TEST(test_all_bytes)
{
    for (int one = 1; one < 256; one++) {
        for (int two = 1; two < 256; two++) {
            const char text[] = {(char)one, (char)two, 'z', '\0'};
            bool pair = one >= 0xc2 && one <= 0xdf && two >= 0x80 && two <= 0xbf;
            char *json = json_of(text), expected[32] = "";
            size_t length = 0;
            for (int i = 0; i < 2 && !pair; i++) {
                int byte = (unsigned char)text[i];
                length += (size_t)snprintf(expected + length, sizeof expected - length,
                                           byte < ' '                    ? "\\u%04x"
                                           : byte == '"' || byte == '\\' ? "\\%c"
                                           : byte < 0x80                 ? "%c"
                                                                         : BAD,
                                           byte);
            }
            if (!pair)
                snprintf(expected + length, sizeof expected - length, "z");
            assert_string_equal(json, pair ? text : expected);
            free(json);
        }
    }
}
