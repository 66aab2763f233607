/* test_page.c - the page of a rank without an engine: what a reader finds in it while it is written, after
 * its process was killed, and when it is damaged. */
#include "test.h"
#include "watch/page_waitings.h"

#include "base/clock.h"
#include "base/platform_memory.h"
#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct page_identity identity = {
    .job = "job", .host = "a", .version = "1", .rank = 1, .size = 3, .local_rank = -1, .process = 77};

static struct page_writer opened(const char *path)
{
    struct page_writer writer = {0};
    ASSERT_OK(page_open(&writer, path, &identity, &check_status));
    page_joined(&writer, 1, 3);
    return writer;
}

static void closed(struct page_writer *writer)
{
    page_leave(writer);
    page_free(writer);
}

static struct page_summary read_of(int fd, int64_t now)
{
    struct page_copies *copies = page_copies_create();
    struct page_summary summary;
    assert_non_null(copies);
    ASSERT_OK(page_read(fd, copies, now, &summary, &check_status));
    page_copies_free(copies);
    return summary;
}

static uint32_t submit(struct page_writer *writer, uint32_t name, int set, int64_t now)
{
    return page_submitted(writer, &(struct page_entry){.submitted = now,
                                                       .bytes = (uint64_t)now * 4,
                                                       .name = name,
                                                       .process_set = set,
                                                       .operation = HVD_ALLREDUCE});
}

static struct page_set *add_set(struct page_writer *writer, int id, int size)
{
    struct page_set *set = page_add_set(writer, id);
    if (set)
        atomic_store(&set->size, size);
    return set;
}

/* ---- what was written is read -------------------------------------------------------------------------- */

TEST(test_life_of_a_request)
{
    struct page_writer writer = opened("");
    uint32_t name = page_add_name(&writer, "weight");
    uint32_t place = submit(&writer, name, 0, 100);
    struct page_summary summary = read_of(writer.fd, 1000);
    assert_int_equal(summary.state, PAGE_OPEN);
    assert_string_equal(summary.identity.job, "job");
    assert_int_equal(summary.identity.local_size, 3);
    assert_int_equal(summary.request_count, 1);
    assert_string_equal(summary.requests[0].title, "allreduce.weight");
    assert_int_equal(summary.requests[0].bytes, 400);
    assert_int_equal(summary.requests[0].submitted, 100);
    assert_int_equal(summary.requests[0].decided, 0);
    assert_int_equal(summary.last.number, 0);
    page_summary_free(&summary);

    page_decided(&writer, place, 7, 200);
    summary = read_of(writer.fd, 1000);
    assert_int_equal(summary.requests[0].decided, 200);
    assert_int_equal(summary.requests[0].batch, 7);
    page_summary_free(&summary);

    page_ended(&writer, place, HVD_MISMATCH, 300);
    summary = read_of(writer.fd, 1000);
    assert_int_equal(summary.request_count, 0);
    assert_int_equal(summary.last.ended, 300);
    assert_int_equal(summary.last.outcome, HVD_MISMATCH);
    assert_int_equal(summary.progress, 300);
    page_summary_free(&summary);
    closed(&writer);
}

/* Times of the reader's clock, in minutes. */
static void set_late(struct page_writer *writer, int reporter, double total, double now)
{
    page_set_late(writer, reporter,
                  &(struct page_lateness){.rank = 10 + reporter,
                                          .total = (int64_t)(total * PAGE_MARK_TIME),
                                          .longest = PAGE_MARK_TIME / 2,
                                          .count = 3},
                  (int64_t)(now * PAGE_MARK_TIME));
}

static struct page_reporter read_late(const struct page_writer *writer, double now, int reporter)
{
    struct page_summary summary = read_of(writer->fd, (int64_t)(now * PAGE_MARK_TIME));
    assert_true(reporter < summary.reporter_count);
    struct page_reporter found = summary.reporters[reporter];
    page_summary_free(&summary);
    return found;
}

/* The share is that of the last one to three minutes, also after a long time without a wait. */
TEST(test_lateness)
{
    struct page_writer writer = opened("");
    struct page_summary summary = read_of(writer.fd, 1);
    assert_int_equal(summary.reporter_count, 0);
    page_summary_free(&summary);

    set_late(&writer, 0, -100, 100); /* the clock starts at 0 */
    set_late(&writer, PAGE_REPORTERS - 1, 0, 100);
    set_late(&writer, PAGE_REPORTERS, 1, 100); /* there is no such place */
    struct page_reporter late = read_late(&writer, 102, 0);
    assert_true(late.waits && late.rank == 10 && late.count == 3);
    assert_int_equal(late.total, 2 * PAGE_MARK_TIME);
    assert_int_equal(late.longest, PAGE_MARK_TIME / 2);
    assert_true(late.share == 1);
    late = read_late(&writer, 102, 1);
    assert_true(!late.waits && late.rank == 10 + PAGE_REPORTERS - 1 && late.total == 0 && late.share == 0);

    set_late(&writer, 0, 5, 105);
    late = read_late(&writer, 105, 0); /* since the mark at 100 */
    assert_true(!late.waits && late.share == 1);
    late = read_late(&writer, 115, 0); /* since the mark at 105 */
    assert_int_equal(late.total, 5 * PAGE_MARK_TIME);
    assert_true(late.share == 0);
    set_late(&writer, 0, 5 - 125, 125); /* it waits again */
    late = read_late(&writer, 125.5, 0);
    assert_true(late.waits && fabs(late.share - 0.5 / 1.5) < 1e-6);
    late = read_late(&writer, 185, 0);
    assert_true(late.waits && late.share == 1);
    set_late(&writer, 0, 5.5, 125.5);
    late = read_late(&writer, 126.5, 0);
    assert_true(!late.waits && fabs(late.share - 0.5 / 1.5) < 1e-6);
    late = read_late(&writer, 185, 0);
    assert_true(late.total == 5.5 * PAGE_MARK_TIME && late.share == 0);
    closed(&writer);
}

TEST(test_negotiations)
{
    static const int64_t times[] = {0, 100000, 100001, 1000000, 9000000, CLOCK_SECOND, 11 * CLOCK_SECOND};
    static const uint64_t expected[PAGE_NEGOTIATIONS] = {2, 2, 1, 0, 1, 0, 1};
    struct page_writer writer = opened("");
    int64_t total = 0;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        page_add_negotiation(&writer, times[i]);
        total += times[i];
    }
    struct page_summary summary = read_of(writer.fd, 1);
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        assert_int_equal(summary.negotiations[i], expected[i]);
    assert_int_equal(summary.negotiation_total, total);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_a_glance)
{
    struct page_writer writer = opened("");
    struct page_glance glance;
    struct operation_counters *counters = add_set(&writer, 0, 2)->operations;
    atomic_store(&counters[HVD_ALLREDUCE].succeeded, 3);
    atomic_store(&counters[HVD_BARRIER].failed, 4);
    atomic_store(&add_set(&writer, 1, 2)->operations[HVD_JOIN].succeeded, 5);
    ASSERT_OK(page_glance(writer.fd, &glance, &check_status));
    assert_int_equal(glance.state, PAGE_OPEN);
    assert_int_equal(glance.ended, 12);
    assert_int_equal(glance.stalled, 0);
    page_stalled(&writer, 77);
    ASSERT_OK(page_glance(writer.fd, &glance, &check_status));
    assert_int_equal(glance.stalled, 77);
    closed(&writer);
}

TEST(test_titles)
{
    struct page_writer writer = opened("");
    char longest[300];
    memset(longest, 'x', sizeof longest);
    strcpy(longest + sizeof longest - 8, "last\x1b[m");
    page_submitted(&writer, &(struct page_entry){.name = 3 | PAGE_COUNTED, .operation = HVD_BARRIER});
    page_submitted(&writer, &(struct page_entry){.name = page_add_name(&writer, longest),
                                                 .operation = HVD_BROADCAST,
                                                 .flags = RECORD_GROUPED | RECORD_HELD});
    page_submitted(&writer, &(struct page_entry){.name = 999, .operation = 200});
    struct page_summary summary = read_of(writer.fd, 1);
    assert_int_equal(summary.request_count, 3);
    assert_string_equal(summary.requests[0].title, "barrier.noname.3");
    check_text(summary.requests[1].title, "grouped_broadcast.xxx");
    check_text(summary.requests[1].title, "xlast?[m"); /* no control character reaches a terminal */
    assert_true(summary.requests[1].held);
    assert_string_equal(summary.requests[2].title, "operation.?");
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_requests_in_flight_survive_the_wrap_of_the_ring)
{
    struct page_writer writer = opened("");
    uint32_t name = page_add_name(&writer, "stuck"), stuck[3];
    for (int i = 0; i < 3; i++)
        stuck[i] = submit(&writer, name, 0, 1 + i);
    for (int i = 0; i < 3 * PAGE_RECORDS; i++)
        page_ended(&writer, submit(&writer, i | PAGE_COUNTED, 0, 10 + i), HVD_OK, 20 + i);
    struct page_summary summary = read_of(writer.fd, INT64_MAX);
    assert_int_equal(summary.request_count, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(summary.requests[i].number, i + 1);
    assert_int_equal(summary.last.number, 3 + 3 * PAGE_RECORDS);
    assert_int_equal(summary.dropped, 0);
    page_summary_free(&summary);
    page_ended(&writer, stuck[1], HVD_OK, 1);
    summary = read_of(writer.fd, INT64_MAX);
    assert_int_equal(summary.request_count, 2);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_more_requests_than_places)
{
    struct page_writer writer = opened("");
    uint32_t places[PAGE_RECORDS];
    for (int i = 0; i < PAGE_RECORDS; i++)
        assert_int_not_equal(places[i] = submit(&writer, i | PAGE_COUNTED, 0, 1), 0);
    assert_int_equal(submit(&writer, 1 | PAGE_COUNTED, 0, 1), 0);
    page_decided(&writer, 0, 1, 1); /* what has no place is ignored */
    page_ended(&writer, 0, HVD_OK, 1);
    struct page_summary summary = read_of(writer.fd, 1);
    assert_int_equal(summary.request_count, PAGE_RECORDS);
    assert_int_equal(summary.dropped, 1);
    page_summary_free(&summary);
    for (int i = 0; i < PAGE_RECORDS; i++)
        page_ended(&writer, places[i], HVD_OK, 1);
    assert_int_not_equal(submit(&writer, 1 | PAGE_COUNTED, 0, 1), 0);
    closed(&writer);
}

TEST(test_names_make_room_for_each_other)
{
    struct page_writer writer = opened("");
    uint32_t first = page_add_name(&writer, "first");
    assert_true(page_use_name(&writer, first));
    assert_false(page_use_name(&writer, 0));
    submit(&writer, first, 0, 1);
    for (int i = 0; i < PAGE_NAMES; i++) {
        char text[32];
        snprintf(text, sizeof text, "name%d", i);
        submit(&writer, page_add_name(&writer, text), 0, 1);
    }
    struct page_summary summary = read_of(writer.fd, 1);
    assert_string_equal(summary.requests[0].title, "allreduce.?"); /* rather none than a wrong one */
    assert_string_equal(summary.requests[1].title, "allreduce.name0");
    assert_string_equal(summary.requests[PAGE_NAMES].title, "allreduce.name2047");
    page_summary_free(&summary);
    assert_false(page_use_name(&writer, first));
    uint32_t again = page_add_name(&writer, "first");
    for (int i = 0; i < 9; i++)
        assert_true(page_use_name(&writer, again));
    summary = read_of(writer.fd, 1);
    assert_int_equal(summary.steps.count, 10);
    page_summary_free(&summary);
    closed(&writer);
}

/* A page is memory of its rank: what a training of many tensors, as many as bench/memory.py has, leaves in
 * it. A name that the coordinator has forgotten is added again. */
TEST(test_memory_for_each_tensor)
{
    enum { TENSORS = 1610, ROUNDS = 20, REMEMBERED = 1024, BLOCK = 4096 };
    static const char zeros[BLOCK];
    struct page_writer writer = opened("");
    uint32_t names[TENSORS] = {0};
    size_t bytes = 0;
    for (int i = 0; i < ROUNDS * TENSORS; i++) {
        uint32_t *name = &names[i % TENSORS];
        if (i % TENSORS >= REMEMBERED || !page_use_name(&writer, *name))
            *name = page_add_name(&writer, "module.layer.weight");
        page_ended(&writer, submit(&writer, *name, 0, 1), HVD_OK, 2);
    }
    for (size_t at = 0; at < PAGE_BYTES; at += BLOCK)
        bytes += memcmp((char *)writer.page + at, zeros, BLOCK) ? BLOCK : 0;
    assert_in_range(bytes / TENSORS, 1, 280);
    closed(&writer);
}

TEST(test_process_sets_and_counters)
{
    struct page_writer writer = opened("");
    for (int i = 0; i < PAGE_SETS; i++)
        atomic_store(&add_set(&writer, i, 2)->operations[HVD_ALLREDUCE].bytes, 3);
    assert_null(add_set(&writer, 99, 2));
    struct page_summary summary = read_of(writer.fd, 1);
    assert_int_equal(summary.set_count, PAGE_SETS);
    assert_int_equal(summary.sets[5].id, 5);
    assert_int_equal(summary.all.bytes, 3 * PAGE_SETS);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_steps_that_were_reported)
{
    struct page_writer writer = opened("");
    struct page_summary summary = read_of(writer.fd, 1);
    assert_int_equal(summary.steps.count, 0);
    assert_false(summary.steps.reported);
    page_summary_free(&summary);
    for (int i = 1; i <= 3 * PAGE_STEPS; i++)
        page_stepped(&writer, (uint64_t)i, 1000 + i, 100 * i + (i % 10 ? 0 : 30));
    page_describe_step(&writer, 5000, 64);
    page_describe_step(&writer, 5000, 64);
    summary = read_of(writer.fd, INT64_MAX);
    assert_true(summary.steps.reported);
    assert_int_equal(summary.steps.count, 3 * PAGE_STEPS);
    assert_int_equal(summary.steps.number, 5000);
    assert_int_equal(summary.steps.samples, 128);
    assert_int_equal(summary.steps.last, 100 * 3 * PAGE_STEPS);
    assert_int_equal(summary.steps.median, 100);
    page_summary_free(&summary);
    summary = read_of(writer.fd, 200); /* all later times count as now */
    assert_int_equal(summary.steps.last, 200);
    assert_int_equal(summary.steps.median, 0);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_steps_that_nobody_reports)
{
    struct page_writer writer = opened("");
    uint32_t gradient = page_add_name(&writer, "gradient"), loss = page_add_name(&writer, "loss");
    page_ended(&writer, submit(&writer, gradient, 0, 1), HVD_OK, 2);
    page_ended(&writer, submit(&writer, loss, 0, 1), HVD_OK, 2);
    struct page_summary summary = read_of(writer.fd, 9);
    assert_int_equal(summary.steps.count, 0); /* no name came again */
    page_summary_free(&summary);
    int steps = 1, last = 0;
    for (int i = 1; i < 2 * PAGE_RECORDS; i++) {
        uint32_t name = i % 5 ? gradient : loss;
        page_use_name(&writer, name);
        page_ended(&writer, submit(&writer, name, 0, 10 * i), HVD_OK, 10 * i);
        steps += name == gradient;
        last = name == gradient ? 10 * i : last;
    }
    summary = read_of(writer.fd, INT64_MAX);
    assert_int_equal(summary.steps.count, steps);
    assert_int_equal(summary.steps.number, steps);
    assert_int_equal(summary.steps.last, last);
    assert_int_equal(summary.steps.median, 10);
    assert_false(summary.steps.reported);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_threads_that_sleep)
{
    struct page_writer writer = opened("");
    uint32_t place = submit(&writer, 1 | PAGE_COUNTED, 0, 1);
    unsigned callers[PAGE_CALLERS];
    for (int i = 0; i < PAGE_CALLERS; i++)
        callers[i] = page_sleeps(&writer, i ? 0 : place, 5 + i);
    page_woken(&writer, page_sleeps(&writer, 0, 1)); /* there is no place left */
    struct page_summary summary = read_of(writer.fd, 9999);
    assert_int_equal(summary.thread_count, PAGE_CALLERS);
    assert_int_equal(summary.threads[0].id, getpid());
    assert_int_equal(summary.threads[0].record, 1);
    assert_int_equal(summary.threads[1].record, 0);
    assert_int_equal(summary.threads[1].since, 6);
    page_summary_free(&summary);
    for (int i = 0; i < PAGE_CALLERS; i++)
        page_woken(&writer, callers[i]);
    summary = read_of(writer.fd, 9999);
    assert_int_equal(summary.thread_count, 0);
    page_summary_free(&summary);
    closed(&writer);
}

static int sleeping(const struct page_writer *writer, int64_t now)
{
    struct page_summary summary = read_of(writer->fd, now);
    int count = summary.thread_count;
    page_summary_free(&summary);
    return count;
}

TEST(test_threads_that_are_woken_in_vain)
{
    struct page_writer writer = opened("");
    uint32_t place = submit(&writer, 1 | PAGE_COUNTED, 0, 1);
    unsigned caller = page_sleeps(&writer, place, 5);
    page_paused(&writer, caller, 10);
    assert_int_equal(sleeping(&writer, 11), 1);
    assert_int_equal(sleeping(&writer, 11 + PAGE_PAUSE), 0);
    assert_int_equal(page_sleeps(&writer, place, 12), caller);
    assert_int_equal(sleeping(&writer, 11 + PAGE_PAUSE), 1);
    page_paused(&writer, caller, 20);
    page_ended(&writer, place, HVD_OK, 21);
    assert_int_equal(sleeping(&writer, 22), 0);
    uint64_t other = 1; /* the entry of a thread that never came back */
    atomic_store(&writer.page->head.callers[caller].thread, other);
    assert_int_not_equal(page_sleeps(&writer, 0, 30), caller);
    assert_int_equal(page_sleeps(&writer, 0, 30 + PAGE_PAUSE), caller);
    closed(&writer);
}

/* ---- whose page it is ---------------------------------------------------------------------------------- */

static ino_t file_of(const struct page_writer *writer)
{
    struct stat info;
    assert_int_equal(fstat(writer->fd, &info), 0);
    return info.st_ino;
}

TEST(test_a_given_page_has_one_writer)
{
    char path[64];
    struct stat info;
    int fd = page_create(&identity), before = count_entries("/proc/self/fd");
    assert_true(fd >= 0 && fstat(fd, &info) == 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    page_set_child(fd, getpid());
    struct page_summary summary = read_of(fd, 1);
    assert_int_equal(summary.state, PAGE_STARTED);
    assert_int_equal(summary.child, getpid());
    page_summary_free(&summary);

    struct page_writer one = opened(path), other = opened(path);
    assert_int_equal(file_of(&one), info.st_ino);
    assert_int_not_equal(file_of(&other), info.st_ino);
    page_add_set(&one, 5);
    submit(&one, page_add_name(&one, "old"), 0, 1);
    page_fail(&one, "first");
    page_fail(&one, "second");
    closed(&other);
    closed(&one);
    summary = read_of(fd, 1);
    assert_int_equal(summary.state, PAGE_FAILED);
    assert_string_equal(summary.cause, "first");
    assert_int_equal(summary.request_count, 1);
    page_summary_free(&summary);

    one = opened(path); /* the next epoch */
    assert_int_equal(file_of(&one), info.st_ino);
    summary = read_of(fd, 1);
    assert_int_equal(summary.state, PAGE_OPEN);
    assert_string_equal(summary.cause, "");
    assert_int_equal(summary.request_count + summary.set_count, 0);
    page_summary_free(&summary);
    closed(&one);
    summary = read_of(fd, 1);
    assert_int_equal(summary.state, PAGE_LEFT);
    page_summary_free(&summary);
    assert_int_equal(count_entries("/proc/self/fd"), before);
    close(fd);
}

TEST(test_a_page_of_another_job)
{
    char path[64];
    struct stat info;
    int fd = page_create(&identity);
    assert_int_equal(fstat(fd, &info), 0);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    static const char *const jobs[] = {"another", "job-some", "job-others", "jo", "job"};
    for (int i = 0; i < 5; i++) { /* ranks of the job may form others, one after the other */
        struct page_identity other = identity;
        struct page_writer writer = {0};
        strcpy(other.job, jobs[i]);
        ASSERT_OK(page_open(&writer, path, &other, &check_status));
        assert_int_equal(file_of(&writer) == info.st_ino, strncmp(jobs[i], "job", 3) == 0);
        closed(&writer);
    }
    close(fd);
}

TEST(test_a_long_name_of_a_job)
{
    struct page_identity other = identity;
    struct page_writer writer = {0};
    memset(other.job, 'x', 300);
    strcpy(other.job + 300, "end");
    ASSERT_OK(page_open(&writer, "", &other, &check_status));
    struct page_summary summary = read_of(writer.fd, 1);
    assert_string_equal(summary.identity.job, other.job);
    page_summary_free(&summary);
    closed(&writer);
}

TEST(test_other_files_are_no_pages)
{
    int fd = platform_memory_create(PAGE_BYTES, false);
    char memory[64];
    snprintf(memory, sizeof memory, "/proc/self/fd/%d", fd);
    const char *const paths[] = {"/dev/zero",          "/dev/null", "/proc/self/exe",
                                 "/proc/self/fd/9999", "/",         memory};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct page_writer writer = opened(paths[i]);
        struct page_summary summary = read_of(writer.fd, 1);
        assert_int_equal(summary.state, PAGE_OPEN);
        page_summary_free(&summary);
        closed(&writer);
    }
    struct page *zeros = platform_memory_map(fd, PAGE_BYTES);
    assert_int_equal(atomic_load(&zeros->head.state), 0);
    platform_memory_unmap(zeros, PAGE_BYTES);
    close(fd);
}

TEST(test_a_killed_rank_leaves_its_page)
{
    char path[64];
    int fd = page_create(&identity), status;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    pid_t child = fork();
    if (child == 0) {
        struct page_writer writer = opened(path);
        submit(&writer, page_add_name(&writer, "last"), 0, 1);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    struct page_summary summary = read_of(fd, 1);
    assert_int_equal(summary.request_count, 1);
    assert_string_equal(summary.requests[0].title, "allreduce.last");
    page_summary_free(&summary);
    struct page_writer writer = opened(path); /* its owner is gone, so the next process may have it */
    assert_true(file_of(&writer));
    summary = read_of(fd, 1);
    assert_int_equal(summary.request_count, 0);
    page_summary_free(&summary);
    closed(&writer);
    close(fd);
}

TEST(test_without_descriptors_the_page_is_private)
{
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct page_writer writer = opened("/proc/self/exe"), other = opened("");
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(writer.fd, -1);
    page_ended(&writer, submit(&writer, page_add_name(&writer, "name"), 0, 1), HVD_OK, 2);
    assert_int_equal(atomic_load(&writer.page->records[0].ended), 2);
    closed(&other);
    closed(&writer);
}

TEST(test_small_files_only)
{
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){PAGE_BYTES - 1, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); /* a larger file would end this program */
    int fd = page_create(&identity), error = errno;
    struct page_writer writer = opened("");
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(fd, -1);
    assert_int_equal(error, EFBIG);
    assert_int_equal(writer.fd, -1);
    closed(&writer);
}

TEST(test_a_page_that_was_never_opened)
{
    struct page_writer writer = {0};
    page_fail(&writer, "text");
    page_forget(&writer);
    closed(&writer);
    assert_int_equal(fcntl(0, F_GETFD) == -1 ? -1 : 0, 0); /* its descriptor was none, not 0 */
}

/* ---- readers ------------------------------------------------------------------------------------------- */

static void (*before_read)(int number); /* of the copies that page_read makes, from 0 */
static int reads;
static size_t bytes_read;

/* In place of the system's: page_read reads a page in one call. */
ssize_t pread(int fd, void *to, size_t length, off_t at)
{
    if (before_read)
        before_read(reads++);
    bytes_read += length;
    return lseek(fd, at, SEEK_SET) < 0 ? -1 : read(fd, to, length);
}

static struct page_writer changing;
static uint32_t changing_places[3];
static int change_before;

/* The ring is full, so that its next places are those of the requests that end now. */
static void replace_one(int number)
{
    if (number != change_before)
        return;
    page_ended(&changing, changing_places[1], HVD_OK, 1);
    page_add_name(&changing, "other"); /* replaces the oldest */
    changing_places[1] = submit(&changing, 7 | PAGE_COUNTED, 0, 1);
}

TEST(test_what_changes_while_it_is_read_is_left_out)
{
    for (change_before = 1; change_before <= 2; change_before++) {
        changing = opened("");
        for (int i = 0; i < PAGE_NAMES; i++)
            page_add_name(&changing, "name");
        for (int i = 0; i < PAGE_RECORDS; i++) {
            uint32_t place = submit(&changing, i < 3 ? (uint32_t)i + 1 : PAGE_COUNTED, 0, 1);
            if (i < 3)
                changing_places[i] = place;
        }
        reads = 0;
        before_read = replace_one;
        struct page_summary summary = read_of(changing.fd, 1);
        before_read = NULL;
        assert_int_equal(reads, 3);
        assert_int_equal(summary.request_count, PAGE_RECORDS - 1);
        assert_string_equal(summary.requests[0].title, "allreduce.?"); /* its name was replaced */
        assert_int_equal(summary.requests[0].number, 1);
        assert_int_equal(summary.requests[1].number, 3);
        assert_string_equal(summary.requests[1].title, "allreduce.name");
        page_summary_free(&summary);
        closed(&changing);
    }
}

/* A reporter's marks are half written in the first copies, and for good if `writes_forever`. */
static bool writes_forever;

static void tear_lateness(int number)
{
    struct page_late *late = &changing.page->late[0];
    if (number == 1 || (number == 4 && writes_forever)) {
        atomic_store(&late->changes, atomic_load(&late->changes) | 1);
        atomic_store(&late->marks[0].time, 99 * PAGE_MARK_TIME); /* its total is that of an older one */
    } else if (number == 4) {
        atomic_store(&late->marks[0].total, PAGE_MARK_TIME / 10);
        atomic_store(&late->changes, atomic_load(&late->changes) + 1);
    }
}

TEST(test_half_written_lateness_is_not_shown)
{
    for (int forever = 0; forever < 2; forever++) {
        changing = opened("");
        set_late(&changing, 1, 0.1, 99);
        set_late(&changing, 0, 0.1, 99); /* marks 99, 0.1 */
        atomic_store(&changing.page->late[0].marks[0].time, PAGE_MARK_TIME);
        set_late(&changing, 0, 0.2, 100.5);
        atomic_store(&changing.page->late[0].marks[0].time, PAGE_MARK_TIME);
        atomic_store(&changing.page->late[0].marks[0].total, -PAGE_MARK_TIME * 50);
        reads = 0;
        bytes_read = 0;
        writes_forever = forever;
        before_read = tear_lateness;
        struct page_summary summary = read_of(changing.fd, (int64_t)(101 * PAGE_MARK_TIME));
        before_read = NULL;
        assert_true(bytes_read < 3 * sizeof(struct page) + 4096);
        assert_int_equal(summary.reporter_count, forever ? 1 : 2);
        assert_int_equal(summary.reporters[0].rank, forever ? 11 : 10);
        assert_true(summary.reporters[0].share < 0.1); /* and not 1 */
        page_summary_free(&summary);
        closed(&changing);
    }
}

/* The text of a check is written during the first reading, and is never complete if `writes_forever`. */
static void tear_text(int number)
{
    if (number == 1 || writes_forever) {
        atomic_store(&changing.page->head.difference, 0);
        changing.page->head.divergence[0] = '#';
    } else if (number == 3) {
        page_set_check(&changing, "b differs");
    }
}

TEST(test_half_written_texts_are_not_shown)
{
    for (int forever = 0; forever < 2; forever++) {
        changing = opened("");
        page_set_check(&changing, "a differs");
        memcpy(changing.page->head.nan, "allred", 7); /* a NaN that is being written */
        reads = 0;
        bytes_read = 0;
        writes_forever = forever;
        before_read = tear_text;
        struct page_summary summary = read_of(changing.fd, 1);
        before_read = NULL;
        assert_string_equal(summary.divergence, forever ? "" : "b differs");
        assert_int_equal(summary.divergences, forever ? 1 : 2);
        assert_true(bytes_read < 3 * sizeof(struct page) + 20000);
        assert_string_equal(summary.nan, "");
        closed(&changing);
    }
}

static void fail_meanwhile(int number)
{
    if (number == 1)
        page_fail(&changing, "lost rank 1");
}

static void stop_in_failure(int number)
{
    if (number == 1)
        atomic_fetch_or(&changing.page->head.generation, 1);
}

/* A cause is written as an identity is: a page that is read meanwhile is read again. */
TEST(test_a_half_written_cause_is_not_shown)
{
    changing = opened("");
    reads = 0;
    before_read = fail_meanwhile;
    struct page_summary summary = read_of(changing.fd, 1);
    assert_int_equal(reads, 7); /* its head in between */
    assert_int_equal(summary.state, PAGE_FAILED);
    assert_string_equal(summary.cause, "lost rank 1");
    page_summary_free(&summary);

    struct page_copies *copies = page_copies_create();
    struct page_glance glance;
    reads = 0;
    bytes_read = 0;
    before_read = stop_in_failure;
    ASSERT_FAILS(page_read(changing.fd, copies, 1, &summary, &check_status), HVD_REFUSED, "half written");
    assert_true(bytes_read < 3 * sizeof(struct page) + 20000);
    before_read = NULL;
    ASSERT_FAILS(page_glance(changing.fd, &glance, &check_status), HVD_REFUSED, "half written");
    page_copies_free(copies);
    closed(&changing);
}

static void never_settles(int number)
{
    (void)number;
    page_joined(&changing, 1, 1);
}

TEST(test_a_head_that_changes_all_the_time)
{
    struct page_copies *copies = page_copies_create();
    struct page_summary summary;
    changing = opened("");
    before_read = never_settles;
    ASSERT_FAILS(page_read(changing.fd, copies, 1, &summary, &check_status), HVD_REFUSED, "half written");
    before_read = NULL;
    page_copies_free(copies);
    closed(&changing);
}

static struct page_writer interrupted;
static volatile int interruptions, torn;

/* A signal handler may not call strtoul. */
static uint64_t number_in(const char *text)
{
    uint64_t number = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        number = 10 * number + (uint64_t)(*text - '0');
    return number;
}

/* Runs between any two stores of the writer, and looks at what it writes just now. */
static void look_between(int signal)
{
    (void)signal;
    const struct page_record *record =
        &interrupted.page->records[(interrupted.next + PAGE_RECORDS - 1) % PAGE_RECORDS];
    const struct page_name *name = &interrupted.page->names[interrupted.name_id % PAGE_NAMES];
    uint64_t number = atomic_load(&record->number), id = atomic_load(&name->id);
    if (number &&
        ((uint64_t)atomic_load(&record->submitted) != number || atomic_load(&record->bytes) != 4 * number))
        torn++;
    if (id && number_in(name->text) != id)
        torn++;
    interruptions++;
}

TEST(test_the_order_of_stores)
{
    struct itimerval often = {{0, 20}, {0, 20}}, never = {{0, 0}, {0, 0}};
    int64_t deadline = clock_now() + 60 * CLOCK_SECOND;
    interrupted = opened("");
    signal(SIGALRM, look_between);
    setitimer(ITIMER_REAL, &often, NULL);
    for (uint64_t number = 1; interruptions < 3000 && clock_now() < deadline; number++) {
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)number);
        page_ended(&interrupted, submit(&interrupted, page_add_name(&interrupted, text), 0, (int64_t)number),
                   HVD_OK, (int64_t)number);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_DFL);
    assert_int_equal(torn, 0);
    closed(&interrupted);
}

static atomic_bool stop;

/* Each request has its number in all of its fields. */
static void *write_requests(void *argument)
{
    struct page_writer *writer = argument;
    uint32_t in_flight[64] = {0};
    for (uint64_t number = 1; !atomic_load(&stop); number++) {
        char text[32];
        uint32_t *place = &in_flight[number % 64];
        page_ended(writer, *place, HVD_OK, (int64_t)number);
        snprintf(text, sizeof text, "%llu", (unsigned long long)number);
        *place = submit(writer, page_add_name(writer, text), (int)number, (int64_t)number);
        page_decided(writer, *place, number, (int64_t)number);
    }
    return NULL;
}

TEST(test_a_reader_beside_a_writer_sees_whole_requests)
{
    struct page_writer writer = opened("");
    struct page_copies *copies = page_copies_create();
    pthread_t thread;
    int named = 0, requests = 0;
    int64_t deadline = clock_now() + 60 * CLOCK_SECOND;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, write_requests, &writer), 0);
    for (int i = 0; i < 30 || (!named && clock_now() < deadline); i++) {
        struct page_summary summary;
        ASSERT_OK(page_read(writer.fd, copies, INT64_MAX, &summary, &check_status));
        for (int j = 0; j < summary.request_count; j++) {
            const struct page_request *request = &summary.requests[j];
            char title[64];
            snprintf(title, sizeof title, "allreduce.%llu", (unsigned long long)request->number);
            assert_int_equal(request->bytes, 4 * request->number);
            assert_int_equal(request->process_set, (int)request->number);
            assert_int_equal(request->submitted, request->number);
            requests++;
            if (strcmp(request->title, "allreduce.?") == 0)
                continue;
            assert_string_equal(request->title, title);
            named++;
        }
        page_summary_free(&summary);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_true(requests > 0 && named > 0);
    page_copies_free(copies);
    closed(&writer);
}

TEST(test_damaged_pages)
{
    struct page_writer writer = opened("");
    struct page *page = malloc(sizeof *page);
    uint64_t draws = 1;
    assert_non_null(page);
    for (int i = 0; i < 200; i++)
        submit(&writer, page_add_name(&writer, "name"), i, i);
    struct page_summary summary;
    for (int round = 0; round < 200; round++) {
        struct page_waitings waitings;
        assert_int_equal(pread(writer.fd, page, sizeof *page, 0), sizeof *page);
        uint64_t magic = atomic_load(&page->head.magic), start = offsetof(struct page, head.state);
        uint64_t length = sizeof *page - start;
        for (int i = 0; i < (round % 2 ? 20 : 20000); i++) {
            uint64_t at = random_below(&draws, round % 3 ? 8192 : (int)length), value = random_next(&draws);
            memcpy((char *)page + start + at % (length - 8), &value, 8);
        }
        assert_int_equal(atomic_load(&page->head.magic), magic);
        ASSERT_OK(page_summarize(page, 1000, &summary, &check_status));
        assert_in_range(summary.request_count, 0, PAGE_RECORDS);
        assert_in_range(summary.state, PAGE_STARTED, PAGE_LEFT);
        for (const char *c = summary.identity.host; *c; c++)
            assert_in_range(*c, ' ', '~');
        for (int i = 0; i < summary.reporter_count; i++) {
            assert_true(summary.reporters[i].rank >= 0);
            assert_in_range(summary.reporters[i].total, 0, 1000);
            assert_in_range(summary.reporters[i].longest, 0, 1000);
            assert_true(summary.reporters[i].share >= 0 && summary.reporters[i].share <= 1);
        }
        assert_in_range(summary.negotiation_total, 0, INT64_MAX);
        for (const char *c = summary.nan; *c; c++)
            assert_in_range(*c, ' ', '~');
        for (const char *c = summary.divergence; *c; c++)
            assert_in_range(*c, ' ', '~');
        ASSERT_OK(page_waitings_find(&summary, 1, &waitings, &check_status));
        page_waitings_free(&waitings);
        page_summary_free(&summary);
    }
    atomic_store(&page->head.version, PAGE_VERSION + 1);
    ASSERT_FAILS(page_summarize(page, 1, &summary, &check_status), HVD_UNSUPPORTED, "different versions");
    atomic_store(&page->head.magic, 0);
    ASSERT_FAILS(page_summarize(page, 1, &summary, &check_status), HVD_REFUSED, "no page");
    free(page);
    closed(&writer);
}

TEST(test_progress_thread)
{
    struct page_writer writer = opened("");
    assert_int_equal(read_of(writer.fd, 1).progress_thread, 0);
    page_set_progress_thread(&writer);
    assert_int_equal(read_of(writer.fd, 1).progress_thread, getpid()); /* the test's only thread */
    closed(&writer);
}

TEST(test_checks_of_values)
{
    struct page_writer writer = opened("");
    struct page_set *set = add_set(&writer, 0, 3);
    struct page_summary summary = read_of(writer.fd, 1);
    assert_string_equal(summary.nan, "");
    assert_int_equal(summary.nan_step, 0);
    assert_int_equal(summary.parameter_checks, 0);
    atomic_store(&set->operations[HVD_ALLREDUCE].nonfinite, 3);
    atomic_store(&set->operations[HVD_REDUCESCATTER].nonfinite, 4);
    page_set_nan(&writer, "allreduce.b", 7);
    page_set_nan(&writer, "allreduce.later", 8);
    page_set_check(&writer, NULL);
    page_set_check(&writer, "a differs");
    page_set_check(&writer, "b differs");
    summary = read_of(writer.fd, 1);
    assert_int_equal(summary.all.nonfinite, 7);
    assert_string_equal(summary.nan, "allreduce.b");
    assert_int_equal(summary.nan_step, 7);
    assert_int_equal(summary.parameter_checks, 3);
    assert_int_equal(summary.divergences, 2);
    assert_string_equal(summary.divergence, "b differs");
    page_set_check(&writer, NULL);
    summary = read_of(writer.fd, 1);
    assert_string_equal(summary.divergence, "");
    closed(&writer);
}

TEST(test_names_of_requests)
{
    struct page_writer writer = opened("");
    uint32_t name = page_add_name(&writer, "name"), place = submit(&writer, name, 0, 1);
    assert_int_equal(page_name_of(&writer, place), name);
    assert_int_equal(page_name_of(&writer, 0), 0);
    assert_true(page_use_name(&writer, name));
    assert_int_equal(page_step(&writer, place), 2);
    assert_int_equal(page_step(&writer, 0), 0);
    assert_int_equal(page_step(&writer, submit(&writer, PAGE_COUNTED | name, 0, 1)), 0);
    for (int i = 0; i < PAGE_NAMES; i++)
        page_add_name(&writer, "other");
    assert_int_equal(page_step(&writer, place), 0);
    closed(&writer);
}

TEST(test_steps_of_requests)
{
    struct page_writer writer = opened("");
    uint32_t name = page_add_name(&writer, "name"), early = submit(&writer, name, 0, 1);
    page_stepped(&writer, 1, 1202, 5);
    uint32_t late = submit(&writer, name, 0, 6);
    assert_int_equal(page_steps_before(&writer, early), 0);
    assert_int_equal(page_step(&writer, early), 1202); /* it was under way, and was reported since */
    assert_int_equal(page_steps_before(&writer, late), 1);
    assert_int_equal(page_step(&writer, late), 1203);
    assert_int_equal(page_steps_before(&writer, 0), 1);
    for (int i = 2; i <= 2 * PAGE_STEPS; i++)
        page_stepped(&writer, (uint64_t)i, i, 5 * i);
    assert_int_equal(page_steps_before(&writer, early), PAGE_STEPS); /* earlier ones are not known */
    assert_int_equal(page_step(&writer, early), PAGE_STEPS + 1);
    assert_int_equal(page_step(&writer, 0), 2 * PAGE_STEPS + 1);
    closed(&writer);
}

TEST(test_files_that_end_early)
{
    struct page_copies *copies = page_copies_create();
    struct page_summary summary;
    int ends[2], null = open("/dev/null", O_RDONLY);
    assert_int_equal(pipe(ends), 0);
    ASSERT_FAILS(page_read(null, copies, 1, &summary, &check_status), HVD_REFUSED, "too short");
    ASSERT_FAILS(page_read(ends[0], copies, 1, &summary, &check_status), HVD_SYSTEM, "can't read");
    close(null);
    close(ends[0]);
    close(ends[1]);
    page_copies_free(copies);
}

/* ---- comparing the pages ------------------------------------------------------------------------------ */

enum { RANKS = 3 };

struct ranks {
    struct page_writer writers[RANKS];
    struct page_summary pages[RANKS];
    struct page_waitings waitings;
};

static struct ranks start(void)
{
    struct ranks ranks = {0};
    for (int i = 0; i < RANKS; i++) {
        ranks.writers[i] = opened("");
        add_set(&ranks.writers[i], 0, RANKS);
    }
    return ranks;
}

static uint32_t on(struct ranks *ranks, int rank, const char *name, int64_t now)
{
    struct page_writer *writer = &ranks->writers[rank];
    return submit(writer, page_add_name(writer, name), 0, now);
}

static void compare(struct ranks *ranks)
{
    for (int i = 0; i < RANKS; i++)
        ranks->pages[i] = read_of(ranks->writers[i].fd, 1000);
    ASSERT_OK(page_waitings_find(ranks->pages, RANKS, &ranks->waitings, &check_status));
}

static void check_waiting(const struct page_waiting *waiting, const char *title, const char *parts)
{
    assert_string_equal(waiting->request->title, title);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(waiting->parts[i], parts[i] == 'w'   ? PART_WAITS
                                            : parts[i] == 'm' ? PART_MISSING
                                            : parts[i] == '?' ? PART_UNKNOWN
                                                              : PART_NONE);
}

static void finish(struct ranks *ranks)
{
    page_waitings_free(&ranks->waitings);
    for (int i = 0; i < RANKS; i++) {
        page_summary_free(&ranks->pages[i]);
        closed(&ranks->writers[i]);
    }
}

TEST(test_the_late_rank_is_found)
{
    struct ranks ranks = start();
    on(&ranks, 0, "b", 300);
    on(&ranks, 2, "a", 100);
    for (int i = 0; i < RANKS; i++) { /* decided on one rank: no rank is missing any longer */
        uint32_t place = on(&ranks, i, "known", 1);
        if (i == 1)
            page_decided(&ranks.writers[i], place, 1, 2);
    }
    page_decided(&ranks.writers[1], on(&ranks, 1, "done", 1), 1, 2);
    page_decided(&ranks.writers[0], on(&ranks, 0, "a", 1), 1, 2); /* of an earlier step, still moving data */
    page_ended(&ranks.writers[1], on(&ranks, 1, "b", 4), HVD_OK, 5); /* of an earlier step */
    on(&ranks, 0, "a", 200);
    compare(&ranks);
    assert_int_equal(ranks.waitings.count, 3);
    check_waiting(&ranks.waitings.list[0], "allreduce.known", "w-w");
    check_waiting(&ranks.waitings.list[1], "allreduce.a", "wmw");
    check_waiting(&ranks.waitings.list[2], "allreduce.b", "wmm");
    assert_int_equal(ranks.waitings.list[1].since, 100);
    assert_int_equal(ranks.waitings.list[1].waits, 2);
    assert_int_equal(ranks.waitings.list[1].missing, 1);
    assert_int_equal(ranks.waitings.list[1].hidden, 0);
    finish(&ranks);
}

TEST(test_nameless_requests_share_a_title)
{
    struct ranks ranks = start();
    submit(&ranks.writers[0], 99, 0, 1); /* an id that no name has any longer */
    page_decided(&ranks.writers[0], submit(&ranks.writers[0], 99, 0, 2), 1, 3);
    on(&ranks, 1, "a", 4); /* maybe the same request */
    compare(&ranks);
    assert_int_equal(ranks.waitings.count, 2);
    check_waiting(&ranks.waitings.list[0], "allreduce.?", "w??");
    assert_int_equal(ranks.waitings.list[0].hidden, 2);
    check_waiting(&ranks.waitings.list[1], "allreduce.a", "?wm");
    assert_int_equal(ranks.waitings.list[1].missing, 1);
    assert_int_equal(ranks.waitings.list[1].hidden, 1);
    finish(&ranks);
}

TEST(test_a_page_that_lacks_requests)
{
    struct ranks ranks = start();
    on(&ranks, 0, "a", 100);
    atomic_store(&ranks.writers[1].page->head.dropped, 1);
    compare(&ranks);
    check_waiting(&ranks.waitings.list[0], "allreduce.a", "w?m");
    assert_int_equal(ranks.waitings.list[0].hidden, 1);
    finish(&ranks);
}

TEST(test_more_process_sets_than_places)
{
    struct ranks ranks = start();
    for (int i = 0; i < 2; i++)
        submit(&ranks.writers[i], page_add_name(&ranks.writers[i], "a"), 99, 100);
    compare(&ranks);
    check_waiting(&ranks.waitings.list[0], "allreduce.a", "ww-");
    assert_int_equal(ranks.waitings.list[0].hidden, 1); /* whether there are more is not known */
    finish(&ranks);
}

TEST(test_held_and_joined_ranks)
{
    struct ranks ranks = start();
    on(&ranks, 0, "a", 100);
    page_submitted(&ranks.writers[1], &(struct page_entry){.operation = HVD_JOIN, .name = 1 | PAGE_COUNTED});
    uint32_t name = page_add_name(&ranks.writers[2], "a");
    uint32_t held =
        page_submitted(&ranks.writers[2],
                       &(struct page_entry){.name = name, .flags = RECORD_HELD, .operation = HVD_ALLREDUCE});
    compare(&ranks);
    assert_int_equal(ranks.waitings.count, 1);
    check_waiting(&ranks.waitings.list[0], "allreduce.a", "w-m");
    page_waitings_free(&ranks.waitings);
    page_released(&ranks.writers[2], held);
    for (int i = 0; i < RANKS; i++)
        page_summary_free(&ranks.pages[i]);
    compare(&ranks);
    check_waiting(&ranks.waitings.list[0], "allreduce.a", "w-w");
    finish(&ranks);
}

TEST(test_ranks_of_other_hosts_and_sets)
{
    struct ranks ranks = start();
    for (int i = 0; i < 2; i++)
        add_set(&ranks.writers[i], 4, 3);
    struct page_writer *writer = &ranks.writers[0];
    submit(writer, page_add_name(writer, "a"), 4, 100);
    compare(&ranks);
    check_waiting(&ranks.waitings.list[0], "allreduce.a", "wm-");
    assert_int_equal(ranks.waitings.list[0].hidden, 1);
    finish(&ranks);
}
