/* test_slowness.c - the sentence about a job that makes progress, but slowly. */
#include "../../launch/slowness.h"
#include "test.h"

#include "base/clock.h"

enum { RANKS = 4 };

#define AGE (100 * CLOCK_SECOND)
#define NOW (1000 * CLOCK_SECOND)

static struct rank_view ranks[RANKS];
static struct job_view job_view;

static uint64_t seconds(double value)
{
    return (uint64_t)(value * CLOCK_SECOND);
}

/* All ranks compute for 40 s of 100, are blocked for 10 and wait for a processor for 1. */
static int start(void **state)
{
    (void)state;
    job_view = (struct job_view){.ranks = ranks,
                                 .count = RANKS,
                                 .size = RANKS,
                                 .host_count = 2,
                                 .taken = NOW,
                                 .steps.median = CLOCK_SECOND / 10};
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank_view){
            .seen = true,
            .process = 10 + i,
            .times = {.running = seconds(40), .runnable = seconds(1), .blocked = seconds(10)},
            .load = {.runnable = 34, .cores = 2}};
        ranks[i].page.identity = (struct page_identity){.rank = i, .opened = NOW - AGE};
        ranks[i].page.identity.host[0] = i < RANKS / 2 ? 'a' : 'b';
    }
    return 0;
}

const struct test_hooks test_hooks = {.before_each = start};

static void be_late(int rank, double share)
{
    ranks[rank].late_share = share;
    ranks[rank].late_ns = (int64_t)(share * AGE);
}

static void check_sentence(const char *expected)
{
    char text[JOB_VIEW_TEXT] = "";
    assert_true(slowness_write(&job_view, text, sizeof text) == (*expected != '\0'));
    assert_string_equal(text, expected);
}

TEST(a_healthy_job)
{
    be_late(1, 0.09);
    check_sentence("");
    job_view.count = 0;
    check_sentence("");
}

TEST(a_rank_that_is_blocked)
{
    be_late(2, 0.3);
    ranks[2].times.blocked += seconds(29);
    ranks[2].times.running += seconds(1);
    check_sentence(
        "rank 2 (host b) costs 30 ms of each 100 ms step; it is blocked (it reads, sleeps or waits for "
        "a lock) for 97 % of that");
    assert_true(slowness_per_step(&job_view, &ranks[2]) > 0.029 &&
                slowness_per_step(&job_view, &ranks[2]) < 0.031);
}

TEST(a_rank_that_computes)
{
    job_view.host_count = 1;
    be_late(0, 0.3);
    ranks[0].times.running += seconds(30);
    check_sentence("rank 0 costs 30 ms of each 100 ms step; it computes for 100 % of that");
}

TEST(a_rank_whose_host_is_overloaded)
{
    be_late(3, 0.25);
    be_late(1, 0.2);
    be_late(0, 0.12);
    ranks[3].times.runnable += seconds(24);
    ranks[3].times.running += seconds(1);
    check_sentence(
        "rank 3 (host b) costs 25 ms of each 100 ms step; it waits for a processor for 96 % of that: "
        "host b has 34 runnable threads on 2 cores; 2 other ranks are late as well");
}

TEST(processors_are_no_cause_if_there_are_enough)
{
    be_late(3, 0.25);
    ranks[3].times.runnable += seconds(24);
    ranks[3].load.runnable = ranks[3].load.cores;
    check_sentence("rank 3 (host b) costs 25 ms of each 100 ms step");
}

TEST(what_explains_too_little_is_left_out)
{
    be_late(2, 0.3);
    be_late(1, 0.2);
    ranks[2].times.running += seconds(5);
    job_view.steps.median = 0;
    check_sentence("rank 2 (host b) costs 30 % of the time; 1 other rank is late as well");
    assert_true(slowness_per_step(&job_view, &ranks[2]) == 0);
}

TEST(a_job_that_has_just_started)
{
    be_late(2, 1);
    ranks[2].late_ns = CLOCK_SECOND / 10;
    check_sentence("");
    ranks[2].late_ns = CLOCK_SECOND;
    assert_true(slowness_holds_up(&job_view, 2) && !slowness_holds_up(&job_view, 1));
}

TEST(short_steps)
{
    job_view.steps.median = CLOCK_SECOND / 1000;
    be_late(1, 0.3);
    ranks[1].process = 0; /* it has ended, and its times with it */
    check_sentence("rank 1 (host a) costs 0.3 ms of each 1.0 ms step");
}

TEST(a_rank_without_a_processor)
{
    be_late(2, 0.3);
    ranks[1].times.runnable = seconds(91);
    ranks[3].times.runnable = seconds(60);
    check_sentence(
        "rank 1 waits for a processor for 91 % of the time: host a has 34 runnable threads on 2 cores");
    ranks[1].load.runnable = 2; /* as many as there are cores */
    ranks[3].load.runnable = 3;
    check_sentence(
        "rank 3 waits for a processor for 60 % of the time: host b has 3 runnable threads on 2 cores");
    ranks[1].load.cores = 0;
    check_sentence("rank 1 waits for a processor for 91 % of the time");
    job_view.taken = ranks[1].page.identity.opened + CLOCK_SECOND / 2; /* too short a time for a verdict */
    be_late(2, 0);
    check_sentence("");
}

/* ---- links --------------------------------------------------------------------------------------------- */

static struct job_view_link links[4];

/* Three hosts in a ring, and a connection of the tree; the ranks wait in Horovod for this share of the time.
 */
static void connect_ring(double out_of_c, double others, double waits)
{
    static struct job_view_host hosts[] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    const struct job_view_link ring[] = {{0, 1, 80000000, 0, seconds(others * 100), 0},
                                         {1, 2, 80000000, 0, seconds(others * 50), 0},
                                         {2, 0, 80000000, 0, seconds(out_of_c * 100), 0},
                                         {2, 1, 100, 0, seconds(out_of_c * 90), 0}};
    for (int i = 0; i < 4; i++)
        links[i] = ring[i];
    for (int i = 0; i < RANKS; i++)
        ranks[i].page.all.wait_ns = seconds(waits * 100);
    job_view.hosts = hosts;
    job_view.host_count = 3;
    job_view.links = links;
    job_view.link_count = 4;
}

TEST(a_slow_link)
{
    connect_ring(0.98, 0.19, 0.99);
    check_sentence(
        "the network from host c to host a is the limit: 0.816 MB/s while it is busy, 98 % of the time; "
        "the other links are busy for 10 to 19 %");
    assert_ptr_equal(slowness_limit(&job_view), &links[2]);
    connect_ring(0.5, 0.19, 0.6); /* the ranks compute as well, but always wait for this link */
    assert_ptr_equal(slowness_limit(&job_view), &links[2]);
    be_late(1, 0.3);
    ranks[1].times.running += seconds(30);
    check_sentence("rank 1 (host a) costs 30 ms of each 100 ms step; it computes for 100 % of that");
}

TEST(links_that_are_not_the_limit)
{
    connect_ring(0.98, 0.75, 0.99); /* all of them are busy */
    assert_null(slowness_limit(&job_view));
    connect_ring(0.5, 0.1, 0.9); /* the ranks wait longer than for it */
    assert_null(slowness_limit(&job_view));
    connect_ring(0.1, 0.02, 0.1); /* the ranks hardly wait */
    assert_null(slowness_limit(&job_view));
    connect_ring(0.98, 0.19, 0.99);
    links[2].receiver_limited = links[2].busy; /* it is the receiver that is slow */
    assert_null(slowness_limit(&job_view));
    connect_ring(0.98, 0.19, 0.99);
    links[2].bytes = 300000; /* small messages, acknowledged late */
    assert_null(slowness_limit(&job_view));
    connect_ring(0.98, 0.19, 0.99);
    job_view.links = &links[2]; /* there is nothing to compare it with */
    job_view.link_count = 2;
    assert_null(slowness_limit(&job_view));
    check_sentence("");
}
