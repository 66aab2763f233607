/* test_stack.c - the answer of a rank to the question for its stack, as the launcher parses it. */
#include "../../launch/stack.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static struct stack *parsed(const char *text)
{
    return stack_parse(text, strlen(text));
}

TEST(test_threads_and_frames)
{
    struct stack *stack =
        parsed("S\tsignal\nT\t7\tS\tread\tpipe:[1]\tMain\nP\ta.py\t3\tf\tx = 1\nP\tb.py\t4\tg\t\n"
               "C\tread\tlibc.so.6\nT\t8\tR\t\t\t\nP\tc.py\t5\th\t\n");
    assert_non_null(stack);
    assert_int_equal(stack->how, STACK_SIGNAL);
    assert_int_equal(stack->thread_count, 2);
    const struct stack_thread *thread = stack->threads;
    assert_int_equal(thread->id, 7);
    assert_int_equal(thread->state, 'S');
    assert_string_equal(thread->call, "read");
    assert_string_equal(thread->object, "pipe:[1]");
    assert_string_equal(thread->name, "Main");
    assert_int_equal(thread->python_count, 2);
    assert_int_equal(thread->c_count, 1);
    assert_string_equal(thread->python[0].text, "x = 1");
    assert_int_equal(thread->python[1].line, 4);
    assert_string_equal(thread->c[0].function, "read");
    assert_string_equal(thread->c[0].file, "libc.so.6");
    assert_string_equal(thread[1].python[0].function, "h");
    assert_ptr_equal(stack_place(stack), &thread->python[0]);
    free(stack);
}

TEST(test_the_place_is_in_the_program)
{
    struct stack *stack = parsed("S\tasked\nT\t1\tS\t\t\t\nP\t/usr/lib/python3.11/threading.py\t1\twait\t\n"
                                 "P\t/env/lib/python3.11/site-packages/horovod/a.py\t2\trun\t\n"
                                 "P\t<frozen runpy>\t3\trun\t\nP\t/data/train.py\t4\tmain\t\n");
    assert_string_equal(stack_place(stack)->file, "/data/train.py");
    free(stack);
    stack = parsed("S\tasked\nT\t1\tS\t\t\t\nP\t/usr/lib/python3.11/threading.py\t1\twait\t\n");
    assert_string_equal(stack_place(stack)->function, "wait"); /* better than nothing */
    free(stack);
    stack = parsed("S\tnothing\nT\t1\tS\t\t\t\n");
    assert_null(stack_place(stack));
    free(stack);
    assert_null(stack_place(NULL));
}

TEST(test_what_makes_no_sense)
{
    assert_null(parsed(""));
    assert_null(parsed("hello\n"));
    struct stack *stack =
        parsed("S\t\nP\tno thread\t1\tf\t\nT\t1\nT\nX\tunknown\nP\ta\x1b[m.py\nC\t\nP\tafter C\t1\tf\t\n");
    assert_non_null(stack);
    assert_int_equal(stack->how, STACK_NOTHING);
    assert_int_equal(stack->thread_count, 1);
    assert_int_equal(stack->threads[0].python_count, 1);
    assert_string_equal(stack->threads[0].python[0].file, "a?[m.py"); /* it could control a terminal */
    assert_string_equal(stack->threads[0].python[0].text, "");
    assert_int_equal(stack->threads[0].c_count, 1);
    free(stack);
}

TEST(test_more_than_is_kept)
{
    static char text[PAGE_STACK_TEXT + 100];
    size_t length = 2;
    memcpy(text, "S\t", 2);
    for (; length + 4 < sizeof text; length += 3)
        memcpy(text + length, length % 2 ? "\nT\t" : "\nP\t", 3);
    struct stack *stack = stack_parse(text, length);
    assert_non_null(stack);
    assert_int_equal(stack->thread_count, STACK_THREADS);
    assert_int_equal(stack->frame_count, STACK_FRAMES);
    free(stack);
}
