/* status_server.h - answers `horovodrun --status` of this user on this host, in the launcher: by a local
 * socket whose name says user and job. One thread, the loop's. */
#ifndef HVD_LAUNCH_STATUS_SERVER_H
#define HVD_LAUNCH_STATUS_SERVER_H

#include "monitor.h"
#include "record_query.h"

/* The name of the socket: the user's id, then the job's. */
#define STATUS_SOCKET "horovod/%ld/"

struct status_client;

struct status_server {
    struct monitor *monitor;
    int listener; /* -1: there is none */
    uv_poll_t poll;
    uv_timer_t timer; /* while there are clients */
    struct status_client *clients[MONITOR_CLIENTS];
};

/* Answers a client, whose connection it takes ownership of. */
void status_server_admit(struct status_server *server, int fd);

/* Listens. If that is not possible, --status shows what the ranks of this host have written. */
void status_server_open(struct status_server *server, struct monitor *monitor);
void status_server_close(struct status_server *server); /* before the loop closes its handles */
void status_server_free(struct status_server *server);  /* afterwards */

#endif
