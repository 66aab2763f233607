/* test_frames.c - for how long the other end of a connection counts as silent. */
#include "../../launch/frames.h"
#include "test.h"

#include "base/clock.h"

#include <unistd.h>

enum { STEP = 1, LIMIT = 4 }; /* seconds */

static int received;

static void count(struct frames *frames, enum frame_kind kind, struct wire_reader *body)
{
    (void)frames;
    (void)body;
    assert_int_equal(kind, FRAME_RELEASE);
    received++;
}

static void ignore_end(struct frames *frames)
{
    (void)frames;
}

static bool is_silent(struct frames *frames)
{
    frames_awake(frames, STEP);
    return frames_silent(frames, LIMIT);
}

/* The last bytes have arrived so many seconds ago. */
static struct frames last_seen(double seconds)
{
    int64_t now = clock_now();
    return (struct frames){.last = now - (int64_t)(seconds * CLOCK_SECOND), .awake = now};
}

/* As if these seconds had passed. */
static void pass(struct frames *frames, double seconds)
{
    frames->last -= (int64_t)(seconds * CLOCK_SECOND);
    frames->awake -= (int64_t)(seconds * CLOCK_SECOND);
}

TEST(test_own_standstill_is_no_silence_of_the_other_end)
{
    struct frames frames = last_seen(0);
    assert_false(is_silent(&frames));
    for (int i = 0; i < LIMIT - 1; i++) {
        pass(&frames, 3600);
        assert_false(is_silent(&frames));
    }
    pass(&frames, 3600);
    is_silent(&frames);
    pass(&frames, 3600);
    assert_true(is_silent(&frames));
}

TEST(test_silence_is_counted_by_every_check)
{
    struct frames frames = last_seen(2.5);
    assert_false(is_silent(&frames));
    pass(&frames, STEP);
    assert_false(is_silent(&frames));
    pass(&frames, STEP);
    assert_true(is_silent(&frames));
}

TEST(test_what_arrived_after_a_standstill_ends_silence_now)
{
    struct frames frames = last_seen(0);
    assert_false(is_silent(&frames));
    pass(&frames, 3600);
    frames.last = clock_now();
    assert_false(is_silent(&frames));
    assert_true(frames.last <= clock_now());
}

/* Nothing has been checked yet. */
TEST(test_a_standstill_right_after_the_start)
{
    uv_loop_t loop;
    struct frames frames = {.receive = count, .ended = ignore_end, .limit = 100};
    uv_file ends[2];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_pipe(ends, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE), 0);
    frames_open(&frames, &loop, ends[0], ends[1]);
    assert_true(frames.awake == frames.last);
    pass(&frames, 3600);
    assert_false(is_silent(&frames));
    frames_close(&frames);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    frames_free(&frames);
}

/* ---- what has arrived ---------------------------------------------------------------------------------- */

TEST(test_frames_are_read_without_the_loop)
{
    uv_loop_t loop;
    struct frames from = {.receive = count, .ended = ignore_end, .limit = 100},
                  to = {.receive = count, .ended = ignore_end, .limit = 100};
    uv_file there[2], back[2];
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_pipe(there, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE), 0);
    assert_int_equal(uv_pipe(back, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE), 0);
    frames_open(&from, &loop, there[0], back[1]);
    frames_open(&to, &loop, back[0], there[1]);
    received = 0;
    from.last = 1;
    frames_catch_up(&from);
    assert_int_equal(received, 0);
    assert_true(from.last == 1);
    frame_send(&to, FRAME_RELEASE);
    frame_send(&to, FRAME_RELEASE);
    frames_catch_up(&from);
    assert_int_equal(received, 2);
    assert_true(from.last > 1);
    frames_close(&to);
    frames_catch_up(&from);
    assert_false(from.open);
    frames_catch_up(&from);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    frames_free(&from);
    frames_free(&to);
}
