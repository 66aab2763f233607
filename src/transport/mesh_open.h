/* mesh_open.h - opens a mesh: connects this rank to its peers. Blocks until the deadline; any thread. */
#ifndef HVD_TRANSPORT_MESH_OPEN_H
#define HVD_TRANSPORT_MESH_OPEN_H

#include "base/settings.h"
#include "rendezvous/client.h"
#include "transport/mesh.h"

struct mesh_config {
    struct mesh *hub; /* NULL: the mesh will be a hub itself; otherwise it must be closed before its hub */
    unsigned number;  /* of the mesh: equal on all its ranks, different for each mesh of a hub */
    void *owner;      /* for mesh_find and mesh_next_resumed */
    const struct settings *settings; /* rank, size, job, secret, transport, ...; a hub's must outlive it */
    struct rendezvous_client *rendezvous; /* NULL when size is 1; used during mesh_open only */
    uint32_t generation;
    const int *peers; /* the other ranks of the mesh, ascending */
    int peer_count;
    const int *neighbours; /* those to connect to at once, ascending; the relation is symmetric. NULL: all */
    int neighbour_count;
    int channels;        /* links per peer */
    int striped_channel; /* channel of long messages, striped if there are several network paths; 0: none */
    int64_t deadline;
    const struct interrupt *interrupt; /* NULL: never */
};

/* Connects to the neighbours, authenticates both ways, and sets up the links: with each peer by the first
 * transport of the table that works for both. The text of an error names the peer and what to look at. All
 * ranks of the job open a hub together; it publishes this rank's addresses, and accepts connections for all
 * its meshes as long as it is open: meanwhile mesh_poll must be called there. Another mesh may be opened by
 * any thread; then call mesh_attach (not needed for a hub). */
hvd_code mesh_open(const struct mesh_config *config, struct mesh **mesh, hvd_status *status);

/* Reports that this rank cannot open the mesh at all, so that its peers need not wait for it. */
void mesh_open_failed(const struct mesh_config *config, const hvd_status *cause);

#endif
