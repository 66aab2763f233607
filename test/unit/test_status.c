/* test_status.c - codes are passed on, and texts are cut between characters and closed up. */
#include "base/settings.h"
#include "base/status.h"
#include "test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

static int calls;

static hvd_code code_of_call(hvd_code code)
{
    calls++;
    return code;
}

static hvd_code tries(hvd_code first, hvd_code second)
{
    TRY(code_of_call(first));
    if (second)
        TRY(code_of_call(second));
    else
        TRY(code_of_call(HVD_OK));
    return HVD_IN_PROGRESS;
}

TEST(test_a_code_is_passed_on)
{
    assert_int_equal(tries(HVD_OK, HVD_OK), HVD_IN_PROGRESS);
    assert_int_equal(calls, 2);
    assert_int_equal(tries(HVD_MISMATCH, HVD_SYSTEM), HVD_MISMATCH);
    assert_int_equal(calls, 3); /* the second is not called */
    assert_int_equal(tries(HVD_OK, HVD_SYSTEM), HVD_SYSTEM);
    assert_int_equal(calls, 5); /* each once */
}

TEST(test_no_memory)
{
    hvd_status status;
    struct rlimit limit;
    char process[64];
    assert_int_equal(status_no_memory(NULL), HVD_OUT_OF_MEMORY);
    assert_int_equal(status_no_memory(&status), HVD_OUT_OF_MEMORY);
    assert_int_equal(status.code, HVD_OUT_OF_MEMORY);
    snprintf(process, sizeof process, "out of memory in process %d on host ", (int)getpid());
    assert_int_equal(strncmp(status.text, process, strlen(process)), 0);
    assert_non_null(strstr(status.text, " MiB"));
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_max < (rlim_t)64 << 40)
        return; /* a limit that would not hinder the sanitizers can't be set */
    setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)64 << 40, limit.rlim_max});
    status_no_memory(&status);
    setrlimit(RLIMIT_AS, &limit);
    assert_non_null(
        strstr(status.text, " and may have 67108864 MiB of addresses (raise the limit with ulimit -v"));
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
