/* test_rank_trace.c - the text of a trace of all ranks. Whether it is valid as a whole is tested with traces
 * of real jobs (test/launch/test_traces.py). */
#include "../../launch/rank_trace.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS INT64_C(1000000)

static char titles[][PAGE_TITLE] = {"allreduce.a", "broadcast.\"b\\"};

static char *written(const struct rank_trace *trace)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    int64_t bytes = rank_trace_write(trace, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(bytes, length);
    return text;
}

static void has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("%s is not in\n%s", part, text);
}

static void lacks(const char *text, const char *part)
{
    if (strstr(text, part))
        fail_msg("%s is in\n%s", part, text);
}

TEST(test_a_rank)
{
    struct history_request list[] = {
        {.submitted = 100 * MS, .decided = 101 * MS, .ended = 103 * MS + 7, .batch = 5, .bytes = 64},
        {.submitted = 103 * MS + 7, .decided = 103 * MS + 7, .ended = 104 * MS, .title = 1, .process_set = 2},
        {.submitted = 104 * MS, .decided = 105 * MS, .ended = 105 * MS, .outcome = HVD_MISMATCH},
    };
    struct history history = {.list = list, .titles = titles, .count = 3, .title_count = 2};
    struct traced_rank rank = {.rank = 3, .host = "b", .history = &history};
    struct rank_trace trace = {.job = "4f", .ranks = &rank, .count = 1, .now = 200 * MS, .now_at = 1000 * MS};
    char *text = written(&trace);
    has(text, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"job\": \"4f\",");
    has(text, "\"start_time_since_epoch_in_micros\":900000},\n\"traceEvents\":[\n{\"ph\":\"X\",\"pid\":4,");
    has(text, "\"tid\":65537,\"ts\":0.000,\"dur\":1000.000,\"name\":\"wait allreduce.a\"},\n");
    has(text, "\"tid\":65537,\"ts\":1000.000,\"dur\":2000.007,\"name\":\"allreduce.a\","
              "\"args\":{\"bytes\":64,\"batch\":5}},\n");
    has(text, "\"tid\":65537,\"ts\":3000.007,\"dur\":999.993,\"name\":\"broadcast.\\\"b\\\\\","
              "\"args\":{\"bytes\":0,\"batch\":0,\"process_set\":2}},\n");
    lacks(text, "wait broadcast"); /* it did not wait */
    has(text, "\"error\":\"HVD_MISMATCH\"");
    has(text, "\"process_name\",\"args\":{\"name\": \"rank 3 (host b)\"}}");
    has(text, "\"sort_index\":3}}");
    has(text, "\"tid\":65537,\"name\":\"thread_name\"");
    lacks(text, "\"tid\":65538"); /* one lane was enough */
    assert_string_equal(text + strlen(text) - 5, "}\n]}\n");
    struct rank_trace_size size = rank_trace_measure(&trace);
    assert_int_equal(size.requests, 3);
    assert_int_equal(size.ranks, 1);
    assert_int_equal(size.span, 5 * MS);
    free(text);
}

TEST(test_a_pipe)
{
    struct history_request list[] = {{.submitted = 1 * MS, .decided = 2 * MS, .ended = 5 * MS}};
    struct history history = {.list = list, .titles = titles, .count = 1, .title_count = 2};
    struct traced_rank rank = {.rank = 0, .host = "a", .history = &history};
    struct rank_trace trace = {.job = "", .ranks = &rank, .count = 1, .now = 10 * MS};
    char text[256];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    FILE *file = fdopen(ends[1], "w");
    assert_non_null(file);
    assert_int_equal(rank_trace_write(&trace, file), 0);
    assert_int_equal(fclose(file), 0);
    assert_true(read(ends[0], text, sizeof text) > 0);
    close(ends[0]);
    rank_trace_describe(&trace, 1, "/dev/stdout", 0, text, sizeof text);
    assert_string_equal(text,
                        "the last 4 ms of 1 rank are in /dev/stdout; open it in https://ui.perfetto.dev");
}

TEST(test_requests_that_overlap_have_lanes_of_their_own)
{
    struct history_request list[] = {{.submitted = 1 * MS, .decided = 2 * MS, .ended = 5 * MS},
                                     {.submitted = 2 * MS, .decided = 3 * MS, .ended = 9 * MS},
                                     {.submitted = 5 * MS, .decided = 6 * MS, .ended = 7 * MS},
                                     {.submitted = 6 * MS, .decided = 6 * MS, .ended = 7 * MS}};
    struct history history = {.list = list, .titles = titles, .count = 4, .title_count = 2};
    struct traced_rank rank = {.rank = 0, .host = "a", .history = &history};
    struct rank_trace trace = {.job = "", .ranks = &rank, .count = 1, .now = 10 * MS};
    char *text = written(&trace);
    has(text, "\"tid\":16385,\"ts\":0.000,");
    has(text, "\"tid\":16386,\"ts\":1000.000,");
    has(text, "\"tid\":16385,\"ts\":4000.000,"); /* as soon as the first has ended */
    has(text, "\"tid\":16387,\"ts\":5000.000,");
    lacks(text, "\"tid\":16388");
    free(text);
}

TEST(test_requests_in_flight_and_clocks)
{
    struct history_request waits[] = {{.submitted = 1010 * MS}};
    struct history_request moves[] = {{.submitted = 5 * MS, .decided = 15 * MS, .held = true}};
    struct history histories[] = {{.list = waits, .titles = titles, .count = 1, .title_count = 2},
                                  {.list = moves, .titles = titles, .count = 1, .title_count = 2},
                                  {0}};
    struct traced_rank ranks[] = {
        {.rank = 0, .host = "b", .history = &histories[0], .ahead = 1000 * MS},
        {.rank = 1, .host = "a", .history = &histories[1], .ended = 20 * MS, .end = "was killed by SIGKILL"},
        {.rank = 2, .host = "a", .history = &histories[2]}};
    struct rank_trace trace = {.job = "", .ranks = ranks, .count = 3, .now = 30 * MS};
    char *text = written(&trace);
    has(text, "\"ts\":5000.000,\"dur\":20000.000,\"name\":\"wait allreduce.a\","
              "\"args\":{\"bytes\":0,\"unfinished\":true}}");
    has(text, "\"ts\":0.000,\"dur\":10000.000,\"name\":\"held allreduce.a\"}");
    has(text, "\"ts\":10000.000,\"dur\":5000.000,\"name\":\"allreduce.a\"");
    has(text, "{\"ph\":\"i\",\"pid\":2,\"tid\":32768,\"ts\":15000.000,\"s\":\"p\",\"name\": \"was killed by "
              "SIGKILL\"}");
    lacks(text, "rank 2");
    struct rank_trace_size size = rank_trace_measure(&trace);
    assert_int_equal(size.ranks, 2);
    assert_int_equal(size.span, 25 * MS);
    free(text);
}

TEST(test_steps)
{
    struct history_request list[] = {{.submitted = 104 * MS, .decided = 105 * MS, .ended = 106 * MS}};
    struct history history = {.list = list, .titles = titles, .count = 1, .title_count = 2, .step_count = 4};
    for (int i = 0; i < 4; i++)
        history.steps[i] = (struct history_step){.count = (uint64_t)(i + (i > 2)),
                                                 .number = 1200 + i,
                                                 .reported = (100 + 10 * i) * MS,
                                                 .samples = 8};
    history.steps[1].samples = 0;
    struct traced_rank rank = {.rank = 0, .host = "a", .history = &history};
    struct rank_trace trace = {.job = "", .ranks = &rank, .count = 1, .now = 200 * MS};
    char *text = written(&trace);
    has(text, "\"tid\":16384,\"ts\":0.000,\"dur\":10000.000,\"name\":\"step 1201\"},");
    has(text,
        "\"tid\":16384,\"ts\":10000.000,\"dur\":10000.000,\"name\":\"step 1202\",\"args\":{\"samples\":8}},");
    lacks(text, "step 1203"); /* the one before it is missing */
    has(text, "\"tid\":16384,\"name\":\"thread_name\",\"args\":{\"name\": \"steps\"}}");
    assert_int_equal(rank_trace_measure(&trace).span, 30 * MS);
    free(text);
}

TEST(test_nothing_was_recorded)
{
    struct history history = {0};
    struct traced_rank rank = {.rank = 0, .host = "a", .history = &history};
    struct rank_trace trace = {.job = "", .ranks = &rank, .count = 1, .now = 10 * MS, .now_at = 10 * MS};
    char *text = written(&trace);
    has(text, "\"traceEvents\":[\n\n]}\n");
    assert_int_equal(rank_trace_measure(&trace).span, 0);
    free(text);
}
