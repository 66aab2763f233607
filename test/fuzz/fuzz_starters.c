/* fuzz_starters.c - any text where starters, batch systems and process managers speak: their variables, lists
 * of nodes, files of hosts, lines of PMI, and the values that choose interfaces and ports. First byte: which
 * of them. */
#include "bootstrap/pmi.h"
#include "bootstrap/starters.h"
#include "launch/hosts.h"
#include "launch/node.h"
#include "net/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STARTER, NODES, ALLOCATION, PMI, PMI_OWN, INTERFACES, PORTS, HOST, NODE, MODES };
enum { NODES_LIMIT = 500 };

/* ---- variables: "NAME=value" lines; a file of hosts is what follows an empty one ------------------------
 */

struct lines {
    char *text;
    char path[64];
};

static bool count_node(void *owner, const char *name)
{
    if (!*name || strlen(name) >= STARTER_TEXT)
        abort();
    return ++*(int *)owner < NODES_LIMIT;
}

/* A job may have more nodes than an input has time for. */
static bool is_short(const char *value)
{
    int count = 0;
    return !nodelist_visit(value, count_node, &count) || count < NODES_LIMIT;
}

static const char *get(const void *owner, const char *name)
{
    const struct lines *lines = owner;
    size_t length = strlen(name);
    if (strcasestr(name, "file"))
        return lines->path;
    for (const char *at = lines->text; *at;) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return is_short(at + length + 1) ? at + length + 1 : NULL;
        at += strlen(at) + 1;
    }
    return NULL;
}

static void read_node(const struct variables *variables)
{
    struct options options = {0};
    struct settings settings = {.rendezvous = "", .ports = "20000-20099", .secret = "", .secret_file = ""};
    struct node node;
    hvd_status status;
    if (!node_find(&node, &options, &settings, variables, &status) && node.source &&
        (node.index < 0 || node.index >= node.count || node.ranks < 1 || !strchr(node.rendezvous, ':')))
        abort();
}

static void read_variables(char *text, int mode)
{
    bool allocation = mode == ALLOCATION;
    struct lines lines = {.text = text};
    struct variables variables = {get, &lines};
    hvd_status status;
    struct starter starter;
    struct hosts hosts = {0};
    char *file = strstr(text, "\n\n");
    int fd = memfd_create("hosts", MFD_CLOEXEC);
    if (fd < 0 || (file && write(fd, file + 2, strlen(file + 2)) < 0))
        abort();
    if (file)
        file[1] = '\0';
    snprintf(lines.path, sizeof lines.path, "/proc/self/fd/%d", fd);
    for (char *at = text; (at = strchr(at, '\n'));)
        *at++ = '\0';
    if (mode == NODE)
        read_node(&variables);
    if (mode == STARTER && !starter_read(&starter, &variables, &status) &&
        (starter.rank < 0 || starter.rank >= starter.size || starter.port < 0 || starter.port > 65535))
        abort();
    if (allocation && !hosts_read_allocation(&hosts, &variables, &status))
        for (int i = 0; i < hosts.count; i++)
            if (hosts.list[i].slots < 1)
                abort();
    hosts_free(&hosts);
    close(fd);
}

/* ---- the rest -------------------------------------------------------------------------------------------
 */

/* All that the process manager answers is there before it is asked. */
static void answer_pmi(const char *text, bool own)
{
    int ends[2];
    char value[PMI_VALUE_LIMIT] = "value";
    hvd_status status;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || send(ends[1], text, strlen(text), MSG_NOSIGNAL) < 0 ||
        shutdown(ends[1], SHUT_WR))
        abort();
    if (!pmi_broadcast(ends[0], own, value, clock_now() + CLOCK_SECOND, NULL, &status) &&
        (!*value || strlen(value) >= sizeof value || strpbrk(value, " \n")))
        abort();
    pmi_finalize(ends[0]);
    close(ends[0]);
    close(ends[1]);
}

static void select_interfaces(const char *text)
{
    struct sockaddr_in one = {.sin_family = AF_INET}, two = one;
    struct sockaddr_in6 three = {.sin6_family = AF_INET6};
    char first[] = "lo", second[] = "eth0";
    unsigned up = IFF_UP | IFF_RUNNING;
    inet_pton(AF_INET, "127.0.0.1", &one.sin_addr);
    inet_pton(AF_INET, "10.1.2.3", &two.sin_addr);
    inet_pton(AF_INET6, "fd00::7", &three.sin6_addr);
    struct ifaddrs all[] = {
        {.ifa_next = &all[1], .ifa_name = first, .ifa_flags = up | IFF_LOOPBACK, .ifa_addr = (void *)&one},
        {.ifa_next = &all[2], .ifa_name = second, .ifa_flags = up, .ifa_addr = (void *)&two},
        {.ifa_name = second, .ifa_flags = up, .ifa_addr = (void *)&three},
    };
    struct addresses found;
    hvd_status status;
    char list[ADDRESSES_TEXT];
    const char *preferred = strchr(text, '\n');
    if (addresses_select(all, text, preferred ? preferred + 1 : "", &found, &status))
        return;
    if (found.count < 1 || found.count > 3)
        abort();
    addresses_text(&found, 4242, list);
    addresses_to_connect(&found, text, 4242, list, sizeof list);
}

static void parse_ports(const char *text)
{
    int first, last;
    hvd_status status;
    if (!ports_parse(text, &first, &last, &status) &&
        (*text ? first < 1 || last < first || last > 65535 : first || last))
        abort();
}

static void split_host(const char *text)
{
    char host[SOCKET_TEXT];
    const char *port;
    if (socket_split(text, host, sizeof host, &port) &&
        (strlen(host) >= sizeof host || port < text || port > text + strlen(text)))
        abort();
    addresses_are_loopback(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    int count = 0;
    if (!length)
        return 0;
    char *text = calloc(length + 1, 1); /* ends in two NULs: so does the last line */
    if (!text)
        abort();
    memcpy(text, bytes + 1, length - 1);
    switch (bytes[0] % MODES) {
    case STARTER:
    case ALLOCATION:
    case NODE:
        read_variables(text, bytes[0] % MODES);
        break;
    case NODES:
        nodelist_visit(text, count_node, &count);
        break;
    case PMI:
    case PMI_OWN:
        answer_pmi(text, bytes[0] % MODES == PMI_OWN);
        break;
    case INTERFACES:
        select_interfaces(text);
        break;
    case PORTS:
        parse_ports(text);
        break;
    case HOST:
        split_host(text);
        break;
    }
    free(text);
    return 0;
}
