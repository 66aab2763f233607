/* test_addresses.c - which addresses of a host are used: lists of interfaces, subnets and exclusions over a
 * made-up host; ranges of ports over a real one. */
#include "net/addresses.h"
#include "test.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define GOOD (IFF_UP | IFF_RUNNING)

static const struct interface {
    const char *name, *address;
    unsigned flags;
} host[] = {
    {"lo", "127.0.0.1", GOOD | IFF_LOOPBACK},
    {"lo", "::1", GOOD | IFF_LOOPBACK},
    {"docker0", "172.17.0.1", GOOD},
    {"eth0", "10.1.0.7", GOOD},
    {"eth0", "fd00::7", GOOD},
    {"eth0", "fe80::1", GOOD}, /* of this link only */
    {"ib0", "192.168.9.7", GOOD},
    {"down0", "10.9.0.1", IFF_RUNNING},
    {"unplugged0", "10.8.0.1", IFF_UP},
    {"tun0", NULL, GOOD},
};

/* "10.1.0.7 fd00::7", or the error's text. */
static const char *select_of(int first, int count, const char *interfaces, const char *preferred)
{
    static char text[HVD_STATUS_TEXT];
    struct ifaddrs list[32];
    struct sockaddr_storage addresses[32];
    struct addresses found;
    hvd_status status;
    memset(list, 0, sizeof list);
    memset(addresses, 0, sizeof addresses);
    for (int i = 0; i < count; i++) {
        const struct interface *interface = &host[(first + i) % (int)(sizeof host / sizeof *host)];
        struct sockaddr_in *four = (void *)&addresses[i];
        struct sockaddr_in6 *six = (void *)&addresses[i];
        list[i].ifa_name = (char *)interface->name;
        list[i].ifa_flags = interface->flags;
        list[i].ifa_next = i + 1 < count ? &list[i + 1] : NULL;
        if (!interface->address)
            continue;
        list[i].ifa_addr = (void *)&addresses[i];
        bool is_six = inet_pton(AF_INET6, interface->address, &six->sin6_addr) == 1;
        list[i].ifa_addr->sa_family = is_six ? AF_INET6 : AF_INET;
        assert_true(is_six || inet_pton(AF_INET, interface->address, &four->sin_addr) == 1);
    }
    *text = '\0';
    if (addresses_select(list, interfaces, preferred, &found, &status))
        return strcpy(text, status.text);
    for (int i = 0; i < found.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", found.list[i]);
    return text;
}

TEST(test_interfaces_are_chosen)
{
    static const struct {
        const char *interfaces, *preferred, *expected;
    } cases[] = {
        {"", "", "172.17.0.1 10.1.0.7 fd00::7 192.168.9.7"},
        {"", "192.168.9.7", "192.168.9.7 172.17.0.1 10.1.0.7 fd00::7"},
        {"", "127.0.0.1", "172.17.0.1 10.1.0.7 fd00::7 192.168.9.7"},
        {"", "::1", "172.17.0.1 10.1.0.7 fd00::7 192.168.9.7"},
        {"eth0", "192.168.9.7", "10.1.0.7 fd00::7"},
        {"ib0,eth0", "10.1.0.7", "192.168.9.7 10.1.0.7 fd00::7"},
        {"eth9,eth0", "", "10.1.0.7 fd00::7"}, /* hosts may differ */
        {"lo", "", "127.0.0.1 ::1"},
        {"10.1.0.0/16", "", "10.1.0.7"},
        {"10.1.0.7", "", "10.1.0.7"},
        {"10.0.0.0/7,fd00::/8", "", "10.1.0.7 fd00::7"},
        {"0.0.0.0/0", "", "127.0.0.1 172.17.0.1 10.1.0.7 192.168.9.7"},
        {"^docker0", "10.1.0.7", "10.1.0.7 fd00::7 192.168.9.7"},
        {"^docker0,ib0", "", "10.1.0.7 fd00::7"}, /* as others read such a list */
        {"^172.17.0.0/16,^fd00::/8", "", "10.1.0.7 192.168.9.7"},
        {"^docker0,eth0,ib0", "10.1.0.7",
         "no network interface here is up and allowed by '^docker0,eth0,ib0' (HOROVOD_NETWORK_INTERFACE); "
         "there are lo (127.0.0.1), lo (::1), docker0 (172.17.0.1), eth0 (10.1.0.7), eth0 (fd00::7), "
         "eth0 (fe80::1, not usable), ib0 (192.168.9.7), down0 (10.9.0.1, not usable), unplugged0 "
         "(10.8.0.1, not usable)"},
        {"0.0.0.0/0,^10.1.0.0/16,^lo", "", "172.17.0.1 192.168.9.7"},
        {"10.1.0.0/33", "",
         "'10.1.0.0/33' is no subnet; write one like 10.1.0.0/16 or fd00::/8 "
         "(HOROVOD_NETWORK_INTERFACE)"},
        {"eth0/16", "",
         "'eth0/16' is no subnet; write one like 10.1.0.0/16 or fd00::/8 "
         "(HOROVOD_NETWORK_INTERFACE)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(select_of(0, sizeof host / sizeof *host, cases[i].interfaces, cases[i].preferred),
                            cases[i].expected);
}

TEST(test_loopback_where_there_is_nothing_else)
{
    assert_string_equal(select_of(0, 2, "", ""), "127.0.0.1 ::1");
    assert_non_null(strstr(select_of(0, 2, "eth0", ""), "no network interface here"));
    assert_non_null(strstr(select_of(9, 1, "", ""), "there are none"));
    assert_string_equal(select_of(0, 30, "", "192.168.9.7"), "192.168.9.7 172.17.0.1 10.1.0.7 fd00::7");
}

TEST(test_loopback_lists)
{
    assert_true(addresses_are_loopback("127.0.0.1:80"));
    assert_true(addresses_are_loopback("localhost:80,[::1]:80,127.1.2.3:4"));
    assert_false(addresses_are_loopback("localhost:80,10.0.0.1:80"));
    assert_false(addresses_are_loopback("[fd00::1]:80"));
    assert_false(addresses_are_loopback("head:80"));
}

static void check_loopback(const char *list, const char *expected)
{
    char text[ADDRESSES_TEXT];
    struct addresses found = {1, {"10.1.0.7"}};
    addresses_add_loopback(&found, list);
    addresses_text(&found, 80, text);
    assert_string_equal(text, expected);
}

TEST(test_what_names_mean_here)
{
    check_loopback("127.0.1.1:29600", "10.1.0.7:80,127.0.1.1:80");
    check_loopback("127.0.1.1:29600,127.0.1.1:29601", "10.1.0.7:80,127.0.1.1:80");
    check_loopback("10.0.0.1:29600,[fd00::1]:29600", "10.1.0.7:80");
    struct addresses none = {0};
    addresses_add_loopback(&none, "localhost:29600");
    assert_true(none.count > 0);
    assert_string_equal(none.list[0], "127.0.0.1");
}

TEST(test_a_long_advertised_name)
{
    char name[201], expected[300], text[1024];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct addresses own = {1, {"10.1.0.7"}};
    addresses_to_connect(&own, name, 80, text, sizeof text);
    snprintf(expected, sizeof expected, "%s:80,10.1.0.7:80", name);
    assert_string_equal(text, expected);
}

/* ---- ports -------------------------------------------------------------------------------------------- */

static void close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        socket_close(&fds[i]);
}

TEST(test_one_port_at_all_addresses)
{
    struct addresses two = {2, {"127.0.0.1", "127.0.0.2"}}, none = {0};
    int fds[ADDRESSES_LIMIT], more[ADDRESSES_LIMIT], port, other;
    char text[ADDRESSES_TEXT];
    ASSERT_OK(addresses_listen(&two, "", fds, &port, &check_status));
    int fd = socket_connect_numeric("127.0.0.2", port);
    assert_true(fd >= 0);
    socket_close(&fd);
    addresses_text(&two, 4242, text);
    assert_string_equal(text, "127.0.0.1:4242,127.0.0.2:4242");
    struct addresses six = {2, {"::1", "10.0.0.1"}};
    addresses_text(&six, 4242, text);
    assert_string_equal(text, "[::1]:4242,10.0.0.1:4242");
    ASSERT_OK(addresses_listen(&none, "", more, &other, &check_status));
    fd = socket_connect_numeric("127.0.0.3", other);
    assert_true(fd >= 0);
    socket_close(&fd);
    close_all(fds, 2);
    close_all(more, 1);
}

/* The first that is free at all addresses; used up, it says so. */
TEST(test_range_of_ports)
{
    struct addresses one = {1, {"127.0.0.2"}}, two = {2, {"127.0.0.1", "127.0.0.2"}};
    int first[ADDRESSES_LIMIT], second[ADDRESSES_LIMIT], third[ADDRESSES_LIMIT], base, port;
    char ports[32], words[96];
    /* A pair of free ports; another process may take one meanwhile. */
    for (int tries = 0;; tries++) {
        assert_true(tries < 50);
        ASSERT_OK(addresses_listen(&one, "", first, &base, &check_status));
        close_all(first, 1);
        snprintf(ports, sizeof ports, "%d-%d", base, base + 1);
        if (base == 65535 || addresses_listen(&one, ports, first, &port, NULL))
            continue;
        hvd_code code = addresses_listen(&two, ports, second, &port, NULL);
        if (!code && port == base + 1)
            break;
        close_all(first, 1);
        if (!code)
            close_all(second, 2);
    }
    snprintf(words, sizeof words, "all ports of HOROVOD_PORTS=%s are in use on host", ports);
    ASSERT_FAILS(addresses_listen(&two, ports, third, &port, &check_status), HVD_SYSTEM, words);
    close_all(second, 2);
    ASSERT_OK(addresses_listen(&one, ports, third, &port, &check_status));
    close_all(first, 1);
    close_all(third, 1);
}

TEST(test_a_port_by_a_number)
{
    assert_int_equal(ports_pick("", 29601, 29601), 29601);
    assert_int_equal(ports_pick("29600-29609", 29601, 1), 29601);
    assert_int_equal(ports_pick("29600-29609", 29610, 1), 29600); /* all but the one before it */
    assert_int_equal(ports_pick("21000-21009", 17 * 16 + 2, 1), 21004);
    assert_int_equal(ports_pick("21000", 5, 1), 21000);
}

TEST(test_malformed_ports)
{
    static const char *const wrong[] = {"x", "0", "-", "5-", "-5", "9-8", "1-65536", "70000", "1,2", "1-2-3"};
    int fds[ADDRESSES_LIMIT], port;
    struct addresses one = {1, {"127.0.0.1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ASSERT_FAILS(addresses_listen(&one, wrong[i], fds, &port, &check_status), HVD_INVALID_ARGUMENT,
                     "is no range of ports; write one like 20000-20099");
    struct addresses foreign = {1, {"192.0.2.1"}};
    ASSERT_FAILS(addresses_listen(&foreign, "", fds, &port, &check_status), HVD_SYSTEM,
                 "can't listen on 192.0.2.1: Cannot assign");
}

TEST(test_routes)
{
    struct route route = {0};
    assert_true(addresses_route("127.0.0.2", &route));
    assert_string_equal(route.interface, "lo");
    assert_int_equal(strncmp(route.source, "127.", 4), 0);
    assert_false(addresses_route("no address", &route));
}
