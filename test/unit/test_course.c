/* test_course.c - the curve, the verdicts and the cost that follow from looks at a job, and the document
 * that shows them. */
#include "../../launch/course.h"
#include "../../launch/document.h"
#include "../../launch/energy.h"
#include "test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *json_of(const struct course *course)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    course_write(course, file);
    assert_int_equal(fclose(file), 0);
    return text;
}

static void assert_cost(const struct course *course, const char *expected)
{
    char text[256];
    course_cost(course, text, sizeof text);
    assert_string_equal(text, expected);
}

/* Two ranks for `at` seconds; rank 1 was late for a tenth of the time. */
static void look(struct course *course, double at, uint64_t steps, int exit, const char *text)
{
    const struct course_rank ranks[] = {
        {0, "a", true, true, 1, (uint64_t)(0.2e9 * at), 0, (uint64_t)(1e6 * at), (uint64_t)(1e6 * at), 1, 1},
        {1, "b", true, at > 1, 1, (uint64_t)(0.1e9 * at), (uint64_t)(0.1e9 * at), (uint64_t)(1e6 * at),
         (uint64_t)(1e6 * at), 2, 1}};
    course_add(course, &(struct course_look){at, 0, steps, ranks, 2, exit, text, -1});
}

/* Points of the curve. */
static int count_points(const char *json)
{
    const char *end = strstr(json, "\"verdicts\"");
    int count = -1;
    for (const char *at = strstr(json, "\"points\""); at && at < end; at = strchr(at + 1, '['))
        count++;
    return count;
}

TEST(test_nothing)
{
    struct course *course = course_create(2);
    char *json = json_of(course);
    assert_string_equal(
        json, "{\"version\": 1, \"steps\": 0, \"points\": [], \"verdicts\": [], \"late\": [], \"cost\": "
              "{\"rank_seconds\": 0.000, \"computing\": 1.0000, \"waiting\": 0.0000, "
              "\"waiting_for\": 0, \"left\": false, \"moving\": 0.0000, \"starting\": 0.0000, \"text\": "
              "\"0 rank-seconds: 100 % computing, 0 % moving 0 B, 0 % starting\"}}");
    free(json);
    course_free(course);
}

TEST(test_a_late_rank_is_marked)
{
    struct course *course = course_create(2);
    look(course, 1, 1, 0, "healthy");
    struct course_rank ranks[] = {{.rank = 0, .host = "a", .seen = true, .joined = true, .opened_at = 1},
                                  {.rank = 1, .host = "b", .seen = true, .joined = true, .opened_at = 1}};
    ranks[1].late_ns = 5000000000;
    course_add(course, &(struct course_look){10, 0, 2, ranks, 2, 0, "healthy", -1});
    char *json = json_of(course);
    assert_non_null(strstr(json, "\"share\": 0.0000, \"late\": false, "));
    assert_non_null(strstr(json, "\"share\": 0.5000, \"late\": true, "));
    free(json);
    course_free(course);
}

/* A job that has just started may lose all of its time. */
TEST(test_a_rank_is_not_late_within_half_a_second)
{
    struct course *course = course_create(1);
    struct course_rank rank = {.host = "a", .seen = true, .joined = true, .opened_at = 1};
    for (int tenths = 4; tenths <= 5; tenths++) {
        rank.late_ns = (uint64_t)tenths * 100000000;
        course_add(course, &(struct course_look){tenths / 5.0, 0, 2, &rank, 1, 0, "healthy", -1});
        char *json = json_of(course);
        assert_non_null(strstr(json, tenths < 5 ? "\"share\": 0.5000, \"late\": false, "
                                                : "\"share\": 0.5000, \"late\": true, "));
        free(json);
    }
    course_free(course);
}

TEST(test_shares_of_the_time)
{
    struct course *course = course_create(2);
    look(course, 1, 0, 3, "rank 0 waits in init for rank 1");
    for (int at = 2; at <= 100; at++)
        look(course, at, (uint64_t)at * 10, 0, "healthy");
    assert_cost(course,
                "3.3 rank-minutes: 84 % computing, 5 % waiting for rank 1, 10 % moving 200 MB, 0 % starting; "
                "engine 0.2 core-seconds");
    char *json = json_of(course);
    assert_non_null(
        strstr(json, "[1.0, 0, 0.150, 0.100, 1], [2.0, 20, 0.150, 0.100, 1], [3.0, 10, 0.150, 0.100, 1]"));
    assert_non_null(strstr(json, "{\"rank\": 1, \"host\": \"b\", \"left\": false, \"share\": 0.1000, "));
    free(json);
    course_free(course);
}

/* A week of looks stays a curve of 2,048 points at most, and its mean is exact. */
TEST(test_a_full_curve_is_halved)
{
    struct course *course = course_create(2);
    for (int i = 1; i <= 60000; i++)
        look(course, 10.0 * i, (uint64_t)i * 70, 0, "healthy");
    char *json = json_of(course);
    int count = count_points(json);
    assert_in_range(count, COURSE_POINTS / 3, COURSE_POINTS);
    assert_non_null(strstr(json, ", 7, 0.150, 0.100, 1]"));
    free(json);
    course_free(course);
}

TEST(test_an_equal_verdict_lasts)
{
    struct course *course = course_create(2);
    look(course, 1, 0, 0, "healthy: 13 steps/s");
    look(course, 2, 0, 0, "healthy: 14 steps/s");
    look(course, 3, 0, 3, "rank 1 is late for 1 s");
    look(course, 4, 0, 3, "rank 1 is late for 2 s");
    look(course, 5, 0, 3, "rank 11 is late for 1 s");
    char *json = json_of(course);
    assert_non_null(strstr(json, "{\"at\": 0.0, \"until\": 3.0, \"exit\": 0, \"text\": "
                                 "\"healthy: 14 steps/s\"}, {\"at\": 3.0, \"until\": 5.0, \"exit\": 3, "
                                 "\"text\": \"rank 1 is late for 2 s\"}, {\"at\": 5.0, \"until\": 5.0, "));
    free(json);
    course_free(course);
}

/* Of the time in which nobody has looked no verdict is known, and of the rate its mean. */
TEST(test_a_gap)
{
    struct course *course = course_create(2);
    look(course, 10, 100, 0, "healthy: 10 steps/s");
    look(course, 110, 600, 0, "healthy: 11 steps/s");
    look(course, 120, 700, 0, "healthy: 12 steps/s");
    char *json = json_of(course);
    assert_non_null(strstr(json,
                           "\"points\": [[10.0, 10, 0.150, 0.100, 1], [110.0, 5, 0.150, 0.100, 1, true], "
                           "[120.0, 10, 0.150, 0.100, 1]], "));
    assert_non_null(strstr(json, "\"verdicts\": [{\"at\": 0.0, \"until\": 10.0, \"exit\": 0, \"text\": "
                                 "\"healthy: 10 steps/s\"}, {\"at\": 110.0, \"until\": 120.0, \"exit\": 0, "
                                 "\"text\": \"healthy: 12 steps/s\"}], "));
    free(json);
    course_free(course);
}

/* A job that ran before it was watched. */
TEST(test_a_gap_at_the_start)
{
    struct course *course = course_create(2);
    look(course, 3600, 1, 0, "healthy");
    char *json = json_of(course);
    assert_non_null(strstr(json, "\"verdicts\": [{\"at\": 3600.0, \"until\": 3600.0, "));
    free(json);
    course_free(course);
}

TEST(test_short_verdicts_make_room)
{
    struct course *course = course_create(2);
    look(course, 20, 0, 0, "the first");
    for (int i = 0; i < 2 * COURSE_VERDICTS; i++) {
        char text[32];
        snprintf(text, sizeof text, "rank %d is late", i);
        look(course, 21 + i, 0, 3, text);
    }
    char *json = json_of(course);
    int count = 0;
    for (const char *at = json; (at = strstr(at, "\"until\"")); at++)
        count++;
    assert_int_equal(count, COURSE_VERDICTS);
    assert_non_null(strstr(json, "the first"));
    assert_non_null(strstr(json, "rank 1023 is late"));
    free(json);
    course_free(course);
}

/* The counters of a new process start at 0, and a rank of another size does no harm. */
TEST(test_a_new_epoch)
{
    struct course *course = course_create(1);
    look(course, 10, 100, 0, "");
    look(course, 20, 200, 0, "");
    const struct course_rank again[] = {{0, "c", true, true, 2, 0, 0, 1000000, 0, 1, 1},
                                        {7, "", true, true, 1, 0, 0, 0, 0, 2, 1}};
    course_add(course, &(struct course_look){30, 1, 5, again, 2, 0, "", 3210});
    assert_cost(
        course,
        "30 rank-seconds: 87 % computing, 13 % moving 21 MB, 0 % starting; engine 0.02 core-seconds; 3 kJ");
    char *json = json_of(course);
    assert_non_null(strstr(json, "\"steps\": 205, "));
    free(json);
    course_free(course);
}

/* A look at an elastic job. */
static void look_at_numbers(struct course *course, double at, int epoch, const int *processes, int count,
                            const uint64_t *late)
{
    struct course_rank ranks[4];
    for (int i = 0; i < count; i++)
        ranks[i] = (struct course_rank){.rank = i,
                                        .process = processes[i],
                                        .host = "h",
                                        .seen = true,
                                        .joined = true,
                                        .opened_at = epoch + 1,
                                        .horovod_ns = (uint64_t)(at * 1e9),
                                        .late_ns = late ? late[i] * 1000000000 : 0};
    course_add(course, &(struct course_look){at, epoch, 0, ranks, count, 0, "", -1});
}

/* The same; the processes of its ranks are named by letters. */
static void look_at_processes(struct course *course, double at, int epoch, const char *processes,
                              const uint64_t *late)
{
    int numbers[4], count = (int)strlen(processes);
    for (int i = 0; i < count; i++)
        numbers[i] = (unsigned char)processes[i];
    look_at_numbers(course, at, epoch, numbers, count, late);
}

/* What a process has done stays with it, also when it has another number, or is no rank any longer. */
TEST(test_processes_of_ranks_change)
{
    struct course *course = course_create(1000);
    look_at_processes(course, 10, 0, "abc", (uint64_t[]){0, 8, 1});
    look_at_processes(course, 11, 1, "ac", (uint64_t[]){0, 1});
    look_at_processes(course, 100, 1, "ac", (uint64_t[]){0, 1});
    look_at_processes(course, 101, 2, "adc", NULL);
    char *json = json_of(course);
    assert_string_equal(
        strstr(json, "\"late\": ["),
        "\"late\": [{\"rank\": 0, \"host\": \"h\", \"left\": false, \"share\": 0.0000, \"late\": false, "
        "\"ms\": 0}, "
        "{\"rank\": 1, \"host\": \"h\", \"left\": false, \"share\": 0.0000, \"late\": false, \"ms\": 0}, "
        "{\"rank\": 2, \"host\": \"h\", \"left\": false, \"share\": 0.0198, \"late\": false, \"ms\": 0}, "
        "{\"rank\": 1, \"host\": \"h\", \"left\": true, \"share\": 0.0792, \"late\": false, \"ms\": 0}], "
        "\"cost\": {\"rank_seconds\": 213.000, \"computing\": 0.0000, \"waiting\": 0.0892, \"waiting_for\": "
        "1, "
        "\"left\": true, \"moving\": 0.9108, \"starting\": 0.0000, \"text\": \"3.5 rank-minutes: 0 % "
        "computing, 9 % "
        "waiting for rank 1, which has left, 91 % moving 0 B, 0 % starting\"}}");
    free(json);
    course_free(course);
}

/* One that was no rank for an epoch is one again. */
TEST(test_a_process_returns)
{
    struct course *course = course_create(4);
    look_at_processes(course, 10, 0, "ab", (uint64_t[]){0, 2});
    look_at_processes(course, 11, 1, "a", NULL);
    look_at_processes(course, 12, 2, "acb", (uint64_t[]){0, 0, 1});
    char *json = json_of(course);
    assert_non_null(strstr(json, "{\"rank\": 2, \"host\": \"h\", \"left\": false, \"share\": 0.2500, "));
    assert_null(strstr(json, "\"left\": true, \"share\""));
    free(json);
    course_free(course);
}

/* Ranks that have left. */
static int count_left(const char *json)
{
    int count = 0;
    for (const char *at = json; (at = strstr(at, "\"left\": true, \"share\"")); at++)
        count++;
    return count;
}

/* Of very many processes that have left, those that were late most stay. */
TEST(test_many_processes_leave)
{
    struct course *course = course_create(2);
    for (int epoch = 0; epoch < 3 * COURSE_LEFT; epoch++)
        look_at_numbers(course, epoch + 1, epoch, (int[]){1, epoch + 2}, 2,
                        (uint64_t[]){0, epoch == 5 ? COURSE_LEFT : 1});
    char *json = json_of(course);
    assert_non_null(
        strstr(json, "{\"rank\": 1, \"host\": \"h\", \"left\": true, \"share\": 0.3333, \"late\": true, "));
    assert_int_equal(count_left(json), COURSE_LEFT);
    free(json);
    course_free(course);
}

/* An epoch begins; each letter is the slot of a rank, upper case if it is in its first epoch. */
static void begin(struct course *course, int epoch, const char *slots)
{
    struct course_member members[4];
    int count = (int)strlen(slots);
    for (int i = 0; i < count; i++)
        members[i] = (struct course_member){tolower(slots[i]), "h", isupper(slots[i])};
    course_begin(course, epoch, members, count);
}

/* Checks the ranks of the report: "0 1 -2" are ranks 0 and 1, and one that has left as rank 2. */
static void assert_ranks(const struct course *course, const char *expected)
{
    char *json = json_of(course), found[64] = "";
    size_t length = 0;
    for (const char *at = json; (at = strstr(at, "{\"rank\": ")); at++)
        length += (size_t)snprintf(found + length, sizeof found - length, "%s%s%d", length ? " " : "",
                                   strncmp(strstr(at, "\"left\": "), "\"left\": true", 12) == 0 ? "-" : "",
                                   atoi(at + strlen("{\"rank\": ")));
    assert_string_equal(found, expected);
    free(json);
}

/* An epoch may be shorter than the time between two looks. */
TEST(test_ranks_that_no_look_has_seen)
{
    struct course *course = course_create(4);
    begin(course, 0, "AB");
    assert_ranks(course, "0 1");
    look_at_processes(course, 1, 0, "ab", NULL);
    assert_ranks(course, "0 1");
    begin(course, 1, "abCD");
    assert_ranks(course, "0 1 2 3");
    begin(course, 2, "ab");
    assert_ranks(course, "0 1 -2 -3");
    look_at_processes(course, 2, 2, "ab", NULL);
    begin(course, 3, "abE");
    begin(course, 4, "aeF"); /* rank 2 is rank 1 now */
    assert_ranks(course, "0 1 1 2 -2 -3");
    look_at_processes(course, 3, 4, "aef", NULL);
    assert_ranks(course, "0 1 2 -2 -3 -1");
    assert_cost(course, "7 rank-seconds: 0 % computing, 100 % moving 0 B, 0 % starting");
    course_free(course);
}

/* A look that was under way when an epoch ended shows the ranks of that epoch. */
TEST(test_a_look_at_the_epoch_before)
{
    struct course *course = course_create(4);
    begin(course, 0, "AB");
    look_at_processes(course, 1, 0, "ab", NULL);
    begin(course, 1, "abCD");
    begin(course, 2, "abc");
    look_at_processes(course, 2, 1, "abcd", NULL);
    assert_ranks(course, "0 1 2 3 2");
    look_at_processes(course, 3, 2, "abc", NULL);
    assert_ranks(course, "0 1 2 -3");
    course_free(course);
}

/* Rank 0 makes most steps, and what it shows says how late rank 1 is: once it is not seen, both numbers are
 * lower for a while. The time that it was not seen counts when it is seen again. */
TEST(test_counts_that_fall_are_no_restart)
{
    struct course *course = course_create(2);
    look(course, 10, 100, 0, "");
    for (int at = 11; at < 20; at++) {
        const struct course_rank partly[] = {{.rank = 0, .host = "a"},
                                             {.rank = 1,
                                              .host = "b",
                                              .seen = true,
                                              .joined = true,
                                              .opened_at = 1,
                                              .bytes = 10000000,
                                              .process = 2,
                                              .born = 1}};
        course_add(course, &(struct course_look){at, 0, 99, partly, 2, 0, "", -1});
    }
    look(course, 20, 200, 0, "");
    assert_cost(course, "40 rank-seconds: 85 % computing, 5 % waiting for rank 1, 10 % moving 40 MB, 0 % "
                        "starting; engine 0.04 core-seconds");
    char *json = json_of(course);
    assert_non_null(strstr(json, "{\"version\": 1, \"steps\": 200, "));
    assert_non_null(strstr(json, "{\"rank\": 1, \"host\": \"b\", \"left\": false, \"share\": 0.1000, "));
    free(json);
    course_free(course);
}

/* Imports before hvd.init are the start; of a rank that is never seen nothing is known. */
TEST(test_a_rank_that_has_not_joined)
{
    struct course *course = course_create(2);
    for (int at = 1; at <= 10; at++) {
        const struct course_rank ranks[] = {
            {.rank = 0, .host = "a", .seen = true, .joined = at > 4, .opened_at = at > 3},
            {.rank = 1, .host = "b"}};
        course_add(course, &(struct course_look){at, 0, 0, ranks, 2, 0, "", -1});
    }
    assert_cost(course, "10 rank-seconds: 60 % computing, 0 % moving 0 B, 40 % starting");
    char *json = json_of(course);
    assert_non_null(strstr(json,
                           "\"late\": [{\"rank\": 0, \"host\": \"a\", \"left\": false, \"share\": 0.0000, "
                           "\"late\": false, \"ms\": 0}]"));
    free(json);
    course_free(course);
}

TEST(test_a_document_is_a_page_or_a_report)
{
    char *page = NULL, *report = NULL;
    size_t length;
    FILE *file = open_memstream(&page, &length);
    document_write(file, NULL);
    fclose(file);
    file = open_memstream(&report, &length);
    document_write(file, "{\"text\": \"</script><img src=x>\"}");
    fclose(file);
    assert_non_null(strstr(page, document_policy));
    assert_non_null(strstr(page, ">null</script>"));
    assert_non_null(strstr(report, ">{\"text\": \"\\u003c/script>\\u003cimg src=x>\"}</script>"));
    assert_string_equal(strstr(page, "</script>"), strstr(report, "</script>"));
    free(page);
    free(report);
}

static void write_counter(const char *folder, int package, const char *name, const char *value)
{
    char path[200];
    snprintf(path, sizeof path, "%s/intel-rapl:%d", folder, package);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/intel-rapl:%d/%s", folder, package, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(value, file);
    fclose(file);
}

TEST(test_energy)
{
    char folder[] = "/tmp/energy.XXXXXX", command[64];
    struct energy energy;
    assert_non_null(mkdtemp(folder));
    energy_open(&energy, folder);
    assert_true(energy_read(&energy, folder) < 0);
    for (int package = 0; package < 2; package++) {
        write_counter(folder, package, "energy_uj", "9000000\n");
        write_counter(folder, package, "max_energy_range_uj", "10000000\n");
    }
    energy_open(&energy, folder);
    write_counter(folder, 0, "energy_uj", "9500000\n");
    write_counter(folder, 1, "energy_uj", "1000000\n"); /* it has started again */
    assert_true(energy_read(&energy, folder) == 2.5);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}
