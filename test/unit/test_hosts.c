/* test_hosts.c - lists of hosts, and which rank gets which place on them. */
#include "../../launch/hosts.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "rank:host local/size cross/size", with spaces between. */
static void check_layout(const char *list, int64_t wanted, const char *expected)
{
    struct hosts hosts = {0};
    char text[1024] = "";
    ASSERT_OK(hosts_parse(&hosts, list, &check_status));
    ASSERT_OK(hosts_layout(&hosts, wanted, &check_status));
    for (int rank = 0; rank < hosts.size; rank++) {
        const struct place *slot = &hosts.places[rank];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d:%s %d/%d %d/%d", rank ? ", " : "",
                 slot->rank, hosts.list[slot->host].name, slot->local_rank, slot->local_size,
                 slot->cross_rank, slot->cross_size);
    }
    assert_string_equal(text, expected);
    hosts_free(&hosts);
}

TEST(test_host_by_host)
{
    check_layout("a:2,b:1", 0, "0:a 0/2 0/2, 1:a 1/2 0/1, 2:b 0/1 1/2");
    check_layout("a:1,b:3,c:2", 0,
                 "0:a 0/1 0/3, 1:b 0/3 1/3, 2:b 1/3 0/2, 3:b 2/3 0/1, 4:c 0/2 2/3, 5:c 1/2 1/2");
}

TEST(test_hosts_without_slots)
{
    struct hosts hosts = {.slots = 1};
    ASSERT_OK(hosts_parse(&hosts, "a,me@b:4,[fd00::7],[fd00::8]:2", &check_status));
    const struct {
        const char *name;
        int slots;
    } rows[] = {{"a", 1}, {"b", 4}, {"fd00::7", 1}, {"fd00::8", 2}};
    assert_int_equal(hosts.count, 4);
    for (int i = 0; i < hosts.count; i++) {
        assert_string_equal(hosts.list[i].name, rows[i].name);
        assert_int_equal(hosts.list[i].slots, rows[i].slots);
    }
    hosts_free(&hosts);
    struct hosts others = {0};
    ASSERT_FAILS(hosts_parse(&others, "a,b:1", &check_status), HVD_INVALID_ARGUMENT,
                 "'a' is not of the form");
    hosts_free(&others);
}

TEST(test_fewer_ranks_than_slots)
{
    check_layout("a:2,b:4", 3, "0:a 0/2 0/2, 1:a 1/2 0/1, 2:b 0/1 1/2");
    check_layout("a:4,b:4", 2, "0:a 0/2 0/1, 1:a 1/2 0/1");
}

TEST(test_one_host_twice)
{
    check_layout("a:1,b:1,A:1", 0, "0:a 0/2 0/2, 1:a 1/2 0/1, 2:b 0/1 1/2");
    check_layout("localhost:1,a:1,127.0.0.1:1", 0, "0:localhost 0/2 0/2, 1:localhost 1/2 0/1, 2:a 0/1 1/2");
}

TEST(test_merge)
{
    struct hosts hosts = {0};
    ASSERT_OK(hosts_parse(&hosts, "a:1,b:1,c:2", &check_status));
    ASSERT_OK(hosts_layout(&hosts, 0, &check_status));
    hosts_merge(&hosts, 0, 1);
    ASSERT_OK(hosts_layout(&hosts, 0, &check_status));
    assert_int_equal(hosts.count, 2);
    assert_int_equal(hosts.list[0].ranks, 2);
    assert_string_equal(hosts.list[1].name, "c");
    assert_int_equal(hosts.places[3].cross_size, 2);
    hosts_free(&hosts);
}

TEST(test_users_ports_and_addresses)
{
    struct hosts hosts = {0};
    char path[] = "/tmp/horovod-hosts-XXXXXX";
    static const char text[] = "me@a slots=2 port=2222 # comment\n[fd00::7]:3\n\nb max_slots=4 slots=4\n";
    int file = mkstemp(path);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    ASSERT_OK(hosts_read_file(&hosts, path, &check_status));
    unlink(path);
    assert_int_equal(hosts.count, 3);
    assert_string_equal(hosts.list[0].user, "me");
    assert_string_equal(hosts.list[0].name, "a");
    assert_int_equal(hosts.list[0].port, 2222);
    assert_string_equal(hosts.list[1].name, "fd00::7");
    assert_int_equal(hosts.list[1].slots, 3);
    assert_int_equal(hosts.list[2].slots, 4);
    hosts_free(&hosts);
}

/* Volcano's file, for example. */
TEST(test_bare_names)
{
    char path[] = "/tmp/horovod-hosts-XXXXXX";
    static const char text[] = "job-worker-0.job\n[fd00::7]\nme@c\n";
    int file = mkstemp(path);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    for (int slots = 0; slots < 3; slots += 2) {
        struct hosts hosts = {.slots = slots};
        ASSERT_OK(hosts_read_file(&hosts, path, &check_status));
        assert_int_equal(hosts.count, 3);
        assert_string_equal(hosts.list[1].name, "fd00::7");
        for (int i = 0; i < hosts.count; i++)
            assert_int_equal(hosts.list[i].slots, slots ? slots : 1);
        hosts_free(&hosts);
    }
    unlink(path);
}

TEST(test_too_few_slots)
{
    struct hosts hosts = {0};
    ASSERT_OK(hosts_parse(&hosts, "a:2,b:1", &check_status));
    ASSERT_FAILS(hosts_layout(&hosts, 4, &check_status), HVD_INVALID_ARGUMENT,
                 "-np 4 asks for more ranks than the hosts have slots (3)");
    hosts_free(&hosts);
}
