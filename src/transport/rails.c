/* rails.c - see opening.h. The dialling end only. */
#include "transport/lanes.h"
#include "transport/opening.h"

#include <string.h>

struct rail {
    int address; /* by record_address, of the peer */
    struct route route;
};

/* Interfaces that this rank must not use have no address in its record; an address of this host leads to
 * itself. */
static bool find_route(const struct peer *peer, int row, const char *address, struct route *route)
{
    const struct mesh *hub = peer->mesh->hub;
    return transport_at(row)->route(address, route) && !record_has_address(address, route->source) &&
           record_has_address(hub->records[hub->rank].addresses[row], route->source);
}

static int find_interface(const struct rail *rails, int count, const struct route *route)
{
    int i = 0;
    while (i < count && strcmp(rails[i].route.interface, route->interface) != 0)
        i++;
    return i;
}

static const char *address_of(const struct peer *peer, int row, int index)
{
    const struct mesh *hub = peer->mesh->hub;
    return record_address(&hub->records[peer->rank], &hub->records[hub->rank], row, index);
}

/* One for each interface; none where the peer is on this host. */
static int find_rails(const struct peer *peer, int row, struct rail rails[LANES_LIMIT])
{
    int count = 0;
    const char *address;
    for (int i = 0; count < LANES_LIMIT && (address = address_of(peer, row, i)); i++) {
        struct rail *rail = &rails[count];
        rail->address = i;
        if (find_route(peer, row, address, &rail->route))
            count += find_interface(rails, count, &rail->route) == count;
    }
    return count;
}

int rails_lanes(const struct peer *peer, int row, int channel)
{
    struct rail rails[LANES_LIMIT];
    int lanes = (int)peer->mesh->hub->settings->sockets_per_peer;
    if (!transport_at(row)->route || !channel || channel != peer->mesh->striped_channel)
        return 1;
    if (!lanes && address_of(peer, row, 1))
        lanes = find_rails(peer, row, rails);
    return lanes ? lanes : 1;
}

/* The rails take turns, from that of the first lane on. */
int rails_address(const struct peer *peer, int row, int lane)
{
    struct rail rails[LANES_LIMIT];
    struct route first;
    int count = find_rails(peer, row, rails);
    if (!count || !find_route(peer, row, address_of(peer, row, peer->address), &first))
        return peer->address;
    return rails[(find_interface(rails, count, &first) + lane - 1) % count].address;
}
