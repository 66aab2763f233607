/* test_links.c - the links between hosts, from the connections of the ranks on them. */
#include "../../launch/links.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

static struct socket_view between(int from, int from_port, int to, int to_port, uint64_t busy)
{
    return (struct socket_view){.local = {{10, (uint8_t)from}, (uint16_t)from_port},
                                .remote = {{10, (uint8_t)to}, (uint16_t)to_port},
                                .bytes = 1000,
                                .busy = busy,
                                .receiver_limited = busy / 2,
                                .retransmitted = 1};
}

/* Ranks 0 and 1 are on host a, the others alone. */
TEST(links_are_connections_whose_both_ends_are_known)
{
    struct socket_view lists[RANKS][4] = {
        {between(1, 5, 2, 6, 50), between(1, 1, 1, 2, 70)}, /* the second one stays on the host */
        {between(1, 7, 2, 8, 90), between(1, 9, 3, 9, 10), between(1, 2, 1, 1, 70)},
        {between(2, 6, 1, 5, 20), between(2, 8, 1, 7, 30), between(2, 50, 9, 50, 99)}, /* no rank is there */
        {between(3, 9, 1, 9, 0)}};
    static const int counts[RANKS] = {2, 3, 3, 1};
    static const char *const names[RANKS] = {"a", "a", "b", "c"};
    struct rank_view ranks[RANKS] = {0};
    struct job_view_host hosts[] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    struct job_view job_view = {.ranks = ranks, .count = RANKS, .hosts = hosts, .host_count = 3};
    for (int i = 0; i < RANKS; i++) {
        strcpy(ranks[i].page.identity.host, names[i]);
        ranks[i].sockets = (struct sockets){lists[i], counts[i], 4};
    }
    ASSERT_OK(job_view_links_find(&job_view, &check_status));
    static const struct job_view_link expected[] = {
        {0, 1, 2000, 2, 90, 45}, {0, 2, 1000, 1, 10, 5}, {1, 0, 2000, 2, 30, 15}, {2, 0, 1000, 1, 0, 0}};
    assert_int_equal(job_view.link_count, 4);
    assert_memory_equal(job_view.links, expected, sizeof expected);
    free(job_view.links);
}

TEST(without_connections_there_are_no_links)
{
    struct rank_view rank = {.seen = true};
    struct job_view job_view = {.ranks = &rank, .count = 1};
    ASSERT_OK(job_view_links_find(&job_view, &check_status));
    assert_int_equal(job_view.link_count, 0);
}
