/* sink.h - the launcher's own stdout or stderr: takes text at once and writes it in order, as much as goes
 * without waiting; the rest when the loop finds that there is room, so that a slow reader never stops the
 * loop. One thread, the loop's. */
#ifndef HVD_LAUNCH_SINK_H
#define HVD_LAUNCH_SINK_H

#include "base/wire.h"

#include <uv.h>

struct sink {
    uv_poll_t room;
    int file;
    bool owned;  /* the file is a second opening of the one that was given */
    bool polled; /* it can be full; else it is a regular file */
    bool colour; /* a terminal that wants it */
    int error;   /* errno of the write that failed; text is dropped from then on */
    struct wire_writer waiting;
};

void sink_open(struct sink *sink, uv_loop_t *loop, int file);
void sink_free(struct sink *sink); /* after the loop has closed its handles */
void sink_put(struct sink *sink, const void *bytes, size_t length);
void sink_flush(struct sink *sink);      /* starts to write what was put; call it after the last put */
bool sink_full(const struct sink *sink); /* then put no more than a line */
bool sink_idle(const struct sink *sink); /* all is written */

#endif
