/* platform_sockets.c - see platform_sockets.h: abstract Unix sockets, SCM_RIGHTS, SO_PEERCRED. No state; any
 * thread. */
#include "base/platform_sockets.h"

#include "base/platform_process.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t abstract_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strnlen(name, sizeof address->sun_path - 1);
    /* A name that starts with a NUL is abstract: it is in no file system, and has no NUL at its end. */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int open_local(const char *name, bool listens)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (listens ? bind(fd, (struct sockaddr *)&address, length) || listen(fd, SOMAXCONN)
                : connect(fd, (struct sockaddr *)&address, length)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int platform_local_listen(const char *name)
{
    return open_local(name, true);
}

int platform_local_connect(const char *name)
{
    return open_local(name, false);
}

union fd_message {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header; /* for its alignment */
};

ssize_t platform_send_with_fd(int socket, const void *bytes, size_t length, int fd)
{
    struct iovec part = {(void *)bytes, length};
    union fd_message control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

ssize_t platform_receive_with_fd(int socket, void *bytes, size_t length, int *fd)
{
    struct iovec part = {bytes, length};
    union fd_message control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             /* Not CMSG_SPACE: its padding has room for a second one, which would leak. */
                             .msg_controllen = CMSG_LEN(sizeof *fd)};
    *fd = -1;
    ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(header), sizeof *fd);
    else if (n >= 0 && message.msg_flags & MSG_CTRUNC)
        *fd = PLATFORM_FD_LOST;
    return n;
}

bool platform_peer_is_same_user(int socket)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

pid_t platform_peer_process(int socket)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) ? 0 : peer.pid;
}

char platform_peer_state(int socket)
{
    struct platform_process process;
    return platform_process(platform_peer_process(socket), &process) ? process.state : '\0';
}
