/* addresses.h - where this host is reached: which addresses of its network interfaces a process uses, and
 * listeners at them. No state; any thread. */
#ifndef HVD_NET_ADDRESSES_H
#define HVD_NET_ADDRESSES_H

#include "net/socket.h"

#define ADDRESSES_LIMIT 8
#define ADDRESSES_TEXT  968 /* bytes of that many and of a name, each with a port, as text */

struct ifaddrs;

struct addresses {
    int count;
    char list[ADDRESSES_LIMIT][SOCKET_TEXT]; /* numeric, the best first */
};

/* Finds the addresses of interfaces that are up, have a carrier, and are allowed by `interfaces`: names,
 * subnets ("10.1.0.0/16", "fd00::/8") and addresses, separated by commas, in the order of preference. An
 * entry that starts with ^ is excluded; a list of such entries only excludes. A list without other entries
 * allows all addresses except loopback, or loopback if there is no other. `preferred` (or "") is first unless
 * the list says otherwise. HVD_INVALID_ARGUMENT: none is left; the text lists the existing ones. */
hvd_code addresses_find(const char *interfaces, const char *preferred, struct addresses *found,
                        hvd_status *status);
/* Checks that the list of interfaces is well formed. */
hvd_code addresses_check(const char *interfaces, hvd_status *status);
/* Does the same with a list as from getifaddrs. */
hvd_code addresses_select(const struct ifaddrs *all, const char *interfaces, const char *preferred,
                          struct addresses *found, hvd_status *status);

/* Finds how this host reaches a numeric address, by its routing table. False: it can't. */
struct route {
    char source[SOCKET_TEXT]; /* the own address that a connection has */
    char interface[16];
};
bool addresses_route(const char *address, struct route *route);

/* 127.0.0.1 */
extern const struct addresses addresses_of_loopback;

/* Returns true if all hosts in "host:port,[::1]:port" are localhost or a numeric loopback address. */
bool addresses_are_loopback(const char *list);

/* Adds the loopback addresses of those names on this host: Debian gives the host's own name such an address
 * by default (127.0.1.1). For localhost it adds at least 127.0.0.1. */
void addresses_add_loopback(struct addresses *addresses, const char *list);

/* Writes the addresses to listen at, for hvd_rendezvous_start: "[10.0.0.7],[fd00::7]:20000-20099"; ports may
 * be "". */
void addresses_to_listen(const struct addresses *addresses, const char *ports, char text[ADDRESSES_TEXT]);

/* Writes the addresses by which others reach that listener, as for rendezvous_connect: first the host of
 * `advertised`, unless that is "". */
void addresses_to_connect(const struct addresses *addresses, const char *advertised, int port, char *text,
                          size_t capacity);

/* "10.0.0.7:4242,[fd00::7]:4242" */
void addresses_text(const struct addresses *addresses, int port, char text[ADDRESSES_TEXT]);

/* A range "20000-20099", or one number; "": any, 0 to 0. */
hvd_code ports_parse(const char *ports, int *first, int *last, hvd_status *status);
/* Returns the port of that range which belongs to a number: the number itself if it is in the range. Without
 * a range returns `otherwise`. */
int ports_pick(const char *ports, int64_t number, int otherwise);

/* Listens at one port of all addresses (none: all interfaces): the first that is free in `ports`. fds[] gets
 * as many descriptors as there are addresses, at least 1. */
hvd_code addresses_listen(const struct addresses *addresses, const char *ports, int fds[ADDRESSES_LIMIT],
                          int *port, hvd_status *status);

#endif
