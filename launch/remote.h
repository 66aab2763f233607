/* remote.h - the hosts of a job and their agents, for the three files that are the launcher's side of them:
 * remote.c, prepare.c, input.c. */
#ifndef HVD_LAUNCH_REMOTE_H
#define HVD_LAUNCH_REMOTE_H

#include "base/socket.h"
#include "base/topology.h"
#include "frames.h"
#include "job.h"
#include "messages.h"

#define FAULT_LIMIT 4096

enum remote_state { REMOTE_CALLED, REMOTE_READY, REMOTE_PREPARED, REMOTE_STARTED, REMOTE_ENDED };

/* One host. */
struct remote {
    struct job *job;
    struct host *host; /* in job->hosts; NULL: its ranks have gone to another entry, which is the same host */
    enum remote_state state;
    pid_t pid;             /* of the process that calls it */
    bool running;          /* the process */
    int exit_code, signal; /* of it */
    struct frames frames;
    off_t function_sent;     /* bytes of --task's function */
    struct output errors;    /* stderr of the process, and of the agent */
    struct wire_writer said; /* on it, not yet passed on */
    char identity[TOPOLOGY_HOST_LIMIT + 24];
    char launcher_address[SOCKET_TEXT], address[SOCKET_TEXT]; /* the two ends as its sshd sees them, or "" */
    char fault[FAULT_LIMIT];                                  /* "": none */
    int fault_code;                                           /* horovodrun's exit code */
};

struct remotes {
    struct remote *list; /* [count] in the order that the user gave */
    int count;
    struct remote **of_host; /* by index in job->hosts, once entries that name one host are one */
    uv_timer_t timer;
    int64_t deadline; /* for all to be prepared */
    int64_t next_heartbeat;
    off_t function_size;       /* of --task; 0: there is none */
    char folder[FOLDER_LIMIT]; /* in which ranks start */
    bool serving;              /* the first host has been sent FRAME_SERVE */
    bool started;              /* all hosts have been sent their ranks */
    uv_poll_t input;
    bool input_polled, input_ended;
    size_t input_credit;
};

/* The first fault of a host counts. */
void remote_fail(struct remote *remote, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends its agent, if there is one. */
void remote_end(struct remote *remote);
/* What an agent sends. */
void remote_take(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

/* Once the start has begun. */
static inline struct remote *remote_of(const struct rank *rank)
{
    return rank->job->remotes->of_host[rank->slot->host];
}

void remote_pass_on_errors(struct remote *remote);

/* ---- prepare.c ----------------------------------------------------------------------------------------- */

void prepare_take_ready(struct remote *remote, struct wire_reader *body);
void prepare_take_prepared(struct remote *remote, struct wire_reader *body);
void prepare_take_serving(struct remote *remote, struct wire_reader *body);
/* Sends on of the function as much as goes without waiting. */
void prepare_send_function(struct remote *remote);
/* Goes on with the start as far as what has come allows. */
void prepare_advance(struct job *job);

/* ---- input.c ------------------------------------------------------------------------------------------- */

void input_open(struct job *job);  /* when ranks have been started */
void input_watch(struct job *job); /* after each turn of the loop */

#endif
