/* lane_paths.c - finds a path to the peer for each interface of this host. No state; the thread that dials.
 */
#include "transport/lane_paths.h"

#include "transport/address_record.h"
#include "transport/lanes.h"

#include <string.h>

/* A network path to a peer, which leaves this host by an interface of its own. */
struct path_out {
    int address; /* by address_record_of_peer */
    struct route route;
};

/* Interfaces that this rank must not use have no address in its record; an address of this host leads to
 * itself. */
static bool find_route(const struct peer *peer, int row, const char *address, struct route *route)
{
    const struct mesh *hub = peer->mesh->hub;
    return transport_at(row)->route(address, route) && !address_record_has_address(address, route->source) &&
           address_record_has_address(hub->records[hub->rank].addresses[row], route->source);
}

static int find_interface(const struct path_out *paths, int count, const struct route *route)
{
    int i = 0;
    while (i < count && strcmp(paths[i].route.interface, route->interface) != 0)
        i++;
    return i;
}

/* Finds one path for each interface; none if the peer is on this host. */
static int find_paths(const struct peer *peer, int row, struct path_out paths[LANES_LIMIT])
{
    int count = 0;
    const char *address;
    for (int i = 0; count < LANES_LIMIT && (address = address_record_of_peer(peer, row, i)); i++) {
        struct path_out *path = &paths[count];
        path->address = i;
        if (find_route(peer, row, address, &path->route))
            count += find_interface(paths, count, &path->route) == count;
    }
    return count;
}

int lane_paths_count(const struct peer *peer, int row, int channel)
{
    struct path_out paths[LANES_LIMIT];
    int lanes = (int)peer->mesh->hub->settings->sockets_per_peer;
    if (!transport_at(row)->route || !channel || channel != peer->mesh->striped_channel)
        return 1;
    if (!lanes && address_record_of_peer(peer, row, 1))
        lanes = find_paths(peer, row, paths);
    return lanes ? lanes : 1;
}

int lane_paths_address(const struct peer *peer, int row, int lane)
{
    struct path_out paths[LANES_LIMIT];
    struct route first;
    int count = find_paths(peer, row, paths);
    if (!count || !find_route(peer, row, address_record_of_peer(peer, row, peer->address), &first))
        return peer->address;
    return paths[(find_interface(paths, count, &first) + lane - 1) % count].address;
}
