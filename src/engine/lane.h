/* lane.h - one process set at work: its coordinator, the edges of its tree, and its channel of data. Driver
 * only. */
#ifndef HVD_ENGINE_LANE_H
#define HVD_ENGINE_LANE_H

#include "coordinate/coordinator.h"
#include "engine/edge.h"
#include "horovod.h"

struct hvd_context;

struct lane {
    struct hvd_context *context;
    struct coordinator *coordinator;
    struct edge *edges; /* to every peer of the mesh */
    int edge_count;
    int channel;          /* of its data */
    uint64_t unnamed[16]; /* per operation: how many unnamed requests were taken */
    bool active;          /* inputs since the last flush */
    int64_t next_flush;   /* clock time at which the coordinator wants one without inputs */
};

/* Every rank of the context is a member. Takes the tree over when it succeeds. */
hvd_code lane_open(struct lane *lane, struct hvd_context *context, struct tree_node *tree,
                   hvd_status *status);
void lane_close(struct lane *lane); /* safe on a zeroed lane */

/* Names the request if it has no name, and gives it to the coordinator; a refusal finishes the handle. */
void lane_take(struct lane *lane, struct hvd_handle *handle);

/* Sends what waits on the edges; true when any byte moved. */
bool lane_flush(struct lane *lane);

/* Takes in what arrived, lets the coordinator act, sends. True when anything moved. */
bool lane_progress(struct lane *lane);

#endif
