/* remote.h - one host of the starter `agents`: the process that calls it (ssh or srun), if there is one, and
 * the connection to its agent. One thread, the loop's. */
#ifndef HVD_LAUNCH_REMOTE_H
#define HVD_LAUNCH_REMOTE_H

#include "clocks.h"
#include "frames.h"
#include "processes.h"

#include "base/topology.h"
#include "net/socket.h"

#define FAULT_LIMIT 4096

enum remote_state { REMOTE_CALLED, REMOTE_READY, REMOTE_PREPARED, REMOTE_STARTED, REMOTE_ENDED };

struct remote {
    struct table *table;
    int host; /* its index in table->hosts; -1: its ranks have gone to another entry, which is the same host
               */
    enum remote_state state;
    int64_t deadline; /* for the host to be prepared */
    bool leaving;     /* elastic jobs: it was asked to leave, and is released once no process is left there */
    bool released;    /* elastic jobs: no process follows, so that its end is no loss */
    bool reported;    /* elastic jobs: that its host is prepared, unusable or lost */
    bool closed;      /* elastic jobs: its handles are being closed */
    bool is_node;     /* it has connected by itself (nodes.h) */
    bool done;        /* a node: its processes have ended, and all that they have left has arrived */
    pid_t pid;        /* of the process (ssh or srun) that starts the agent */
    bool running;     /* that process */
    int exit_code, signal; /* of that process */
    struct frames frames;
    struct clock_look look;  /* at the clock of the host */
    int looks_left;          /* that follow the next one at once */
    off_t function_sent;     /* bytes of --task's function */
    struct output errors;    /* stderr of the process, and of the agent */
    struct wire_writer said; /* text of `errors` that has not been passed on */
    char identity[TOPOLOGY_HOST_LIMIT + 24];
    char launcher_address[SOCKET_TEXT], address[SOCKET_TEXT]; /* the two ends as its sshd sees them, or "" */
    char fault[FAULT_LIMIT];                                  /* "": none */
    int fault_code;                                           /* horovodrun's exit code */
};

static inline struct host *remote_host(const struct remote *remote)
{
    return &remote->table->hosts->list[remote->host];
}

/* Calls the host, or uses the connection that it has made: the frames of its agent are passed to `receive`,
 * whose frames->owner is the host. */
void remote_call(struct remote *remote,
                 void (*receive)(struct frames *frames, enum frame_kind kind, struct wire_reader *body));

/* Reads the release of its agent; returns false, and keeps the fault, if it is another one. */
bool remote_get_release(struct remote *remote, struct wire_reader *body);

/* Keeps the first fault for which the host can't be used. */
void remote_fail(struct remote *remote, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Shows lines of the agent and of ssh as they are. Before the agent runs, they are kept: they may explain why
 * it does not. */
void remote_show_errors(struct remote *remote);

/* Returns true if the process and its two streams have ended. */
bool remote_has_ended(const struct remote *remote);

/* Writes why a host that has ended did so. */
void remote_explain(struct remote *remote, char *text, size_t capacity);

void remote_end(struct remote *remote);  /* ends the stdin of its agent, which ends then */
void remote_free(struct remote *remote); /* after the loop has closed its handles */

#endif
