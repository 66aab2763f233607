/* stream.h - framed messages over a socket or a link that never blocks: reads and writes continue where they
 * stopped. A frame is a length (u32), then so many bytes. One thread at a time. */
#ifndef HVD_BASE_STREAM_H
#define HVD_BASE_STREAM_H

#include "base/wire.h"

#include <sys/types.h>

struct stream;

/* How bytes move; encryption would wrap another one. Both return what recv and send do: short counts are
 * fine, and -1 comes with errno, EAGAIN while nothing can move. A struct that begins with its stream has
 * more. */
struct stream_io {
    ssize_t (*read)(struct stream *stream, void *bytes, size_t length);
    ssize_t (*write)(struct stream *stream, const void *bytes, size_t length);
};

extern const struct stream_io stream_socket; /* the non-blocking socket `fd` */

struct stream {
    const struct stream_io *io;
    int fd; /* not closed here */
    struct wire_writer in, out;
    size_t sent;   /* of `out` */
    bool returned; /* `in` is a frame that stream_read has returned */
};

enum stream_outcome {
    STREAM_DONE,
    STREAM_AGAIN,    /* to be called again after stream_events */
    STREAM_ENDED,    /* the other end has closed it, all that it sent has come */
    STREAM_FAILED,   /* errno says why */
    STREAM_TOO_LONG, /* the frame's length is beyond the limit; the header is consumed, nothing else */
    STREAM_NO_MEMORY /* for what comes in; nothing is lost */
};

void stream_free(struct stream *stream); /* zeroed memory is a valid empty stream */

/* Writes all of `out`; may drop from it what has been written. */
enum stream_outcome stream_write(struct stream *stream);

/* Reads until `in` holds `bytes` bytes, and no further. */
enum stream_outcome stream_fill(struct stream *stream, size_t bytes);

/* Reads the next frame, which stays valid until the next call. */
enum stream_outcome stream_read(struct stream *stream, size_t limit, const uint8_t **frame, size_t *length);
#define STREAM_HEADER_BYTES sizeof(uint32_t)

/* What to poll for. */
short stream_events(const struct stream *stream);

#endif
