/* test_stall.c - the text of the stall report: whole sentences, and bounded. */
#include "coordinate/stall.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const struct stall_limits without_end = {60, 0}, with_end = {60, 90};

TEST(test_who_is_missing_for_what)
{
    struct stall_summary report = {0};
    char text[STALL_TEXT];
    stall_add(&report, "rank 1", "allreduce.a", 61);
    stall_add(&report, "ranks 1, 3", "allreduce.b", 62.4);
    stall_add(&report, "rank 1", "allreduce.c", 60);
    stall_text(&report, 0, &with_end, text, sizeof text);
    assert_non_null(strstr(text, "for more than 60 s. Who has not submitted what:\n"));
    assert_non_null(strstr(text, "\n  rank 1: allreduce.a (61 s), allreduce.c (60 s)\n"));
    assert_non_null(strstr(text, "\n  ranks 1, 3: allreduce.b (62 s)\n"));
    assert_non_null(strstr(text, "ends with an error when the wait reaches 90 s (in 28 s)"));
    assert_int_equal(report.count, 0);
    stall_add(&report, "rank 2", "allreduce.d", 60);
    stall_text(&report, 4, &without_end, text, sizeof text);
    assert_null(strstr(text, "rank 1"));
    assert_non_null(strstr(text, ", in process set 4."));
    assert_non_null(strstr(text, "The ranks go on waiting"));
}

TEST(test_the_text_is_bounded)
{
    struct stall_summary report = {0};
    char text[STALL_TEXT], ranks[200], name[1024];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    for (int set = 0; set < 10; set++) {
        snprintf(ranks, sizeof ranks,
                 "ranks %d, and so on with a text that is far too long to be kept as a whole, "
                 "so it is cut somewhere",
                 set);
        for (int i = 0; i < 100; i++)
            stall_add(&report, ranks, i % 2 ? name : "short", 1e6);
    }
    stall_text(&report, 0, &with_end, text, sizeof text);
    assert_non_null(strstr(text, "(in 0 s)"));
    assert_non_null(strstr(text, "and 94 more"));
    assert_non_null(strstr(text, "others: 400 more"));
    stall_add(&report, "rank 1", "a", 60);
    stall_text(&report, 0, &with_end, text, 50);
    assert_int_equal(strlen(text), 49);
}
