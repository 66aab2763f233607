/* addresses.c - chooses among the addresses of the interfaces, and listens at them. No state; any thread. */
#include "net/addresses.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENTRY_LIMIT    128
#define NAME_LIMIT     256 /* of a host, with the NUL */
#define PORT_LIMIT     65535
#define ANY_PORT_TRIES 64 /* the system's choice for one address may be taken at another */

/* ---- interfaces --------------------------------------------------------------------------------------- */

/* Returns the bytes of an address; none if it is of another family. */
static size_t address_bytes(const struct sockaddr *address, uint8_t bytes[16])
{
    if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return 0;
    if (address->sa_family == AF_INET) {
        memcpy(bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return 4;
    }
    memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
    return 16;
}

/* Link-local IPv6 addresses mean nothing without the name of an interface of the reader's. */
static bool is_usable(const struct ifaddrs *each)
{
    uint8_t bytes[16];
    size_t size = address_bytes(each->ifa_addr, bytes);
    bool local = size == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
    return size && !local && (each->ifa_flags & IFF_UP) && (each->ifa_flags & IFF_RUNNING);
}

/* One element of a list of interfaces and subnets. */
struct entry {
    char text[ENTRY_LIMIT];
    bool excludes;
    size_t size; /* of the network's address in bytes; 0: a name */
    uint8_t network[16];
    int bits;
};

static hvd_code parse_network(struct entry *entry, hvd_status *status)
{
    char address[ENTRY_LIMIT], *end;
    char *slash = strchr(entry->text, '/');
    snprintf(address, sizeof address, "%.*s", (int)strcspn(entry->text, "/"), entry->text);
    entry->size = inet_pton(AF_INET, address, entry->network) == 1    ? 4
                  : inet_pton(AF_INET6, address, entry->network) == 1 ? 16
                                                                      : 0;
    entry->bits = 8 * (int)entry->size;
    if (!slash)
        return HVD_OK;
    long bits = strtol(slash + 1, &end, 10);
    if (!entry->size || end == slash + 1 || *end || bits < 0 || bits > entry->bits)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "'%s' is no subnet; write one like 10.1.0.0/16 or fd00::/8 "
                          "(HOROVOD_NETWORK_INTERFACE)",
                          entry->text);
    entry->bits = (int)bits;
    return HVD_OK;
}

/* Parses the element at *list, and moves *list to the next one; `all_exclude`: the list starts with ^. */
static hvd_code next_entry(const char **list, bool all_exclude, struct entry *entry, hvd_status *status)
{
    size_t length = strcspn(*list, ",");
    bool marked = **list == '^';
    *entry = (struct entry){.excludes = all_exclude || marked};
    snprintf(entry->text, sizeof entry->text, "%.*s", (int)length - marked, *list + marked);
    *list += length + ((*list)[length] == ',');
    return parse_network(entry, status);
}

hvd_code addresses_check(const char *interfaces, hvd_status *status)
{
    struct entry entry;
    hvd_code code = HVD_OK;
    for (const char *at = interfaces; !code && *at;)
        code = next_entry(&at, *interfaces == '^', &entry, status);
    return code;
}

static bool matches(const struct entry *entry, const struct ifaddrs *each)
{
    uint8_t bytes[16];
    if (!entry->size)
        return strcmp(entry->text, each->ifa_name) == 0;
    if (address_bytes(each->ifa_addr, bytes) != entry->size)
        return false;
    for (int bit = 0; bit < entry->bits; bit++) {
        if ((bytes[bit / 8] ^ entry->network[bit / 8]) >> (7 - bit % 8) & 1)
            return false;
    }
    return true;
}

static void add(struct addresses *found, const char *interfaces, const struct ifaddrs *each)
{
    char text[SOCKET_TEXT];
    struct entry entry;
    if (found->count == ADDRESSES_LIMIT || !socket_host_text(each->ifa_addr, text))
        return;
    for (const char *at = interfaces; *at;)
        if (!next_entry(&at, *interfaces == '^', &entry, NULL) && entry.excludes && matches(&entry, each))
            return;
    for (int i = 0; i < found->count; i++)
        if (strcmp(found->list[i], text) == 0)
            return;
    memcpy(found->list[found->count++], text, sizeof text);
}

/* Adds the addresses of all interfaces that an entry matches; NULL: of all interfaces. */
static void add_matching(struct addresses *found, const struct ifaddrs *all, const char *interfaces,
                         const struct entry *entry, bool loopback)
{
    for (const struct ifaddrs *each = all; each; each = each->ifa_next)
        if (is_usable(each) && (loopback || !(each->ifa_flags & IFF_LOOPBACK)) &&
            (!entry || matches(entry, each)))
            add(found, interfaces, each);
}

static hvd_code none_left(const struct ifaddrs *all, const char *interfaces, hvd_status *status)
{
    char there[512] = "";
    for (const struct ifaddrs *each = all; each; each = each->ifa_next) {
        char text[SOCKET_TEXT];
        if (socket_host_text(each->ifa_addr, text))
            append_text(there, sizeof there, "%s%s (%s%s)", *there ? ", " : "", each->ifa_name, text,
                        is_usable(each) ? "" : ", not usable");
    }
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "no network interface here is up and allowed by '%s' (HOROVOD_NETWORK_INTERFACE); there "
        "are %s",
        interfaces, *there ? there : "none");
}

hvd_code addresses_select(const struct ifaddrs *all, const char *interfaces, const char *preferred,
                          struct addresses *found, hvd_status *status)
{
    struct entry entry;
    bool takes = false;
    *found = (struct addresses){0};
    for (const char *at = interfaces; *at;) {
        hvd_code code = next_entry(&at, *interfaces == '^', &entry, status);
        if (code)
            return code;
        takes |= !entry.excludes;
        if (!entry.excludes)
            add_matching(found, all, interfaces, &entry, true);
    }
    if (!takes) {
        if (!next_entry(&preferred, false, &entry, NULL))
            add_matching(found, all, interfaces, &entry, false);
        add_matching(found, all, interfaces, NULL, false);
    }
    if (!found->count && !*interfaces)
        add_matching(found, all, interfaces, NULL, true);
    return found->count ? HVD_OK : none_left(all, interfaces, status);
}

hvd_code addresses_find(const char *interfaces, const char *preferred, struct addresses *found,
                        hvd_status *status)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return status_set_errno(status, errno, "can't list the network interfaces");
    hvd_code code = addresses_select(all, interfaces, preferred, found, status);
    freeifaddrs(all);
    return code;
}

hvd_code hvd_find_addresses(const char *interfaces, hvd_status *found)
{
    struct addresses all;
    TRY(addresses_find(interfaces, "", &all, found));
    *found = (hvd_status){.code = HVD_OK};
    for (int i = 0; i < all.count; i++)
        append_text(found->text, sizeof found->text, "%s%s", i ? "," : "", all.list[i]);
    return HVD_OK;
}

/* Asks the routing table: connecting a datagram socket sends nothing. */
static bool find_source(const char *address, char source[SOCKET_TEXT])
{
    struct addrinfo *found, hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST};
    if (getaddrinfo(address, "9", &hints, &found))
        return false;
    int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done =
        fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 && socket_local_address(fd, source);
    socket_close(&fd);
    freeaddrinfo(found);
    return done;
}

bool addresses_route(const char *address, struct route *route)
{
    char text[SOCKET_TEXT];
    struct ifaddrs *all;
    bool done = false;
    if (!find_source(address, route->source) || getifaddrs(&all))
        return false;
    for (const struct ifaddrs *each = all; each && !done; each = each->ifa_next) {
        done = socket_host_text(each->ifa_addr, text) && strcmp(text, route->source) == 0;
        snprintf(route->interface, sizeof route->interface, "%s", each->ifa_name);
    }
    freeifaddrs(all);
    return done;
}

const struct addresses addresses_of_loopback = {.count = 1, .list = {"127.0.0.1"}};

static bool is_loopback(const char *numeric)
{
    struct in_addr four;
    return strcmp(numeric, "::1") == 0 ||
           (inet_pton(AF_INET, numeric, &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}

/* Copies the host of the first element of "host:port,[::1]:port", "" if it is malformed. Returns the next
 * element. */
static const char *next_host(const char *list, char host[NAME_LIMIT])
{
    char one[NAME_LIMIT + 16];
    const char *port;
    size_t length = strcspn(list, ",");
    snprintf(one, sizeof one, "%.*s", (int)length, list);
    if (!socket_split(one, host, NAME_LIMIT, &port))
        *host = '\0';
    return list + length + (list[length] == ',');
}

bool addresses_are_loopback(const char *list)
{
    char host[NAME_LIMIT];
    bool loopback = true;
    while (loopback && *list) {
        list = next_host(list, host);
        loopback = strcmp(host, "localhost") == 0 || is_loopback(host);
    }
    return loopback;
}

/* Adds the address unless the list has it already, or this host lacks it, as one without IPv6 does. */
static void add_loopback(struct addresses *addresses, const char *numeric)
{
    int port = 0;
    for (int i = 0; i < addresses->count; i++)
        if (strcmp(addresses->list[i], numeric) == 0)
            return;
    int fd = addresses->count < ADDRESSES_LIMIT ? socket_listen(numeric, &port) : -1;
    if (fd >= 0)
        snprintf(addresses->list[addresses->count++], SOCKET_TEXT, "%s", numeric);
    socket_close(&fd);
}

void addresses_add_loopback(struct addresses *addresses, const char *list)
{
    char host[NAME_LIMIT], numeric[SOCKET_TEXT];
    while (*list) {
        struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
        list = next_host(list, host);
        if (strcmp(host, "localhost") == 0)
            add_loopback(addresses, addresses_of_loopback.list[0]);
        if (!*host || getaddrinfo(host, NULL, &hints, &found))
            continue;
        for (const struct addrinfo *each = found; each; each = each->ai_next)
            if (socket_host_text(each->ai_addr, numeric) && is_loopback(numeric))
                add_loopback(addresses, numeric);
        freeaddrinfo(found);
    }
}

void addresses_text(const struct addresses *addresses, int port, char text[ADDRESSES_TEXT])
{
    *text = '\0';
    for (int i = 0; i < addresses->count; i++) {
        const char *address = addresses->list[i];
        append_text(text, ADDRESSES_TEXT, strchr(address, ':') ? "%s[%s]:%d" : "%s%s:%d", i ? "," : "",
                    address, port);
    }
}

void addresses_to_listen(const struct addresses *addresses, const char *ports, char text[ADDRESSES_TEXT])
{
    *text = '\0';
    for (int i = 0; i < addresses->count; i++)
        append_text(text, ADDRESSES_TEXT, "%s[%s]", i ? "," : "", addresses->list[i]);
    if (*ports)
        append_text(text, ADDRESSES_TEXT, ":%s", ports);
}

void addresses_to_connect(const struct addresses *addresses, const char *advertised, int port, char *text,
                          size_t capacity)
{
    char host[NAME_LIMIT], own[ADDRESSES_TEXT];
    const char *unused;
    *text = '\0';
    if (*advertised && socket_split(advertised, host, sizeof host, &unused))
        append_text(text, capacity, strchr(host, ':') ? "[%s]:%d," : "%s:%d,", host, port);
    addresses_text(addresses, port, own);
    append_text(text, capacity, "%s", own);
}

/* ---- listening ---------------------------------------------------------------------------------------- */

hvd_code ports_parse(const char *ports, int *first, int *last, hvd_status *status)
{
    char *end;
    long from = strtol(ports, &end, 10), to = from;
    bool right = end != ports;
    if (right && *end == '-') {
        const char *second = end + 1;
        to = strtol(second, &end, 10);
        right = end != second;
    }
    if (*ports && (!right || *end || from < 1 || to < from || to > PORT_LIMIT))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_PORTS=%s is no range of ports; write one like 20000-20099", ports);
    *first = (int)from;
    *last = (int)to;
    return HVD_OK;
}

int ports_pick(const char *ports, int64_t number, int otherwise)
{
    int first = 0, last = 0;
    if (!*ports || ports_parse(ports, &first, &last, NULL))
        return otherwise;
    int64_t count = last - first + 1, offset = (number - first) % count;
    return first + (int)(offset < 0 ? offset + count : offset);
}

/* Listens at one port (0: the system's choice) of all addresses. Returns 0, or an errno value and the address
 * at fault. */
static int listen_at(const struct addresses *addresses, int fds[ADDRESSES_LIMIT], int *port, int *at_fault)
{
    int count = addresses->count ? addresses->count : 1;
    for (int i = 0; i < count; i++) {
        /* "::" takes IPv4 as well; where the kernel has no IPv6, "0.0.0.0" remains. */
        const char *address = addresses->count ? addresses->list[i] : "::";
        fds[i] = socket_listen(address, port);
        if (fds[i] < 0 && !addresses->count && errno == EAFNOSUPPORT)
            fds[i] = socket_listen("0.0.0.0", port);
        if (fds[i] >= 0)
            continue;
        int error = errno;
        *at_fault = i;
        while (i > 0)
            socket_close(&fds[--i]);
        return error;
    }
    return 0;
}

static hvd_code ports_are_used_up(const char *ports, hvd_status *status)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    if (!strchr(ports, '-'))
        return status_set(status, HVD_SYSTEM, "port %s is in use on host %s", ports, host);
    return status_set(status, HVD_SYSTEM,
                      "all ports of HOROVOD_PORTS=%s are in use on host %s; every rank needs one, and the "
                      "rendezvous: widen the range, or end what else uses it",
                      ports, host);
}

hvd_code addresses_listen(const struct addresses *addresses, const char *ports, int fds[ADDRESSES_LIMIT],
                          int *port, hvd_status *status)
{
    int first = 0, last = 0, at_fault = 0;
    TRY(ports_parse(ports, &first, &last, status));
    int tries = *ports ? last - first + 1 : ANY_PORT_TRIES, error = 0;
    for (int i = 0; i < tries; i++) {
        *port = *ports ? first + i : 0;
        error = listen_at(addresses, fds, port, &at_fault);
        if (!error)
            return HVD_OK;
        if (error != EADDRINUSE)
            break;
    }
    if (*ports && error == EADDRINUSE)
        return ports_are_used_up(ports, status);
    return status_set_errno(status, error, "can't listen on %s",
                            addresses->count ? addresses->list[at_fault] : "any interface");
}
