/* sink.h - the launcher's own stdout or stderr: takes text at once and writes it in order.
 *
 * The write itself blocks in a thread of libuv's pool, one at a time, so that a slow reader never stops the
 * loop and the file keeps its blocking mode, which it may share with other programs. Everything else
 * belongs to the loop's thread. */
#ifndef HVD_LAUNCH_SINK_H
#define HVD_LAUNCH_SINK_H

#include "base/wire.h"

#include <uv.h>

struct sink {
    uv_work_t work;
    uv_loop_t *loop;
    int file;
    bool colour;  /* a terminal that wants it */
    bool writing; /* `going` and `outcome` belong to the pool's thread */
    int outcome;  /* errno of the last write, or 0 */
    int error;    /* errno of the write that failed; text is dropped from then on */
    struct wire_writer waiting, going;
};

void sink_open(struct sink *sink, uv_loop_t *loop, int file);
void sink_free(struct sink *sink); /* only when idle */
void sink_put(struct sink *sink, const void *bytes, size_t length);
void sink_flush(struct sink *sink);      /* starts to write what was put; call it after the last put */
bool sink_full(const struct sink *sink); /* who puts more than a line should wait until it is not */
bool sink_idle(const struct sink *sink); /* all is written */

#endif
