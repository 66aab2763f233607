/* test_status.c - texts are cut between characters, and closed up. */
#include "base/settings.h"
#include "base/status.h"
#include "test.h"

#include <string.h>

#define EURO  "\xe2\x82\xac"
#define SMILE "\xf0\x9f\x99\x82"

TEST(test_whole_characters)
{
    static const struct {
        const char *text;
        size_t whole;
    } cases[] = {{"", 0},         {"a", 1},
                 {EURO, 3},       {"a" EURO, 4},
                 {"a\xe2", 1},    {"a\xe2\x82", 1},
                 {"\xc3", 0},     {"\xc3\xbc", 2},
                 {SMILE, 4},      {"a\xf0\x9f\x99", 1},
                 {"\xff", 1},     {"\x82\x82", 2},
                 {"\xf8\x82", 2}, {"\x82\x82\x82\x82", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(text_whole(cases[i].text, strlen(cases[i].text)), cases[i].whole);
}

TEST(test_texts_that_are_too_long)
{
    char text[] = "a\0xxxxx"; /* room for seven bytes and the NUL */
    append_text(text, sizeof text, "%s%s%s", EURO, EURO, EURO);
    assert_string_equal(text, "a" EURO EURO);
    append_text(text, sizeof text, EURO);
    assert_string_equal(text, "a" EURO EURO);
    hvd_status status;
    char name[sizeof status.text + 16] = "";
    for (int i = 0; i < 2; i++) {
        while (strlen(name) + 3 < sizeof name)
            strcat(name, EURO);
        status_set(&status, HVD_MISMATCH, i ? "x%s" : "%s", name);
        assert_int_equal(text_whole(status.text, strlen(status.text)), strlen(status.text));
        assert_true(strlen(status.text) + 4 > sizeof status.text);
    }
}

TEST(test_close_up)
{
    static const char *const cases[][2] = {{"", ""},         {" \t\r\n ", ""},       {" a , b\t,c ", "a,b,c"},
                                           {"a  b", "a  b"}, {"a = 1  b", "a=1  b"}, {",  ,", ",,"},
                                           {" = ", "="}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        strcpy(text, cases[i][0]);
        text_close_up(text, ",=");
        assert_string_equal(text, cases[i][1]);
    }
}

TEST(test_lists_of_settings)
{
    struct settings settings;
    ASSERT_OK(settings_init(&settings, &check_status));
    ASSERT_OK(settings_set(&settings, setting_by_key("ranks"), " 0, 2 ", "a test", &check_status));
    ASSERT_OK(settings_set(&settings, setting_by_key("ports"), "20000 - 20099", "a test", &check_status));
    ASSERT_OK(settings_set(&settings, setting_by_key("timeline"), "a, b", "a test", &check_status));
    assert_string_equal(settings.ranks, "0,2");
    assert_string_equal(settings.ports, "20000-20099");
    assert_string_equal(settings.timeline, "a, b");
    settings_free(&settings);
}
