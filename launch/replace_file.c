/* replace_file.c - see replace_file.h. */
#include "replace_file.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Returns 0 or an errno value. */
static int write_all(int file, const char *text, size_t length)
{
    while (length) {
        ssize_t count = write(file, text, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return count < 0 ? errno : ENOSPC;
        text += count;
        length -= (size_t)count;
    }
    return 0;
}

int open_beside(const char *path, char *beside)
{
    if (snprintf(beside, PATH_MAX, "%s.new", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    unlink(beside);
    return open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
}

hvd_code replace_file(const char *what, const char *path, const char *text, size_t length, hvd_status *status)
{
    char beside[PATH_MAX];
    int file = open_beside(path, beside);
    int error = file < 0 ? errno : write_all(file, text, length);
    if (file >= 0 && close(file) && !error)
        error = errno;
    if (!error && rename(beside, path))
        error = errno;
    if (!error)
        return HVD_OK;
    if (file >= 0)
        unlink(beside);
    return status_set_errno(status, error, "%s: can't write %s", what, path);
}
