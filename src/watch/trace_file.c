/* trace_file.c - see trace_file.h. */
#include "watch/trace_file.h"

#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static char closing[] = "\n]\n";

/* Text and bracket in one call, so that whoever kills the process finds them both or neither. What a full
 * disk leaves over is tried again for its errno. */
static int write_closed(const struct trace_file *file, const void *text, size_t length)
{
    size_t whole = length + sizeof closing - 1, done = 0;
    int error = 0;
    struct held_signals held = signals_hold();
    while (!error && done < whole) {
        size_t skipped = done > length ? done - length : 0, taken = done - skipped;
        struct iovec parts[] = {{(char *)text + taken, length - taken},
                                {closing + skipped, sizeof closing - 1 - skipped}};
        ssize_t written = pwritev(file->descriptor, parts, 2, file->end + (off_t)done);
        if (written < 0 && errno != EINTR)
            error = errno;
        done += written > 0 ? (size_t)written : 0;
    }
    signals_release(&held);
    return error;
}

/* A short write left half of an element. The bytes up to here were on the disk before, so this needs no
 * room; should it fail nevertheless, there is nothing more to do. */
static void restore(const struct trace_file *file)
{
    ssize_t written = pwrite(file->descriptor, closing, sizeof closing - 1, file->end);
    if (written == sizeof closing - 1 && ftruncate(file->descriptor, file->end + written))
        return;
}

hvd_code trace_file_open(struct trace_file *file, const char *path, const char *element, hvd_status *status)
{
    *file = (struct trace_file){.descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (file->descriptor < 0)
        return status_set_errno(status, errno, "can't open the timeline file %s", path);
    int error = write_closed(file, "[\n", 2);
    file->end = 2;
    if (!error)
        error = write_closed(file, element, strlen(element));
    file->end += (off_t)strlen(element);
    if (!error)
        return HVD_OK;
    trace_file_close(file);
    return status_set_errno(status, error, "can't write the timeline file %s", path);
}

int trace_file_append(struct trace_file *file, const void *text, size_t length)
{
    int error = write_closed(file, text, length);
    if (error)
        restore(file);
    else
        file->end += (off_t)length;
    return error;
}

void trace_file_close(struct trace_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    file->descriptor = -1;
}
