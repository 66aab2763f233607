/* mesh.h - this rank's links to its peers: how they are opened, how a thread sleeps until one of them has
 * news, and which peer is lost. There is one mesh per process set (engine/comm.h). The first mesh of a
 * context is the hub of the others: its pollers, its event, its acceptor and its doorbells serve them all.
 * Threads as in transport.h.
 *
 * mesh_open connects only to the neighbours in the coordinator's tree and in the rings. Links to another peer
 * are opened when mesh_link first asks for one: the higher rank dials, and the lower rank's acceptor is open
 * as long as the hub, so either may need the link first. mesh_poll drives this; only the steps of that link
 * wait. If it fails the peer is lost, with the cause that mesh_open would report. The rank that dials has
 * start_timeout_seconds; to the other rank a late link is the same as late data. */
#ifndef HVD_TRANSPORT_MESH_H
#define HVD_TRANSPORT_MESH_H

#include "transport/transport.h"

struct mesh;

/* Closes all links immediately, without the shutdown handshake. NULL is fine. */
void mesh_close(struct mesh *mesh);

/* In the child after fork: closes the descriptors and forgets the memory, without touching shared state. */
void mesh_abandon(struct mesh *mesh);

/* Ranks this one has links to, ascending: the first above `rank` (-1 to start with), or -1. */
int mesh_next_peer(const struct mesh *mesh, int rank);

/* Returns the link to a peer of an attached mesh. NULL: not a peer, or its links are still being opened,
 * which the first call starts. */
struct link *mesh_link(struct mesh *mesh, int peer, int channel);
const char *mesh_transport_name(const struct mesh *mesh, int peer); /* "none": no links */

/* Describes a peer in `who`, and returns the state of its process as a letter of ps(1); '\0': it cannot be
 * seen from here. */
#define MESH_PEER_TEXT 128
char mesh_peer_state(const struct mesh *mesh, int peer, char *who, size_t capacity);
const char *mesh_peer_host(const struct mesh *mesh, int peer); /* its name; NULL: not a peer */

/* From now on the end of this peer's connection is no loss: the shutdown handshake is done. */
void mesh_expect_end(struct mesh *mesh, int peer);

/* Returns the next peer whose connection has ended without the shutdown handshake, with the reason in
 * `status` (code HVD_PEER_LOST), or -1. Each peer is reported once. A neighbour is reported when all that it
 * sent on channel 0 was read, since it may have sent the cause of its end; another peer a second later, since
 * its own neighbours know the cause. */
int mesh_next_lost(struct mesh *mesh, hvd_status *status);

/* Called periodically. Returns a peer whose host has acknowledged nothing on one of its connections for
 * `limit` calls in a row, and writes between which addresses that is; -1: none. The peer may be alive and
 * reachable by another network path. */
int mesh_find_broken(struct mesh *mesh, unsigned limit, char *path, size_t capacity);

/* Registers the mesh with its hub: from here on its news end mesh_sleep and resume it, and mesh_find finds
 * it. */
hvd_code mesh_attach(struct mesh *mesh, hvd_status *status);

/* Makes mesh_sleep return while the descriptor is readable; any thread. False: errno. */
bool mesh_watch(struct mesh *mesh, int descriptor);
void mesh_unwatch(struct mesh *mesh, int descriptor);

/* The owner of the attached mesh of this number, or NULL. */
void *mesh_find(const struct mesh *hub, unsigned number);

/* Handles, without blocking, the news that the kernel has (sockets, new connections, ends of connections), of
 * all meshes of the hub. */
void mesh_poll(struct mesh *hub);

/* When mesh_poll has something to do even if nothing arrives; CLOCK_NEVER: never. */
int64_t mesh_deadline(const struct mesh *hub);

/* Returns true if the mesh reports on which links of channel 0 bytes, or the peer's end, may have arrived.
 * With few neighbours it does not: checking their links directly costs less, in each turn and, by link_await,
 * when arming. */
bool mesh_reports(const struct mesh *mesh);

/* Returns the peers with reported news since the last call: one bit per peer, by index among the ranks of the
 * mesh modulo the number of bits. Bytes that are left unread are reported again with the next bytes, or by
 * mesh_report. */
#define MESH_NEWS_BITS 256
void mesh_collect_news(struct mesh *mesh, uint64_t news[MESH_NEWS_BITS / 64]);
void mesh_report(struct mesh *mesh, int index);

/* A suspended mesh costs nothing: it is neither polled nor armed, and its links must not be used. False if
 * there is news: it stays active. News resume it, and so does mesh_resume. */
bool mesh_suspend(struct mesh *mesh);
void mesh_resume(struct mesh *mesh);

/* mesh_holds_memory returns true if a suspended mesh has memory that was allocated on demand;
 * mesh_return_memory returns it to the system. False: a peer has not read everything yet, try again later. */
bool mesh_holds_memory(const struct mesh *mesh);
bool mesh_return_memory(struct mesh *mesh);

/* Returns the owner of a mesh that news have resumed since the last call, or NULL, which costs one load. */
void *mesh_next_resumed(struct mesh *hub);

/* Sleeping takes three steps, so that no wake-up is lost:
 *   mesh_arm     peers and mesh_wake send wake-ups; false if there is news already (then do not sleep)
 *   mesh_sleep   blocks until a wake-up, a socket's news, or the deadline (clock_now's; CLOCK_NEVER)
 *   mesh_disarm  peers no longer send wake-ups
 * Every mesh that is not suspended is armed; mesh_sleep, mesh_mask and mesh_wake are for a hub.
 * mesh_sleep may be called without the progress lock; so the progress thread stays inside it while a waiting
 * caller works, and only arm and disarm change hands. A mesh_disarm during a sleep masks what the sockets
 * report, as mesh_mask does: they end no sleep until the next mesh_arm.
 * A thread that sleeps and works in turns leaves them as they are, which saves two system calls. */
bool mesh_arm(struct mesh *mesh);

void mesh_sleep(struct mesh *hub, int64_t deadline);
void mesh_disarm(struct mesh *mesh);
void mesh_mask(struct mesh *hub);
void mesh_wake(struct mesh *hub); /* any thread; ends the present or next mesh_sleep */

/* Called when this rank starts to wait on a core. Returns true if a peer was the last to wait there, and may
 * need the core to continue. Any thread. */
bool mesh_shares_core(struct mesh *mesh, int core);

/* Moves the calling thread to a core where no peer waits, if there is one and a peer of lower rank, which
 * stays, waits on this one. */
void mesh_leave_core(struct mesh *mesh, int core);

#endif
