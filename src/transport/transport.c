/* transport.c - the table of transports, from transports.def, and the functions that work on every link.
 * Threads as in transport.h. */
#include "transport/transport.h"

#include "transport/peer.h"

#include <assert.h>

/* Ends in NULL. */
static const struct transport *rows[TRANSPORT_LIMIT + 1] = {
#define TRANSPORT(name) &transport_##name,
#include "transport/transports.def"
#undef TRANSPORT
};

const struct transport *transport_at(int row)
{
    return rows[row];
}

void transport_add(const struct transport *transport)
{
    int row = 0;
    while (rows[row])
        row++;
    assert(row < TRANSPORT_LIMIT);
    rows[row] = transport;
}

void link_await(struct link *link)
{
    if (link->awaited || !link->mesh)
        return;
    link->awaited = true;
    link->next_awaited = link->mesh->awaited;
    link->mesh->awaited = link;
}
