/* frames.h - messages between the launcher and the agents on its hosts: a length, a kind, a body. An agent
 * speaks over its stdin and stdout, which a remote shell may have written to before. One thread, the loop's.
 */
#ifndef HVD_LAUNCH_FRAMES_H
#define HVD_LAUNCH_FRAMES_H

#include "output.h"

enum frame_kind {
    /* launcher -> agent */
    FRAME_PREPARE = 1, /* u8 there was a --host-setup; folder, interface; environment; words of the command */
    FRAME_SERVE,       /* secret, address to serve the rendezvous at or "" */
    FRAME_START,  /* id of the job, secret, rendezvous, host's name, size, verbose; places of the ranks */
    FRAME_INPUT,  /* stdin of rank 0; empty: its end */
    FRAME_CREDIT, /* rank, stream, bytes that it may print in addition */
    FRAME_SIGNAL, /* rank, signal */
    /* agent -> launcher */
    FRAME_READY,    /* release; identity of the host; address of ssh's client, of its server */
    FRAME_PREPARED, /* exit code and text of a fault, or 0 */
    FRAME_SERVING,  /* address of the rendezvous; text of a fault, or "" */
    FRAME_STARTED,  /* rank, pid; exit code and text of a fault, or 0 */
    FRAME_OUTPUT,   /* rank, stream; bytes; none: its end */
    FRAME_ENDED,    /* rank, exit code, signal */
    FRAME_GONE,     /* rank: all of its process group has ended, too */
    FRAME_TAKEN,    /* bytes of FRAME_INPUT that rank 0 has taken */
    /* both ways */
    FRAME_HEARTBEAT
};

#define FRAME_PREAMBLE "\nhorovodrun agent\n" /* what an agent sends first; all before it is a shell's */
#define FRAME_LIMIT    ((uint32_t)64 << 20)
#define FRAME_WINDOW   65536 /* bytes under way of one stream */

#define HEARTBEAT_PERIOD  (3 * CLOCK_SECOND)
#define HEARTBEAT_TIMEOUT (30 * CLOCK_SECOND) /* without a frame the other end is lost */

/* Between the two the body is appended to sink->waiting. */
size_t frame_begin(struct sink *sink, enum frame_kind kind);
void frame_end(struct sink *sink, size_t begin);
void frame_send(struct sink *sink, enum frame_kind kind); /* without a body */

/* Where frames come from. The functions may end the source. */
struct frame_source {
    uv_pipe_t pipe;
    struct wire_writer in; /* not yet taken */
    bool open;
    bool awaits_preamble;
    int64_t last; /* when bytes came, clock_now's */
    void *owner;
    void (*take)(struct frame_source *source, enum frame_kind kind, struct wire_reader *body);
    void (*ended)(struct frame_source *source); /* closed by the other end, or what came is no frame */
};

void frame_source_open(struct frame_source *source, uv_loop_t *loop, int file); /* takes over the file */
void frame_source_close(struct frame_source *source);
void frame_source_free(struct frame_source *source); /* after the loop has closed the pipe */

#endif
