/* output.h - the output of ranks, which is read from their pipes or sent by an agent. It is passed on as
 * whole lines with the rank's prefix to a sink, the launcher's own stdout or stderr, and copied to files. One
 * thread, the loop's. */
#ifndef HVD_LAUNCH_OUTPUT_H
#define HVD_LAUNCH_OUTPUT_H

#include "base/wire.h"
#include "horovod.h"

#include <uv.h>

/* Accepts any text, and writes as much of it as it can without waiting, in order. The loop writes the rest
 * when there is room, so that a slow reader never stops the loop. */
struct sink {
    uv_poll_t room;
    int file;
    bool owned;  /* the file is a second opening of the one that was given */
    bool polled; /* it can be full; otherwise it is a regular file */
    bool colour; /* a terminal with colours */
    int error;   /* errno of the write that failed; text is dropped from then on */
    struct wire_writer waiting;
};

void sink_open(struct sink *sink, uv_loop_t *loop, int file);
void sink_adopt(struct sink *sink, uv_loop_t *loop, int file); /* also takes ownership of the file */
void sink_close(struct sink *sink); /* drops waiting text; only for a sink of sink_adopt, or zeroed memory */
void sink_free(struct sink *sink);  /* after the loop has closed its handles */
void sink_put(struct sink *sink, const void *bytes, size_t length);
void sink_flush(struct sink *sink);      /* starts to write what was put; call it after the last put */
bool sink_full(const struct sink *sink); /* if so, put no more than a line */
bool sink_idle(const struct sink *sink); /* all is written */

/* Where a rank writes to. */
enum {
    OUTPUT_STDOUT,
    OUTPUT_STDERR,
    OUTPUT_RESULT /* the descriptor behind the two, with --task */,
    OUTPUTS
};

#define OUTPUT_LINE_BYTES 65536 /* a longer line is cut, between characters */
#define OUTPUT_LAST_LINES 20

/* What one rank writes to one of them. */
struct output {
    uv_pipe_t pipe;
    struct sink *sink; /* NULL: it is no text, and only copied */
    int rank, index;
    bool timestamp; /* in front of the prefix */
    bool open;      /* the rank, or a child of it, may still write */
    bool paused;    /* because the sink is full, or the credit used up */
    bool closing;   /* the loop still has the pipe, which is closed */
    bool fed;       /* by output_feed: there is no pipe */
    size_t owed;    /* bytes that were fed, for which no credit was given yet */
    void (*forward)(struct output *output, const void *bytes,
                    size_t length); /* replaces the sink; 0: the end */
    void *owner;                    /* for it */
    size_t credit;                  /* bytes that may be forwarded */
    bool after_return;              /* the last line ended in '\r': a '\n' that follows belongs to it */
    int file;                       /* the copy, or -1 */
    int file_error;                 /* errno of the write that ended the copy, or 0 */
    char *line;                     /* [OUTPUT_LINE_BYTES], not yet passed on */
    size_t used;
    bool in_traceback;             /* the last line belonged to one of Python, before its last line */
    char *last[OUTPUT_LAST_LINES]; /* a ring */
    unsigned lines;
};

/* `child` gets the end that the rank writes to; close it once the rank has it. */
hvd_code output_open(struct output *output, uv_loop_t *loop, int *child, hvd_status *status);
/* For output that arrives by output_feed instead of a pipe. */
hvd_code output_open_fed(struct output *output, hvd_status *status);
void output_feed(struct output *output, const void *bytes, size_t length);
const char *output_name(const struct output *output); /* "stdout" */
/* Copies to a new file. */
hvd_code output_copy_to(struct output *output, const char *path, hvd_status *status);
bool output_full(const struct output *output); /* if so, nothing may be added */
void output_resume(struct output *output); /* continues to read if it was paused and no longer needs to be */
void output_close(struct output *output);  /* passes on an unfinished line and reads no more */
void output_free(struct output *output);   /* after the loop has closed the pipe */

/* Returns line `index` of the last ones, oldest first; NULL after the newest. */
const char *output_last_line(const struct output *output, unsigned index);

#endif
