/* test_timeline.c - the timeline without an engine: the text that comes out for any order of events and any
 * name, files that can't be written, and the queue before the writer thread. */
#include "test.h"
#include "watch/timeline.h"

#include "base/clock.h"
#include "base/status.h"
#include "watch/trace.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- escapes ----------------------------------------------------------------------------------------- */

static void escapes_to(const char *bytes, size_t length, const char *expected)
{
    struct wire_writer text = {0};
    text_add(&text, "%s", ">");
    text_add_escaped(&text, bytes, length);
    assert_false(text.failed);
    assert_string_equal((const char *)text.bytes, expected);
    wire_writer_free(&text);
}

TEST(test_names_are_escaped)
{
    escapes_to("plain", 5, ">plain");
    escapes_to("", 0, ">");
    escapes_to("a\"b\\c", 5, ">a\\\"b\\\\c");
    escapes_to("\n\t\x01\x7f\0", 5, ">\\u000a\\u0009\\u0001\\u007f\\u0000");
    escapes_to("gr\xc3\xb6\xc3\x9f", 6, ">gr\xc3\xb6\xc3\x9f");
    escapes_to("\xf8\x90\x80\x80", 4, ">\\ufffd\\ufffd\\ufffd\\ufffd");
    escapes_to("\xe2\x82\xac\xf0\x9f\x98\x80", 7, ">\xe2\x82\xac\xf0\x9f\x98\x80");
    escapes_to("\xff\x80", 2, ">\\ufffd\\ufffd");
    escapes_to("\xc3", 1, ">\\ufffd");                                  /* cut off */
    escapes_to("\xc0\xaf", 2, ">\\ufffd\\ufffd");                       /* overlong */
    escapes_to("\xed\xa0\x80", 3, ">\\ufffd\\ufffd\\ufffd");            /* a surrogate */
    escapes_to("\xf4\x90\x80\x80", 4, ">\\ufffd\\ufffd\\ufffd\\ufffd"); /* beyond Unicode */
}

/* ---- traces ------------------------------------------------------------------------------------------ */

static struct record *record_of(enum event_kind kind, const char *name, int64_t time)
{
    static union {
        struct record record;
        char room[4096];
    } memory;
    memset(&memory, 0, sizeof memory);
    memory.record = (struct record){.kind = kind,
                                    .time = time,
                                    .dtype = -1,
                                    .operation = "allreduce",
                                    .batch = {7, 2, 24, "ring", "shm"},
                                    .name_length = (uint32_t)strlen(name)};
    strcpy(memory.record.texts, name);
    return &memory.record;
}

/* Without the names of tensors: "B ", "X ", "E " and "i ". */
static void phases(const struct trace *trace, char *text)
{
    *text = '\0';
    for (const char *at = (const char *)trace->out.bytes; at && (at = strstr(at, "{\"ph\":\"")); at += 7)
        sprintf(text + strlen(text), "%c", at[7]);
}

static void add(struct trace *trace, enum event_kind kind, int64_t time)
{
    trace_add(trace, record_of(kind, "allreduce.x", time));
}

static void expect(const struct trace *trace, const char *expected)
{
    char text[256];
    phases(trace, text);
    assert_string_equal(text, expected);
}

TEST(test_the_way_of_a_tensor)
{
    struct trace trace;
    trace_init(&trace, 1000);
    add(&trace, EVENT_SUBMITTED, 2000);
    add(&trace, EVENT_READY, 3000);
    add(&trace, EVENT_DISPATCHED, 4000);
    add(&trace, EVENT_PHASE, 5000);
    struct record *record = record_of(EVENT_FINISHED, "allreduce.x", 6789);
    record->dtype = HVD_FLOAT32;
    strcpy(record->texts + record->name_length, "[2, 3]");
    record->detail_length = 6;
    trace_add(&trace, record);
    expect(&trace, "BXXEBBEBEE");
    static const char *const parts[] = {
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"allreduce.x\"}}",
        "{\"ph\":\"B\",\"ts\":1.000,\"pid\":1,\"name\":\"NEGOTIATE_ALLREDUCE\"}",
        "{\"ph\":\"X\",\"ts\":2.000,\"pid\":1,\"dur\":0,\"name\":\"0\"}",
        "{\"ph\":\"B\",\"ts\":3.000,\"pid\":1,\"name\":\"ALLREDUCE\"}",
        "{\"ph\":\"B\",\"ts\":3.000,\"pid\":1,\"name\":\"QUEUE\",\"args\":{\"batch\":7,\"tensors\":2,"
        "\"bytes\":24}}",
        "\"name\":\"SHM_RING\"",
        "{\"ph\":\"E\",\"ts\":5.789,\"pid\":1,\"args\":{\"dtype\":\"float32\",\"shape\":\"[2, 3]\"}}",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr((const char *)trace.out.bytes, parts[i]));
    trace_finish(&trace, 7000, 0);
    expect(&trace, "BXXEBBEBEE");
    trace_free(&trace);
}

TEST(test_a_rank_that_is_ahead_waits_for_the_end)
{
    struct trace trace;
    trace_init(&trace, 0);
    add(&trace, EVENT_SUBMITTED, 1000);
    add(&trace, EVENT_DISPATCHED, 2000);
    add(&trace, EVENT_READY, 3000);
    expect(&trace, "BXEBB");
    add(&trace, EVENT_FINISHED, 4000);
    expect(&trace, "BXEBBEEBX");
    assert_null(strstr((const char *)trace.out.bytes, "\"ts\":3.000")); /* time never goes back */
    trace_free(&trace);
}

TEST(test_whatever_is_missing_begin_and_end_match)
{
    static const enum event_kind kinds[] = {EVENT_SUBMITTED, EVENT_READY, EVENT_DISPATCHED, EVENT_PHASE,
                                            EVENT_FINISHED};
    for (unsigned seed = 0; seed < 500; seed++) {
        struct trace trace;
        char text[4096];
        unsigned random = seed;
        trace_init(&trace, 0);
        for (int i = 0; i < 60; i++) {
            random = random * 1103515245u + 12345u;
            add(&trace, kinds[random >> 16 & 7 ? (random >> 19) % 5 : 4], 1000 * i);
        }
        trace_finish(&trace, 60000, 3);
        phases(&trace, text);
        int depth = 0;
        for (const char *at = text; *at; at++) {
            depth += (*at == 'B') - (*at == 'E');
            assert_true(depth >= 0 && depth <= 2);
        }
        assert_int_equal(depth, 0);
        assert_non_null(strstr((const char *)trace.out.bytes,
                               "\"name\":\"DROPPED_RECORDS\",\"s\":\"g\",\"args\":{\"count\":3}}"));
        trace_free(&trace);
    }
}

TEST(test_unnamed_requests_leave_no_memory_behind)
{
    struct trace trace;
    trace_init(&trace, 0);
    for (int i = 0; i < 50; i++) {
        char name[40];
        snprintf(name, sizeof name, "barrier.noname.%d", i);
        trace_add(&trace, record_of(EVENT_SUBMITTED, name, i));
        struct record *end = record_of(EVENT_FINISHED, name, i);
        end->unnamed = true;
        trace_add(&trace, end);
    }
    assert_int_equal(trace.tensors.count, 0);
    assert_int_equal(trace.last_pid, 50);
    trace_free(&trace);
}

/* ---- files ------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/test_timeline.XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/trace.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

const struct test_hooks test_hooks = {.before_all = make_folder, .after_all = remove_folder};

static char *content(void)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void ends_in_bracket(const char *text)
{
    size_t length = strlen(text);
    assert_true(length > 5 && strncmp(text, "[\n", 2) == 0);
    assert_string_equal(text + length - 4, "}\n]\n");
}

TEST(test_every_write_leaves_a_whole_array)
{
    struct trace_file file;
    ASSERT_OK(trace_file_open(&file, path, "{\"a\":1}", &check_status));
    assert_string_equal(content(), "[\n{\"a\":1}\n]\n");
    assert_int_equal(trace_file_append(&file, ",\n{\"b\":2}", 9), 0);
    assert_string_equal(content(), "[\n{\"a\":1},\n{\"b\":2}\n]\n");
    assert_int_equal(trace_file_append(&file, ",\n{\"c\":3}", 9), 0);
    assert_string_equal(content(), "[\n{\"a\":1},\n{\"b\":2},\n{\"c\":3}\n]\n");
    trace_file_close(&file);
}

TEST(test_a_full_disk_leaves_what_was_there)
{
    struct rlimit before, small;
    struct trace_file file;
    static char long_text[4096];
    memset(long_text, ' ', sizeof long_text);
    memcpy(long_text, ",{}", 3);
    signal(SIGXFSZ, SIG_DFL);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){2000, before.rlim_max};
    ASSERT_OK(trace_file_open(&file, path, "{\"a\":1}", &check_status));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int error = trace_file_append(&file, long_text, sizeof long_text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_not_equal(error, 0);
    assert_string_equal(content(), "[\n{\"a\":1}\n]\n");
    trace_file_close(&file);
}

/* ---- the timeline ------------------------------------------------------------------------------------ */

static void report(struct timeline *timeline, enum event_kind kind, const char *name, const char *given)
{
    hvd_status ok = {.code = HVD_OK};
    int64_t shape[] = {2, 3};
    hvd_tensor tensor = {.shape = shape, .ndim = 2, .dtype = HVD_FLOAT32};
    hvd_request request = {.name = given, .count = 1, .inputs = &tensor};
    struct event_batch batch = {1, 1, 24, "ring", "shm"};
    struct event event = {.kind = kind,
                          .time = clock_now(),
                          .name = name,
                          .request = &request,
                          .batch = kind == EVENT_DISPATCHED || kind == EVENT_PHASE ? &batch : NULL,
                          .status = kind == EVENT_FINISHED ? &ok : NULL};
    timeline_notice(timeline, &event);
}

static void report_named(struct timeline *timeline, enum event_kind kind, const char *name)
{
    report(timeline, kind, name, name);
}

static struct timeline *made(void)
{
    struct timeline *timeline;
    ASSERT_OK(timeline_create(0, &timeline, &check_status));
    return timeline;
}

static void start(struct timeline *timeline)
{
    ASSERT_OK(timeline_start(timeline, path, false, 0, &check_status));
}

static void mark(struct timeline *timeline, const char *text)
{
    timeline_notice(timeline, &(struct event){.kind = EVENT_MARKED, .time = clock_now(), .name = text});
}

static double time_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    assert_non_null(at);
    while (strncmp(at, "\"ts\":", 5) != 0)
        at--;
    return atof(at + 5);
}

/* One file for all epochs, whose time goes on; the first one makes it anew, and so does one that finds what
 * is no timeline. */
TEST(test_a_later_epoch_continues_the_file)
{
    static const char *const others[] = {"", "[\n]\n", "[\n{\"name\":\"other\"}\n]\n"};
    struct timeline *timeline = made();
    ASSERT_OK(timeline_start(timeline, path, false, 0, &check_status));
    mark(timeline, "epoch 0: 2 \"ranks\"");
    report(timeline, EVENT_SUBMITTED, "tensor", "tensor");
    ASSERT_OK(timeline_start(timeline, path, false, 3, &check_status));
    mark(timeline, "epoch 3: 1 ranks");
    report(timeline, EVENT_SUBMITTED, "tensor", "tensor");
    timeline_stop(timeline);
    ends_in_bracket(content());
    assert_non_null(strstr(content(), "epoch 0: 2 \\\"ranks\\\""));
    assert_non_null(strstr(content(), "\"pid\":1,"));
    assert_non_null(strstr(content(), "\"pid\":300001,"));
    assert_true(time_of(content(), "epoch 3") > time_of(content(), "epoch 0"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        FILE *file = fopen(path, "w");
        assert_true(file && fputs(others[i], file) >= 0 && fclose(file) == 0);
        ASSERT_OK(timeline_start(timeline, path, false, 1, &check_status));
        mark(timeline, "begun");
        timeline_stop(timeline);
        ends_in_bracket(content());
        assert_null(strstr(content(), "other"));
    }
    ASSERT_OK(timeline_start(timeline, path, false, 0, &check_status));
    timeline_stop(timeline);
    assert_null(strstr(content(), "begun"));
    timeline_destroy(timeline);
}

TEST(test_start_and_stop_again)
{
    struct timeline *timeline = made();
    report_named(timeline, EVENT_SUBMITTED, "before");
    timeline_stop(timeline);
    for (int round = 0; round < 20; round++) {
        char name[24];
        snprintf(name, sizeof name, "round%d", round);
        start(timeline);
        report_named(timeline, EVENT_SUBMITTED, name);
        report_named(timeline, EVENT_FINISHED, name);
        if (round % 2) /* else the next start does it */
            timeline_stop(timeline);
        report_named(timeline, EVENT_SUBMITTED, "between");
    }
    timeline_stop(timeline);
    char *text = content();
    ends_in_bracket(text);
    assert_non_null(strstr(text, "round19"));
    assert_null(strstr(text, "round18"));
    assert_null(strstr(text, "between"));
    assert_null(strstr(text, "before"));
    timeline_destroy(timeline);
}

static int rows_of(const char *name)
{
    char row[64];
    int count = 0;
    snprintf(row, sizeof row, "{\"name\":\"%s\"}", name);
    for (const char *at = content(); (at = strstr(at, row)); at++)
        count++;
    return count;
}

TEST(test_only_unnamed_requests_come_once)
{
    static const char chosen[] = "allreduce.noname.0.1", made_up[] = "barrier.noname.0";
    struct timeline *timeline = made();
    start(timeline);
    for (int step = 0; step < 3; step++) {
        report(timeline, EVENT_SUBMITTED, chosen, "noname.0.1");
        report(timeline, EVENT_FINISHED, chosen, "noname.0.1");
        report(timeline, EVENT_SUBMITTED, made_up, NULL);
        report(timeline, EVENT_FINISHED, made_up, NULL);
    }
    timeline_stop(timeline);
    assert_int_equal(rows_of(chosen), 1);
    assert_int_equal(rows_of(made_up), 3);
    timeline_destroy(timeline);
}

TEST(test_a_burst_is_written_or_counted)
{
    enum { EVENTS = 100000 };
    struct timeline *timeline = made();
    start(timeline);
    for (int i = 0; i < EVENTS; i++)
        report_named(timeline, EVENT_READY, "allreduce.burst");
    timeline_stop(timeline);
    timeline_destroy(timeline);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int accounted = 0;
    char line[256], last[256] = "";
    /* Line by line: sanitizers look at all of a text that is searched. */
    for (; fgets(line, sizeof line, file); strcpy(last, line)) {
        const char *note = strstr(line, "\"count\":");
        accounted += strstr(line, "\"ph\":\"X\"") ? 1 : note ? atoi(note + 8) : 0;
    }
    fclose(file);
    assert_string_equal(last, "]\n");
    assert_int_equal(accounted, EVENTS);
}

static void refuses(const char *where, const char *what)
{
    hvd_status status;
    struct timeline *timeline = made();
    assert_int_equal(timeline_start(timeline, where, false, 0, &status), HVD_SYSTEM);
    assert_non_null(strstr(status.text, where));
    assert_non_null(strstr(status.text, what));
    report_named(timeline, EVENT_SUBMITTED, "nobody writes this");
    start(timeline); /* another file works */
    timeline_destroy(timeline);
    ends_in_bracket(content());
}

TEST(test_a_file_that_cannot_be_made)
{
    refuses("/no/such/folder/trace.json", "No such file or directory");
    refuses("/", "Is a directory");
    refuses("/dev/full", "No space left on device");
}
