/* output.h - what one rank prints on one stream: read from a pipe, passed on as whole lines behind the
 * rank's prefix, kept in a file as it came. One thread, the loop's. */
#ifndef HVD_LAUNCH_OUTPUT_H
#define HVD_LAUNCH_OUTPUT_H

#include "horovod.h"
#include "sink.h"

#define OUTPUT_LINE_BYTES 65536 /* a longer line is cut */
#define OUTPUT_LAST_LINES 20

struct output {
    uv_pipe_t pipe;
    struct sink *sink;
    int rank;
    const char *stream; /* "stdout", "stderr" */
    bool timestamp;     /* in front of the prefix */
    bool open;          /* the rank, or a child of it, may still print */
    bool paused;        /* because the sink is full */
    bool after_return;  /* the last line ended in '\r': a '\n' that follows belongs to it */
    int file;           /* the copy, or -1 */
    int file_error;     /* errno of the write that ended the copy, or 0 */
    char *line;         /* [OUTPUT_LINE_BYTES], not yet passed on */
    size_t used;
    char *last[OUTPUT_LAST_LINES]; /* a ring */
    unsigned lines;
};

/* `child` gets the end that the rank writes to; close it once the rank has it. */
hvd_code output_open(struct output *output, uv_loop_t *loop, int *child, hvd_status *status);
/* Copies to `folder`/`stream`; the folder must exist. */
hvd_code output_copy_to(struct output *output, const char *folder, hvd_status *status);
void output_resume(struct output *output); /* reads on if it was paused and the sink has room */
void output_close(struct output *output);  /* passes on an unfinished line and reads no more */
void output_free(struct output *output);   /* after the loop has closed the pipe */

/* Line `index` of the last ones, oldest first; NULL behind the newest. */
const char *output_last_line(const struct output *output, unsigned index);

#endif
