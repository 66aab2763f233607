/* test_page_stack.c - the question for a stack and its answer, through the page of a rank that is a thread.
 */
#include "test.h"
#include "watch/page_stack.h"

#include "base/clock.h"

#include <pthread.h>
#include <string.h>

static const struct page_identity identity = {.job = "job", .size = 1};

struct rank {
    struct page_writer writer;
    pthread_t thread;
    atomic_bool stop;
    atomic_int answers; /* that it may still write; -1: any number */
};

/* Answers first in part, then as a whole, if it may. */
static void *answer(void *argument)
{
    struct rank *rank = argument;
    struct page *page = rank->writer.page;
    char text[PAGE_STACK_TEXT] = "S\tasked\n";
    for (unsigned last = 0; !atomic_load(&rank->stop);) {
        unsigned question = page_stack_wait(page, last);
        for (int part = 0; part < 2 && question != last && !atomic_load(&rank->stop); part++) {
            memset(text + 8, part ? 'w' : 'p', sizeof text - 8);
            if (atomic_load(&rank->answers) != 0)
                page_stack_answer(page, question, text, sizeof text, part == 1);
            if (atomic_load(&rank->answers) > 0)
                atomic_fetch_sub(&rank->answers, 1);
        }
        last = question;
    }
    return NULL;
}

static void start(struct rank *rank, int answers)
{
    *rank = (struct rank){0};
    atomic_init(&rank->answers, answers);
    ASSERT_OK(page_open(&rank->writer, "", &identity, &check_status));
    page_stack_open(rank->writer.page);
    assert_int_equal(pthread_create(&rank->thread, NULL, answer, rank), 0);
}

static void end(struct rank *rank)
{
    page_stack_close(rank->writer.page);
    atomic_store(&rank->stop, true);
    page_stack_wake(rank->writer.page);
    pthread_join(rank->thread, NULL);
    page_leave(&rank->writer);
    page_free(&rank->writer);
}

static size_t read_within(int fd, unsigned question, bool early, char *text, double seconds)
{
    int64_t deadline = clock_after(seconds);
    size_t length = 0;
    while (!length && clock_now() < deadline)
        length = page_stack_read(fd, question, early, text);
    return length;
}

TEST(test_question_and_answer)
{
    static struct rank rank;
    static char text[PAGE_STACK_TEXT], expected[PAGE_STACK_TEXT] = "S\tasked\n";
    memset(expected + 8, 'w', sizeof expected - 8);
    start(&rank, -1);
    int fd = atomic_load(&rank.writer.fd);
    for (int i = 0; i < 200; i++) {
        unsigned question;
        ASSERT_OK(page_stack_request(fd, &question, &check_status));
        assert_int_equal(read_within(fd, question, false, text, 60), sizeof text);
        assert_memory_equal(text, expected, sizeof text);
    }
    end(&rank);
}

TEST(test_a_part_of_the_answer)
{
    static struct rank rank;
    static char text[PAGE_STACK_TEXT];
    unsigned question;
    start(&rank, 1);
    int fd = atomic_load(&rank.writer.fd);
    ASSERT_OK(page_stack_request(fd, &question, &check_status));
    assert_int_equal(read_within(fd, question, true, text, 60), sizeof text);
    assert_int_equal(text[8], 'p');
    assert_int_equal(page_stack_read(fd, question, false, text), 0);
    assert_int_equal(page_stack_read(fd, question + 1, true, text), 0); /* of an earlier question */
    end(&rank);
}

TEST(test_a_rank_that_does_not_listen)
{
    struct page_writer writer = {0};
    unsigned question;
    ASSERT_OK(page_open(&writer, "", &identity, &check_status));
    ASSERT_FAILS(page_stack_request(atomic_load(&writer.fd), &question, &check_status), HVD_UNSUPPORTED,
                 "no questions");
    page_leave(&writer);
    page_free(&writer);
}

/* The rank reads nothing of it, and the asker relies on no number in it. */
TEST(test_damaged_answers)
{
    struct page_writer writer = {0};
    static char text[PAGE_STACK_TEXT];
    ASSERT_OK(page_open(&writer, "", &identity, &check_status));
    struct page_stack *stack = &writer.page->stack;
    int fd = atomic_load(&writer.fd);
    atomic_store(&stack->begun, 7);
    atomic_store(&stack->answered, 7);
    atomic_store(&stack->length, UINT32_MAX);
    assert_int_equal(page_stack_read(fd, 7, false, text), sizeof text);
    assert_int_equal(page_stack_read(fd, 8, false, text), 0);
    atomic_store(&stack->changes, 1); /* half written */
    assert_int_equal(page_stack_read(fd, 7, false, text), 0);
    page_leave(&writer);
    page_free(&writer);
}
