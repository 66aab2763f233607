/* test_rank_view.c - a view passes through a message unchanged, and bytes that are no view do no harm. */
#include "../../launch/host_pages.h"
#include "test.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOW  (1000 * CLOCK_SECOND)
#define THEN (5000 * CLOCK_SECOND) /* the clock of the host that receives it */

/* A rank with some of everything, and this many requests in flight. */
static struct rank_view make(int requests)
{
    struct rank_view view = {.seen = true,
                             .process = 77,
                             .system.state = 'D',
                             .memory_bytes = UINT64_C(1) << 40,
                             .seconds = 0.25,
                             .ended_before = 9,
                             .times = {.running = 5, .runnable = 6, .blocked = 7},
                             .engine_ns = 8,
                             .load = {.runnable = 8, .cores = 4}};
    struct page_summary *page = &view.page;
    page->identity = (struct page_identity){.job = "a61c",
                                            .host = "b",
                                            .version = "1.0.0",
                                            .rank = 3,
                                            .size = 8,
                                            .local_rank = 1,
                                            .local_size = 4,
                                            .epoch = 2,
                                            .process = 7,
                                            .process_start = 99,
                                            .opened = NOW - 500,
                                            .opened_at = 12345};
    const char stack[] = "S\tasked\nT\t7\tS\tfutex\t\tMain\nP\ta.py\t3\tf\tx = 1\n";
    view.stack = stack_parse(stack, strlen(stack));
    assert_non_null(view.stack);
    page->state = PAGE_FAILED;
    strcpy(page->cause, "rank 2 is lost");
    page->child = 76;
    page->child_start = 98;
    page->progress = NOW;
    page->thread_count = PAGE_CALLERS;
    page->threads[7] = (struct page_thread){.id = 70, .record = 3, .since = NOW - 7};
    page->set_count = PAGE_SETS;
    page->sets[63] = (struct page_membership){.id = 63, .size = 5};
    page->operations[HVD_ALLREDUCE] = (struct page_counts){6, 4, 1, 2, 1000, 17, 3};
    page->all = page->operations[HVD_ALLREDUCE];
    page->steps.count = 12;
    page->steps.samples = 640;
    page->steps.number = 5012;
    page->steps.last = NOW - 4;
    page->steps.median = 99;
    page->steps.reported = true;
    page->nan_step = 11;
    strcpy(page->nan, "allreduce.b");
    page->parameter_checks = 8;
    page->divergences = 2;
    strcpy(page->divergence, "parameters differ");
    page->reporters = calloc(1, sizeof *page->reporters);
    assert_non_null(page->reporters);
    page->reporters[page->reporter_count++] = (struct page_reporter){2, 70, 60, 5, true, 0.5};
    page->negotiations[PAGE_NEGOTIATIONS - 1] = 44;
    page->negotiation_total = 45;
    view.sockets.list = calloc(1, sizeof *view.sockets.list);
    assert_non_null(view.sockets.list);
    view.sockets.list[view.sockets.count++] = (struct socket_view){.local.port = 5, .busy = 17};
    page->requests = calloc((size_t)requests + 1, sizeof *page->requests);
    assert_non_null(page->requests);
    for (int i = 0; i < requests; i++) {
        struct page_request *request = &page->requests[page->request_count++];
        *request = (struct page_request){.operation = HVD_ALLGATHER,
                                         .process_set = -1,
                                         .number = (uint64_t)i + 1,
                                         .bytes = 4,
                                         .submitted = NOW - 9,
                                         .decided = i % 2 ? NOW - 3 : 0,
                                         .held = i % 3 == 0,
                                         .nameless = i % 5 == 0};
        memset(request->title, 'x', sizeof request->title - 1);
    }
    page->last = (struct page_request){.title = "barrier.b", .number = 5, .batch = 8, .ended = NOW - 2};
    return view;
}

static struct wire_writer message_of(const struct rank_view *view)
{
    struct wire_writer message = {0};
    rank_view_put(view, NOW, &message);
    assert_false(message.failed);
    return message;
}

/* Moves a time from the clock of the sender to that of the receiver. */
static int64_t moved(int64_t time)
{
    return time ? time - NOW + THEN : 0;
}

static void check_request(const struct page_request *got, const struct page_request *sent)
{
    struct page_request expected = *sent;
    expected.submitted = moved(sent->submitted);
    expected.decided = moved(sent->decided);
    expected.ended = moved(sent->ended);
    assert_memory_equal(got, &expected, sizeof expected);
}

TEST(test_a_view_passes_through_a_message)
{
    struct rank_view sent = make(7), got;
    struct wire_writer message = message_of(&sent);
    struct wire_reader body = wire_reader_of(message.bytes, message.length);
    assert_true(rank_view_get(&got, THEN, &body));
    assert_true(wire_done(&body));
    assert_int_equal(got.page.request_count, 7);
    for (int i = 0; i < 7; i++)
        check_request(&got.page.requests[i], &sent.page.requests[i]);
    check_request(&got.page.last, &sent.page.last);
    assert_int_equal(got.page.identity.opened, THEN - 500);
    assert_int_equal(got.page.progress, THEN);
    assert_int_equal(got.page.threads[7].since, THEN - 7);
    assert_int_equal(got.page.steps.last, THEN - 4);
    assert_memory_equal(got.page.reporters, sent.page.reporters, sizeof *sent.page.reporters);
    /* The rest has no times. */
    free(got.page.requests);
    free(got.page.reporters);
    got.page.reporters = sent.page.reporters;
    got.page.requests = sent.page.requests;
    got.page.last = sent.page.last;
    got.page.identity.opened = sent.page.identity.opened;
    got.page.progress = sent.page.progress;
    got.page.steps.last = sent.page.steps.last;
    got.page.threads[7].since = sent.page.threads[7].since;
    assert_memory_equal(&got.page, &sent.page, sizeof got.page);
    assert_int_equal(got.process, 77);
    assert_int_equal(got.system.state, 'D');
    assert_int_equal(got.memory_bytes, sent.memory_bytes);
    assert_true(got.seen && got.seconds == 0.25 && got.ended_before == 9);
    assert_memory_equal(&got.times, &sent.times, sizeof got.times);
    assert_int_equal(got.sockets.count, 1);
    assert_int_equal(got.sockets.list->local.port, sent.sockets.list->local.port);
    assert_int_equal(got.sockets.list->busy, sent.sockets.list->busy);
    assert_true(got.load.runnable == 8 && got.load.cores == 4);
    assert_non_null(got.stack);
    assert_string_equal(got.stack->threads->python->text, "x = 1");
    free(got.stack);
    sockets_free(&got.sockets);
    wire_writer_free(&message);
    rank_view_free(&sent);
}

TEST(test_too_many_requests_are_cut)
{
    struct rank_view sent = make(RANK_VIEW_REQUESTS + 1), got;
    struct wire_writer message = message_of(&sent);
    struct wire_reader body = wire_reader_of(message.bytes, message.length);
    assert_true(message.length < 64 << 10);
    assert_true(rank_view_get(&got, THEN, &body));
    assert_int_equal(got.page.request_count, RANK_VIEW_REQUESTS);
    assert_int_equal(got.page.requests[0].number, 1); /* the oldest ones are there */
    assert_int_equal(got.page.dropped, 1);            /* so no missing name proves anything */
    wire_writer_free(&message);
    rank_view_free(&sent);
    rank_view_free(&got);
}

TEST(test_every_cut_message_is_refused)
{
    struct rank_view sent = make(2), got;
    struct wire_writer message = message_of(&sent);
    for (size_t length = 0; length < message.length; length++) {
        struct wire_reader body = wire_reader_of(message.bytes, length);
        assert_false(rank_view_get(&got, THEN, &body));
        rank_view_free(&got);
    }
    wire_writer_free(&message);
    rank_view_free(&sent);
}

TEST(test_what_makes_no_sense)
{
    struct rank_view sent = make(0), got;
    sent.page.identity.opened = NOW - 2 * THEN; /* before the clock of the receiver started */
    sent.page.progress = NOW + 5;               /* in the future */
    sent.page.reporters->share = NAN;
    sent.page.reporters->total = -1;
    sent.seconds = -1;
    strcpy(sent.page.cause, "\033[2Jred");
    struct wire_writer message = message_of(&sent);
    struct wire_reader body = wire_reader_of(message.bytes, message.length);
    assert_true(rank_view_get(&got, THEN, &body));
    assert_int_equal(got.page.identity.opened, 1);
    assert_int_equal(got.page.progress, THEN);
    assert_true(got.seconds == 0 && got.page.reporters->share == 0 && got.page.reporters->total == 0);
    assert_string_equal(got.page.cause, "?[2Jred");
    wire_writer_free(&message);
    rank_view_free(&sent);
    rank_view_free(&got);
}

TEST(test_states)
{
    struct rank_view view = {0};
    assert_int_equal(rank_view_state(&view), RANK_VIEW_UNSEEN);
    view.seen = true;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_STARTED);
    view.page.state = PAGE_OPEN;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_ENDED);
    view.process = 1;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_PROGRAM);
    view.page.thread_count = 1;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_WAITS);
    view.system.state = 'T';
    assert_int_equal(rank_view_state(&view), RANK_VIEW_STOPPED);
    view.process = 0;
    view.page.state = PAGE_LEFT;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_LEFT);
    view.page.state = PAGE_FAILED;
    assert_int_equal(rank_view_state(&view), RANK_VIEW_FAILED);
}

TEST(test_the_page_of_a_process)
{
    struct page_identity identity = {.job = "test_view", .rank = 4, .size = 5};
    int fd = page_create(&identity), count;
    struct host_pages *pages = host_pages_create();
    assert_true(fd >= 0 && pages);
    page_set_child(fd, getpid());
    assert_true(host_pages_add(pages, fd));
    assert_true(host_pages_add(pages, fd)); /* it is there once */
    host_pages_glance(pages);
    host_pages_read(pages);
    struct rank_view *views = host_pages_views(pages, &count);
    assert_int_equal(count, 1);
    assert_string_equal(views->page.identity.job, "test_view");
    assert_int_equal(views->process, getpid());
    assert_true(views->memory_bytes > 0);
    assert_null(host_pages_of_others(pages));
    rank_view_free(views);
    free(views);
    host_pages_free(pages);
    close(fd);
}

/* ---- stacks -------------------------------------------------------------------------------------------- */

enum { PAGES = 12 };

/* A rank of this process that listens; it waits since then in a request of that name, or, with "", is in its
 * program. */
static struct page_writer rank_of(const char *job, int rank, int64_t since, const char *request)
{
    struct platform_process own;
    assert_true(platform_process(getpid(), &own));
    struct page_identity identity = {
        .rank = rank, .size = PAGES, .process = getpid(), .process_start = own.start, .opened = since};
    struct page_writer writer = {0};
    snprintf(identity.job, sizeof identity.job, "%s", job);
    ASSERT_OK(page_open(&writer, "", &identity, &check_status));
    page_joined(&writer, rank, PAGES);
    page_stack_open(writer.page);
    if (*request) {
        uint32_t name = page_add_name(&writer, request);
        page_sleeps(&writer, page_submitted(&writer, &(struct page_entry){.submitted = since, .name = name}),
                    since);
    }
    return writer;
}

/* Writes an x for each rank that is asked, and takes the answers of those that answer at once. */
static void asked(struct page_writer *ranks, int count, enum stacks stacks, const char *job,
                  const char *expected)
{
    char text[PAGES + 1] = "";
    unsigned before[PAGES];
    struct host_pages *pages = host_pages_create();
    assert_non_null(pages);
    for (int i = 0; i < count; i++) {
        before[i] = atomic_load(&ranks[i].page->stack.requested);
        assert_true(host_pages_add(pages, atomic_load(&ranks[i].fd)));
    }
    host_pages_read(pages);
    host_pages_request(pages, stacks, job);
    for (int i = 0; i < count; i++)
        text[i] = atomic_load(&ranks[i].page->stack.requested) == before[i] ? '-' : 'x';
    assert_string_equal(text, expected);
    host_pages_free(pages);
}

static void leave(struct page_writer *ranks, int count)
{
    for (int i = 0; i < count; i++) {
        page_leave(&ranks[i]);
        page_free(&ranks[i]);
    }
}

TEST(test_which_ranks_are_asked)
{
    int64_t now = clock_now(), then = now - 5 * CLOCK_SECOND, later = now + 100 * CLOCK_SECOND;
    struct page_writer ranks[PAGES] = {rank_of("one", 0, then, "loss"), rank_of("one", 1, then, "loss"),
                                       rank_of("one", 2, then, ""),     rank_of("one", 3, then, "other"),
                                       rank_of("one", 4, later, ""),    rank_of("two", 0, then, "")};
    asked(ranks, 6, STACKS_LATE, NULL, "x-xx-x"); /* one for each request, and none for a moment */
    asked(ranks, 6, STACKS_LATE, "one", "x-xx--");
    asked(ranks, 6, STACKS_ALL, "on", "xxxxx-");
    asked(ranks, 6, STACKS_NONE, NULL, "------");
    page_stack_close(ranks[2].page);
    asked(ranks, 6, STACKS_LATE, NULL, "x--x-x");
    leave(ranks, 6);
    for (int i = 0; i < PAGES; i++)
        ranks[i] = rank_of("one", i, then, "");
    asked(ranks, PAGES, STACKS_LATE, NULL, "xxxxxxxx----");
    leave(ranks, PAGES);
}

TEST(test_answers)
{
    static const char answer[PAGE_STACK_TEXT] = "S\tasked\nT\t1\tS\t\t\t\n";
    struct page_writer ranks[] = {rank_of("one", 0, 1, ""), rank_of("one", 1, 1, "")};
    struct host_pages *pages = host_pages_create();
    int count;
    assert_non_null(pages);
    for (int i = 0; i < 2; i++)
        assert_true(host_pages_add(pages, atomic_load(&ranks[i].fd)));
    host_pages_read(pages);
    host_pages_request(pages, STACKS_LATE, NULL);
    assert_false(host_pages_answers(pages, false));
    page_stack_answer(ranks[0].page, 1, answer, strlen(answer), true);
    page_stack_answer(ranks[1].page, 1, answer, strlen(answer), false); /* more may follow */
    assert_false(host_pages_answers(pages, false));
    assert_true(host_pages_answers(pages, true));
    struct rank_view *views = host_pages_views(pages, &count);
    assert_int_equal(count, 2);
    for (int i = 0; i < count; i++) {
        assert_non_null(views[i].stack);
        assert_int_equal(views[i].stack->how, STACK_ASKED);
        rank_view_free(&views[i]);
    }
    free(views);
    host_pages_free(pages);
    leave(ranks, 2);
}
