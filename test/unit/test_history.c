/* test_history.c - the requests of a rank as its page shows them: which are in a window, in which order, and
 * how they pass from one process to another. */
#include "test.h"
#include "watch/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct page_writer opened(void)
{
    static const struct page_identity identity = {.job = "job", .host = "a", .rank = 1, .size = 3};
    struct page_writer writer = {0};
    ASSERT_OK(page_open(&writer, "", &identity, &check_status));
    return writer;
}

static void closed(struct page_writer *writer)
{
    page_leave(writer);
    page_free(writer);
}

/* Submits at `now`; decided 10 later, ended 20 later, unless one of them is 0. */
static uint32_t request(struct page_writer *writer, uint32_t name, int64_t now, uint64_t batch, bool ends)
{
    uint32_t place = page_submitted(
        writer, &(struct page_entry){.submitted = now, .bytes = 4, .name = name, .operation = HVD_ALLREDUCE});
    if (batch)
        page_decided(writer, place, batch, now + 10);
    if (ends)
        page_ended(writer, place, HVD_OK, now + 20);
    return place;
}

static struct history history_of(const struct page_writer *writer, struct history_window window)
{
    struct history history;
    struct page_copies *copies = page_copies_create();
    assert_non_null(copies);
    ASSERT_OK(history_read(writer->fd, copies, &window, 1000000, &history, &check_status));
    page_copies_free(copies);
    return history;
}

static const char *title(const struct history *history, int i)
{
    return history->titles[history->list[i].title];
}

TEST(test_all_requests_in_their_order)
{
    struct page_writer writer = opened();
    uint32_t a = page_add_name(&writer, "a"), b = page_add_name(&writer, "b");
    request(&writer, a, 100, 1, true);
    request(&writer, b, 200, 2, false);
    request(&writer, a, 300, 0, false);
    page_submitted(&writer, &(struct page_entry){.submitted = 400,
                                                 .name = a,
                                                 .process_set = 3,
                                                 .operation = HVD_BROADCAST,
                                                 .flags = RECORD_GROUPED | RECORD_HELD});
    request(&writer, 7 | PAGE_COUNTED, 500, 3, true);
    request(&writer, a, 600, 4, true);
    struct history history = history_of(&writer, (struct history_window){.most = PAGE_RECORDS});
    assert_int_equal(history.count, 6);
    assert_string_equal(title(&history, 0), "allreduce.a");
    assert_string_equal(title(&history, 1), "allreduce.b");
    assert_string_equal(title(&history, 2), "allreduce.a");
    assert_string_equal(title(&history, 3), "grouped_broadcast.a");
    assert_string_equal(title(&history, 4), "allreduce.noname.7");
    assert_string_equal(title(&history, 5), "allreduce.a");
    assert_int_equal(history.title_count, 5); /* "allreduce.a" again after the broadcast of that name */
    assert_int_equal(history.list[0].submitted, 100);
    assert_int_equal(history.list[0].decided, 110);
    assert_int_equal(history.list[0].ended, 120);
    assert_int_equal(history.list[0].batch, 1);
    assert_int_equal(history.list[0].bytes, 4);
    assert_int_equal(history.list[1].ended, 0);
    assert_int_equal(history.list[2].decided, 0);
    assert_true(history.list[3].held);
    assert_int_equal(history.list[3].process_set, 3);
    history_free(&history);
    closed(&writer);
}

TEST(test_no_requests)
{
    struct page_writer writer = opened();
    struct history history = history_of(&writer, (struct history_window){.span = 5, .steps = 3, .most = 9});
    assert_int_equal(history.count + history.title_count, 0);
    history_free(&history);
    closed(&writer);
}

/* Requests at 100, 200, ..., 1000, of which that at 300 is in flight. */
static struct page_writer ten(void)
{
    struct page_writer writer = opened();
    uint32_t often = page_add_name(&writer, "often"), seldom = page_add_name(&writer, "seldom");
    for (int i = 1; i <= 10; i++) {
        if (i % 2)
            assert_true(page_use_name(&writer, often));
        request(&writer, i % 2 ? often : seldom, 100 * i, (uint64_t)i, i != 3);
    }
    return writer;
}

static void holds(const struct page_writer *writer, struct history_window window, const char *expected)
{
    char text[64] = "";
    struct history history = history_of(writer, window);
    for (int i = 0; i < history.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i ? " " : "",
                 (int)history.list[i].submitted / 100);
    assert_string_equal(text, expected);
    history_free(&history);
}

TEST(test_windows)
{
    struct page_writer writer = ten();
    holds(&writer, (struct history_window){.most = 99}, "1 2 3 4 5 6 7 8 9 10");
    holds(&writer, (struct history_window){.span = 190, .most = 99}, "3 8 9 10"); /* 8 ended at 820 */
    holds(&writer, (struct history_window){.span = 189, .most = 99}, "3 9 10");
    holds(&writer, (struct history_window){.span = 5000, .most = 99}, "1 2 3 4 5 6 7 8 9 10");
    holds(&writer, (struct history_window){.steps = 1, .most = 99}, "3 9 10");
    holds(&writer, (struct history_window){.steps = 2, .most = 99}, "3 7 8 9 10");
    holds(&writer, (struct history_window){.steps = 9, .most = 99}, "1 2 3 4 5 6 7 8 9 10");
    holds(&writer, (struct history_window){.most = 2}, "9 10");
    holds(&writer, (struct history_window){.span = 200, .most = 1}, "10");
    closed(&writer);
}

TEST(test_steps)
{
    struct page_writer writer = ten();
    for (int i = 1; i <= 4; i++) { /* at 250, 450, 650, 850; the last one has half its requests so far */
        page_stepped(&writer, (uint64_t)i, 1200 + i, 50 + 200 * i);
        page_describe_step(&writer, 1200 + i, 32);
    }
    holds(&writer, (struct history_window){.steps = 1, .most = 99}, "3 7 8 9 10");
    holds(&writer, (struct history_window){.steps = 2, .most = 99}, "3 5 6 7 8 9 10");
    holds(&writer, (struct history_window){.steps = 4, .most = 99}, "1 2 3 4 5 6 7 8 9 10");
    struct history history = history_of(&writer, (struct history_window){.steps = 2, .most = 99});
    assert_int_equal(history.step_count, 3); /* the first shows where the second begins */
    assert_int_equal(history.steps[0].reported, 450);
    assert_int_equal(history.steps[2].count, 4);
    assert_int_equal(history.steps[2].number, 1204);
    assert_int_equal(history.steps[2].samples, 32);
    struct history copy = {0};
    for (int first = 0; first < history.count;) {
        struct wire_writer out = {0};
        first = history_put(&history, first, 300, &out);
        struct wire_reader body = wire_reader_of(out.bytes, out.length);
        assert_true(history_get(&copy, &body));
        wire_writer_free(&out);
    }
    assert_int_equal(copy.step_count, 3);
    assert_memory_equal(copy.steps, history.steps, 3 * sizeof *copy.steps);
    history_free(&copy);
    history_free(&history);
    closed(&writer);
}

TEST(test_more_steps_than_are_kept)
{
    struct page_writer writer = ten();
    for (int i = 1; i <= PAGE_STEPS + 9; i++)
        page_stepped(&writer, (uint64_t)i, i, 2 * i);
    struct history history = history_of(&writer, (struct history_window){.most = 99});
    assert_int_equal(history.step_count, PAGE_STEPS);
    assert_int_equal(history.steps[0].number, 10);
    assert_int_equal(history.steps[PAGE_STEPS - 1].number, PAGE_STEPS + 9);
    history_free(&history);
    closed(&writer);
}

TEST(test_the_ring_was_filled_again)
{
    struct page_writer writer = opened();
    for (int i = 1; i <= PAGE_RECORDS + 50; i++)
        request(&writer, (uint32_t)i | PAGE_COUNTED, i, (uint64_t)i, true);
    struct history history = history_of(&writer, (struct history_window){.most = PAGE_RECORDS});
    assert_int_equal(history.count, PAGE_RECORDS);
    assert_int_equal(history.list[0].number, 51);
    assert_int_equal(history.list[PAGE_RECORDS - 1].number, PAGE_RECORDS + 50);
    history_free(&history);
    closed(&writer);
}

TEST(test_times_out_of_order)
{
    struct page_writer writer = opened();
    uint32_t place = request(&writer, 1 | PAGE_COUNTED, 500, 0, false);
    page_decided(&writer, place, 1, 400);
    page_ended(&writer, place, HVD_OK, 300);
    struct history history = history_of(&writer, (struct history_window){.most = 9});
    assert_int_equal(history.list[0].decided, 500);
    assert_int_equal(history.list[0].ended, 500);
    history_free(&history);
    closed(&writer);
}

/* ---- from one process to another ----------------------------------------------------------------------- */

TEST(test_messages)
{
    struct page_writer writer = ten();
    struct history history = history_of(&writer, (struct history_window){.most = 99}), copy = {0};
    int messages = 0;
    for (int first = 0; first < history.count; messages++) {
        struct wire_writer out = {0};
        first = history_put(&history, first, 400, &out);
        assert_true(out.length <= 400);
        struct wire_reader body = wire_reader_of(out.bytes, out.length);
        assert_true(history_get(&copy, &body));
        wire_writer_free(&out);
    }
    assert_true(messages > 2);
    assert_int_equal(copy.count, history.count);
    for (int i = 0; i < copy.count; i++) {
        struct history_request one = history.list[i], other = copy.list[i];
        assert_string_equal(title(&copy, i), title(&history, i));
        assert_int_equal(one.submitted, other.submitted);
        assert_int_equal(one.decided, other.decided);
        assert_int_equal(one.ended, other.ended);
        assert_int_equal(one.number, other.number);
        assert_int_equal(one.bytes, other.bytes);
        assert_int_equal(one.batch, other.batch);
        assert_int_equal(one.process_set, other.process_set);
        assert_int_equal(one.outcome, other.outcome);
        assert_int_equal(one.held, other.held);
    }
    history_free(&copy);
    history_free(&history);
    closed(&writer);
}

TEST(test_a_message_that_is_cut)
{
    struct page_writer writer = ten();
    struct history history = history_of(&writer, (struct history_window){.most = 3});
    struct wire_writer out = {0};
    assert_int_equal(history_put(&history, 0, 4000, &out), 3);
    int whole = 0;
    for (size_t length = 0; length <= out.length; length++) {
        struct history copy = {0};
        struct wire_reader body = wire_reader_of(out.bytes, length);
        whole += history_get(&copy, &body); /* of no request, of the first, of two, of all */
        assert_true(copy.title_count <= copy.count + 1);
        history_free(&copy);
    }
    assert_int_equal(whole, 4);
    wire_writer_free(&out);
    history_free(&history);
    closed(&writer);
}

TEST(test_more_requests_than_a_page_has)
{
    struct history_request *list = calloc(PAGE_RECORDS, sizeof *list);
    char titles[1][PAGE_TITLE] = {"x"};
    struct history full = {.list = list, .titles = titles, .count = PAGE_RECORDS, .title_count = 1};
    struct history one = {.list = list, .titles = titles, .count = 1, .title_count = 1}, copy = {0};
    struct wire_writer out = {0}, more = {0};
    assert_int_equal(history_put(&full, 0, SIZE_MAX, &out), PAGE_RECORDS);
    assert_int_equal(history_put(&one, 0, SIZE_MAX, &more), 1);
    struct wire_reader body = wire_reader_of(out.bytes, out.length),
                       rest = wire_reader_of(more.bytes, more.length);
    assert_true(history_get(&copy, &body));
    assert_false(history_get(&copy, &rest));
    assert_int_equal(copy.count, PAGE_RECORDS);
    history_free(&copy);
    wire_writer_free(&out);
    wire_writer_free(&more);
    free(list);
}
