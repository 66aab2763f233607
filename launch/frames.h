/* frames.h - messages between the launcher and the agents on its hosts, and between the launcher and
 * `horovodrun --status`: frames of a stream (net/socket.h) that begin with a kind. An agent receives them on
 * stdin and sends them on stdout, to which a remote shell may have written before. One thread, the loop's. */
#ifndef HVD_LAUNCH_FRAMES_H
#define HVD_LAUNCH_FRAMES_H

#include "hosts.h"

#include "net/addresses.h"
#include "net/socket.h"
#include "watch/history.h"

#include <stdbool.h>
#include <uv.h>

/* Numbers stay the same in all releases, so that FRAME_READY of another one is understood. */
enum frame_kind {
    /* launcher -> agent */
    FRAME_PREPARE = 1,  /* whether there was a --host-setup (u8); folder; environment; words of the command;
                           address and secret of the rendezvous of an elastic job, or "" */
    FRAME_FUNCTION = 2, /* more bytes of what all ranks read on stdin (--task) */
    FRAME_SERVE = 3,    /* secret, address to serve the rendezvous at or "" */
    FRAME_EPOCH = 18, /* id of the job, number; slot and rank of each process: assignments to be published */
    FRAME_JOB = 19,   /* what all processes of the host have in common, and how many it is to start */
    FRAME_START = 4,  /* slot, epoch, size of the job, place of the rank: one process to be started */
    FRAME_INPUT = 5,  /* stdin of rank 0; empty: its end */
    FRAME_CREDIT = 6, /* slot, stream, bytes that it may print in addition */
    FRAME_SIGNAL = 7, /* slot, signal */
    FRAME_LOOK = 21,  /* number of the look at all ranks of the host, enum stacks */
    FRAME_RECORD_QUERY = 31, /* number of the question; window (watch/history.h): which records are wanted */
    FRAME_RELEASE = 35,      /* no more processes are started: the agent ends once all have ended */
    /* launcher -> agent of a node, which has connected by itself */
    FRAME_WAITING = 36,      /* nodes are missing */
    FRAME_WELCOME = 37,      /* all nodes are there; answered by FRAME_READY */
    FRAME_PREPARE_NODE = 38, /* as FRAME_PREPARE; environment, folder and command are those of the node */
    FRAME_SAID = 39,         /* a line that the launcher has written */
    FRAME_OUTCOME = 40,      /* exit code of the job, which has ended */
    /* agent -> launcher */
    FRAME_READY = 8,      /* release; identity of the host; address of ssh's client, of its server */
    FRAME_PREPARED = 9,   /* exit code and text of a fault, or 0 */
    FRAME_SERVING = 10,   /* address of the rendezvous; text of a fault, or "" */
    FRAME_ASSIGNED = 20,  /* the assignments are published; text of a fault, or "" */
    FRAME_STARTED = 11,   /* slot, pid; exit code and text of a fault, or 0 */
    FRAME_OUTPUT = 12,    /* slot, stream; bytes; none: its end */
    FRAME_ENDED = 13,     /* slot, exit code, signal, enum killer */
    FRAME_GONE = 14,      /* slot: its whole process group has ended */
    FRAME_TAKEN = 15,     /* bytes of FRAME_INPUT that rank 0 has taken */
    FRAME_SIGNALLED = 16, /* signal that the agent got, and that is to end the job; answered by a heartbeat */
    FRAME_RANK_VIEW = 22, /* number of the look; the view of a rank (rank_view.h) */
    FRAME_LOOKED = 23,    /* number of the look: all views were sent */
    FRAME_FAULT = 24,     /* a record that a rank of the job has published (base/fault.h) */
    FRAME_STALLED = 29,   /* a rank of the host has reported that some ranks wait for others */
    FRAME_RECORDS = 30,   /* slot, number of the first record; a part of what its rank has recorded
                             (watch/history.h). To --status without the two numbers: of the last FRAME_TRACED */
    FRAME_RECORD_QUERIED = 32, /* number of the question: all records were sent */
    FRAME_NODE = 41, /* first one of a node: release; its number, number of nodes and of its ranks; host */
    FRAME_DONE = 42, /* of a node: all its processes have ended, and all that they have left was sent */
    /* both ways */
    FRAME_HEARTBEAT = 17, /* when it left the launcher; in the answer also the time of the agent */
    /* --status -> launcher */
    FRAME_ASK = 25, /* release, enum stacks (u8) */
    FRAME_ASK_RECORDS =
        33, /* release; window: answered by RECEIVED, by TRACED and RECORDS of each rank, and LOOKED */
    /* launcher -> --status: RECEIVED at once, then JOB_VIEW and its RANK_VIEWs for each job, and LOOKED at
       the end */
    FRAME_RECEIVED = 28,
    FRAME_JOB_VIEW = 26, /* id, name, age of the job and of a change of its ranks, least ranks; hosts: name,
                            whether it answers, seconds of silence */
    FRAME_REFUSED = 27,  /* why there is no answer */
    FRAME_TRACED =
        34 /* rank; host, and by how much its clock is ahead; when the process has ended, and how */
};

#define FRAME_PREAMBLE                                                                                       \
    "\nhorovodrun agent\n" /* an agent sends it first; a shell may have written before it */
#define FRAME_LIMIT         ((uint32_t)64 << 20)  /* bytes of a frame for an agent */
#define FRAME_LIMIT_ANSWER  ((uint32_t)256 << 10) /* of one that an agent sends */
#define FRAME_WINDOW        65536                 /* bytes under way of one stream */
#define FRAME_RECORDS_LIMIT 65000                 /* bytes of records in a frame */

/* Multiples of the limit of silence between ranks, which name the silent host soon after that limit. ssh's
 * connection passes nothing for up to twice as long as an outage, since TCP doubles the time between its
 * retransmissions, and up to four times as long if another outage hides the next one. The launcher names a
 * lost host before that host's agent kills its ranks, which would look like a crash to all others. */
#define LAUNCHER_PATIENCE 4.5
#define AGENT_PATIENCE    5.0

/* One connection. */
struct frames {
    struct stream stream; /* the first member: a pointer to one is a pointer to the other */
    int to;               /* the file that is written to, or -1 */
    uv_poll_t readable, writable;
    int handles; /* of the two, those that the loop has not let go of */
    bool open;   /* more may arrive */
    bool awaits_preamble;
    uint32_t limit; /* of a frame that arrives */
    int64_t last;   /* when bytes arrived, clock_now's; time in which this process stood still is left out */
    int64_t awake;  /* of the last frames_awake; at first of the start */
    void *owner;
    void (*receive)(struct frames *frames, enum frame_kind kind, struct wire_reader *body);
    void (*ended)(struct frames *frames); /* called at the end of the stream, at an error, or for bytes that
                                             are no frame */
    void (*released)(struct frames *frames); /* called once the loop no longer uses the memory; or NULL */
};

/* Takes ownership of the two files. */
void frames_open(struct frames *frames, uv_loop_t *loop, int from, int to);
/* Takes ownership of a stream over a socket, and of its descriptor. Call frames_read next: TLS may hold
 * frames that no poller reports. */
void frames_open_stream(struct frames *frames, uv_loop_t *loop, const struct stream *stream);
void frames_shut(struct frames *frames); /* the other end reads the end; zeroed memory is fine */
void frames_close(struct frames *frames);
void frames_free(struct frames *frames); /* after the loop has closed its handles */

/* Between the two calls the body is appended to frames->stream.out. */
size_t frame_begin(struct frames *frames, enum frame_kind kind);
void frame_end(struct frames *frames, size_t begin);
/* Sends a frame of `count` numbers. */
void frame_send_numbers(struct frames *frames, enum frame_kind kind, int count, const int *numbers);
void frame_send(struct frames *frames, enum frame_kind kind);    /* without a body */
bool frames_silent(const struct frames *frames, double seconds); /* for that long; 0: never */
/* Call it every `seconds`, before frames_silent: a longer time between two calls counts as `seconds`. This
 * process stood still, and has neither read what arrived nor asked for anything. */
void frames_awake(struct frames *frames, double seconds);
bool frames_idle(const struct frames *frames); /* all is written, or lost */
void frames_read(struct frames *frames);       /* handles the frames that have arrived */
/* Handles them if there are any: in a timer, which libuv calls before it reads. */
void frames_catch_up(struct frames *frames);

/* ---- bodies of frames ------------------------------------------------------------------------------------
 */

#define JOB_ID_DIGITS     32
#define JOB_SECRET_DIGITS 64
#define JOB_ADDRESS_LIMIT ADDRESSES_TEXT
#define FOLDER_LIMIT      4096
#define SLOT_NAME_LIMIT   16

/* FRAME_PREPARE: what the agent checks. */
struct preparation {
    bool setup; /* there was a --host-setup */
    char folder[FOLDER_LIMIT];
    char **environment; /* "NAME=value"; ends with NULL */
    char **command;
    char rendezvous[JOB_ADDRESS_LIMIT]; /* of an elastic job, which the host must reach; otherwise "" */
    char secret[JOB_SECRET_DIGITS + 1];
};

#define RELEASE_LIMIT 64

/* FRAME_NODE. */
struct node_hello {
    char release[RELEASE_LIMIT];
    int index, count, ranks;
    char host[sizeof((struct host *)0)->name];
};

/* FRAME_EPOCH: which slot is which rank. */
struct epoch {
    char job[JOB_ID_DIGITS + 1];
    int number;
    hvd_assignment *assignments; /* [count] */
    int count;
    char (*names)[SLOT_NAME_LIMIT]; /* [count]: the slots of the assignments */
};

/* FRAME_JOB: what all processes of a host have in common. */
struct job_terms {
    char id[JOB_ID_DIGITS + 1], secret[JOB_SECRET_DIGITS + 1], rendezvous[JOB_ADDRESS_LIMIT];
    char host[sizeof((struct host *)0)->name];
    bool verbose;
    int count; /* number of processes that the agent starts; it ends once all have ended. 0: those of an
                  elastic job, until FRAME_RELEASE */
    struct history_window at_end, at_failure; /* the records that the agent then sends; most 0: none */
};

/* FRAME_START: one process. */
struct start {
    int slot, epoch, size;
    struct place place; /* its host is 0, the agent's own */
};

void preparation_put(const struct preparation *preparation, struct wire_writer *body);
void node_hello_put(const struct node_hello *hello, struct wire_writer *body);
void epoch_put(const struct epoch *epoch, struct wire_writer *body);
void job_terms_put(const struct job_terms *terms, struct wire_writer *body);
void start_put(const struct start *start, struct wire_writer *body);

/* Each returns false if the body is malformed, or memory is out. Preparation and epoch are zeroed before, and
 * the caller frees their lists, also after a failure. */
bool preparation_get(struct preparation *preparation, struct wire_reader *body);
bool node_hello_get(struct node_hello *hello, struct wire_reader *body);
bool epoch_get(struct epoch *epoch, struct wire_reader *body);
void window_put(const struct history_window *window, struct wire_writer *body);
bool window_get(struct history_window *window, struct wire_reader *body);
bool job_terms_get(struct job_terms *terms, struct wire_reader *body);
bool start_get(struct start *start, struct wire_reader *body);

/* Makes room for `count` assignments, whose slots are set by epoch_set. Returns false if memory is out. */
bool epoch_init(struct epoch *epoch, int count);
void epoch_set(struct epoch *epoch, int index, int slot, int rank);
void epoch_free(struct epoch *epoch);

void words_free(char **words); /* a list that ends with NULL, and its words; or NULL */

#endif
