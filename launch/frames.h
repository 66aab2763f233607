/* frames.h - messages between the launcher and the agents on its hosts: frames of a stream (net/socket.h)
 * that begin with a kind. An agent receives them on stdin and sends them on stdout, to which a remote
 * shell may have written before. One thread, the loop's. */
#ifndef HVD_LAUNCH_FRAMES_H
#define HVD_LAUNCH_FRAMES_H

#include "hosts.h"

#include "net/addresses.h"
#include "net/socket.h"

#include <stdbool.h>
#include <uv.h>

enum frame_kind {
    /* launcher -> agent */
    FRAME_PREPARE = 1, /* u8 there was a --host-setup; folder, interface; environment; words of the command */
    FRAME_FUNCTION,    /* more bytes of what all ranks read on stdin (--task) */
    FRAME_SERVE,       /* secret, address to serve the rendezvous at or "" */
    FRAME_START,  /* id of the job, secret, rendezvous, host's name, size, verbose; places of the ranks */
    FRAME_INPUT,  /* stdin of rank 0; empty: its end */
    FRAME_CREDIT, /* rank, stream, bytes that it may print in addition */
    FRAME_SIGNAL, /* rank, signal */
    /* agent -> launcher */
    FRAME_READY,     /* release; identity of the host; address of ssh's client, of its server */
    FRAME_PREPARED,  /* exit code and text of a fault, or 0 */
    FRAME_SERVING,   /* address of the rendezvous; text of a fault, or "" */
    FRAME_STARTED,   /* rank, pid; exit code and text of a fault, or 0 */
    FRAME_OUTPUT,    /* rank, stream; bytes; none: its end */
    FRAME_ENDED,     /* rank, exit code, signal */
    FRAME_GONE,      /* rank: all of its process group has ended, too */
    FRAME_TAKEN,     /* bytes of FRAME_INPUT that rank 0 has taken */
    FRAME_SIGNALLED, /* signal that the agent got, and that is to end the job; answered by a heartbeat */
    /* both ways */
    FRAME_HEARTBEAT
};

#define FRAME_PREAMBLE     "\nhorovodrun agent\n" /* what an agent sends first; all before it is a shell's */
#define FRAME_LIMIT        ((uint32_t)64 << 20)   /* bytes of a frame for an agent */
#define FRAME_LIMIT_ANSWER ((uint32_t)256 << 10)  /* of one that an agent sends */
#define FRAME_WINDOW       65536                  /* bytes under way of one stream */

/* Times the limit of silence between ranks, which name the silent host soon after it. ssh's connection passes
 * nothing for up to twice as long as an outage, since TCP doubles the time between its retransmissions, and
 * up to four times as long if another outage hides the next one. The launcher names what it has lost before
 * agents that have lost it kill their ranks, which would look like a crash to all others. */
#define LAUNCHER_PATIENCE 4.5
#define AGENT_PATIENCE    5.0

/* One connection. */
struct frames {
    struct stream stream; /* the first member: what points to one points to the other */
    int to;               /* the file that is written to, or -1 */
    uv_poll_t readable, writable;
    bool open; /* more may come */
    bool awaits_preamble;
    uint32_t limit; /* of a frame that comes */
    int64_t last;   /* when bytes came, clock_now's */
    void *owner;
    void (*take)(struct frames *frames, enum frame_kind kind, struct wire_reader *body);
    void (*ended)(struct frames *frames); /* by the other end, by an error, or by what is no frame */
};

/* Takes over the two files. */
void frames_open(struct frames *frames, uv_loop_t *loop, int from, int to);
void frames_shut(struct frames *frames); /* the other end reads the end; zeroed memory is fine */
void frames_close(struct frames *frames);
void frames_free(struct frames *frames); /* after the loop has closed its handles */

/* Between the two the body is appended to frames->stream.out. */
size_t frame_begin(struct frames *frames, enum frame_kind kind);
void frame_end(struct frames *frames, size_t begin);
void frame_send(struct frames *frames, enum frame_kind kind);    /* without a body */
bool frames_silent(const struct frames *frames, double seconds); /* for so long; 0: never */
bool frames_idle(const struct frames *frames);                   /* all is written, or lost */
void frames_read(struct frames *frames);                         /* what has come */

/* ---- bodies of frames ------------------------------------------------------------------------------------
 */

#define JOB_ID_DIGITS     32
#define JOB_SECRET_DIGITS 64
#define JOB_ADDRESS_LIMIT ADDRESSES_TEXT
#define FOLDER_LIMIT      4096

/* FRAME_PREPARE: what the agent checks. */
struct preparation {
    bool setup; /* there was a --host-setup */
    char folder[FOLDER_LIMIT];
    char **environment; /* "NAME=value"; ends with NULL */
    char **command;
};

/* FRAME_START: which ranks it starts. */
struct start {
    char id[JOB_ID_DIGITS + 1], secret[JOB_SECRET_DIGITS + 1], rendezvous[JOB_ADDRESS_LIMIT];
    char host[sizeof((struct host *)0)->name];
    int size;
    bool verbose;
    struct slot *slots; /* [count], not 0 */
    int count;
};

void preparation_put(const struct preparation *preparation, struct wire_writer *body);
void start_put(const struct start *start, struct wire_writer *body);

/* Returns false if the body is malformed, or memory is out. What they fill in is zeroed before, and the
 * caller's to free, then too. */
bool preparation_take(struct preparation *preparation, struct wire_reader *body);
bool start_take(struct start *start, struct wire_reader *body);

void words_free(char **words); /* a list that ends with NULL, and its words; or NULL */

#endif
