/* agents.h - the starter `agents`: the hosts of a job, the connections to them, and processes there. One
 * thread, the loop's. */
#ifndef HVD_LAUNCH_AGENTS_H
#define HVD_LAUNCH_AGENTS_H

#include "frames.h"
#include "processes.h"

#include "base/topology.h"
#include "net/socket.h"

#define FAULT_LIMIT 4096

enum remote_state { REMOTE_CALLED, REMOTE_READY, REMOTE_PREPARED, REMOTE_STARTED, REMOTE_ENDED };

/* One host. */
struct remote {
    struct table *table;
    struct host
        *host; /* in table->hosts; NULL: its ranks have gone to another entry, which is the same host */
    enum remote_state state;
    pid_t pid;             /* of the process (ssh or srun) that starts the agent */
    bool running;          /* that process */
    int exit_code, signal; /* of that process */
    struct frames frames;
    off_t function_sent;     /* bytes of --task's function */
    struct output errors;    /* stderr of the process, and of the agent */
    struct wire_writer said; /* text of `errors` that has not been passed on */
    char identity[TOPOLOGY_HOST_LIMIT + 24];
    char launcher_address[SOCKET_TEXT], address[SOCKET_TEXT]; /* the two ends as its sshd sees them, or "" */
    char fault[FAULT_LIMIT];                                  /* "": none */
    int fault_code;                                           /* horovodrun's exit code */
};

struct agents {
    struct remote *list; /* [count] in the order that the user gave */
    int count;
    struct remote **of_host; /* by index in table->hosts, once entries that name one host are one */
    uv_timer_t timer;
    int64_t deadline; /* for all to be prepared */
    int64_t next_heartbeat;
    off_t function_size;       /* of --task; 0: there is none */
    char folder[FOLDER_LIMIT]; /* in which ranks start */
    bool assigning;            /* the first host has been sent FRAME_SERVE and FRAME_EPOCH */
    bool started;              /* the assignments are published, and all processes started */
    uv_poll_t input;
    bool input_polled, input_ended;
    size_t input_credit;
};

/* Handles a frame of the agent. */
void remote_take(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

#endif
