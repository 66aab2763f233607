/* test_lateness.c - how late each rank is, from what the nodes of the tree count of their children. */
#include "../../launch/lateness.h"
#include "test.h"

enum { RANKS = 6, REPORTERS = 4, NOW = 1200 };

static struct rank_view ranks[RANKS];
static struct page_reporter reporters[RANKS][REPORTERS];

/* Node `node` has waited for `rank` alone. */
static void count(int node, int rank, int64_t total, double share)
{
    struct page_summary *page = &ranks[node].page;
    reporters[node][page->reporter_count++] =
        (struct page_reporter){.rank = rank, .total = total, .count = (uint64_t)total, .share = share};
    page->reporters = reporters[node];
}

static int start(void **state)
{
    (void)state;
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank_view){0};
        ranks[i].page.identity.rank = i;
    }
    return 0;
}

const struct test_hooks test_hooks = {.before_each = start};

static void check_late(int rank, int64_t total, double share)
{
    assert_int_equal(ranks[rank].late_ns, total);
    assert_true(ranks[rank].late_share == share);
}

TEST(one_host)
{
    count(0, 2, 30, 0.3);
    count(0, 0, 5, 0.05);
    lateness_find(ranks, RANKS, NOW);
    check_late(0, 5, 0.05);
    check_late(1, 0, 0);
    check_late(2, 30, 0.3);
}

/* Rank 0 leads 1 and 2 here, and hosts led by 3 and 5; rank 3 leads 4. */
TEST(several_hosts)
{
    count(0, 1, 7, 0.07);
    count(0, 3, 40, 0.4);
    count(0, 5, 11, 0.1);
    count(3, 4, 100, 0.9); /* behind the others of its host, which were behind those of other hosts */
    count(3, 3, 1, 0.01);
    lateness_find(ranks, RANKS, NOW);
    check_late(0, 0, 0);
    check_late(1, 7, 0.07);
    check_late(3, 1, 0.01);
    check_late(4, 40, 0.4);
    assert_int_equal(ranks[4].late_count, 40); /* and not 100 */
    assert_int_equal(ranks[3].late_count, 1);
    check_late(5, 11, 0.1);
}

TEST(a_subtree_for_which_the_root_never_waited)
{
    count(0, 1, 7, 0.07);
    count(3, 4, 100, 0.9);
    lateness_find(ranks, RANKS, NOW);
    check_late(4, 0, 0);
}

TEST(without_the_root_nothing_is_known)
{
    count(3, 4, 100, 0.9);
    lateness_find(ranks + 3, RANKS - 3, NOW);
    check_late(4, 0, 0);
    lateness_find(ranks, 0, NOW);
}

TEST(pages_that_lie)
{
    count(0, 1, 9, 0.9);
    count(0, 77, 9, 0.9); /* there is no such rank */
    count(1, 0, 8, 0.8);  /* a ring */
    count(1, 1, 3, 0.3);
    lateness_find(ranks, RANKS, NOW);
    check_late(0, 0, 0);
    check_late(1, 3, 0.3);
}

/* The rank whose collective ends last submits the next request last. */
TEST(who_is_always_in_horovod_is_not_late)
{
    count(0, 1, 500, 0.5);
    count(0, 2, 300, 0.3);
    for (int i = 0; i < 3; i++)
        ranks[i].page.identity.opened = NOW - 1000;
    ranks[1].page.all.wait_ns = 900;
    ranks[1].page.thread_count = 1;
    ranks[1].page.threads[0].since = NOW - 60;
    ranks[2].page.all.wait_ns = 600;
    lateness_find(ranks, RANKS, NOW);
    check_late(1, 40, 0.04);
    check_late(2, 300, 0.3);
}

/* Rank 1's data arrive last; the program of rank 2 takes longer than those of others. */
TEST(who_waits_for_the_network_is_excused)
{
    static const uint64_t waits[RANKS] = {900, 900, 600, 900, 900, 900};
    count(0, 1, 90, 0.09);
    count(0, 2, 350, 0.35);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].page.identity.opened = NOW - 1000;
        ranks[i].page.all.wait_ns = waits[i];
    }
    lateness_find(ranks, RANKS, NOW);
    check_late(1, 90, 0.09);
    lateness_excuse(ranks, RANKS, NOW);
    check_late(1, 0, 0);
    check_late(2, 300, 0.3);
    lateness_excuse(ranks, 0, NOW);
}
