/* platform_sockets.h - local sockets that pass descriptors, and the process at their other end. All calls
 * report faults by errno. Any thread. */
#ifndef HVD_BASE_PLATFORM_SOCKETS_H
#define HVD_BASE_PLATFORM_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Stream sockets with a name in the kernel only, gone with their process. Non-blocking, closed on exec. */
int platform_local_listen(const char *name);
int platform_local_connect(const char *name);
/* Like send and recv, with a descriptor attached to the first byte; -1: none. */
ssize_t platform_send_with_fd(int socket, const void *bytes, size_t length, int fd);
ssize_t platform_receive_with_fd(int socket, void *bytes, size_t length, int *fd);
#define PLATFORM_FD_LOST (-2) /* one was attached, but this process may have no more of them */
/* True when the process at the other end runs as this one's user. */
bool platform_peer_is_same_user(int socket);
/* Its id as seen from here; 0: it can't be seen. */
pid_t platform_peer_process(int socket);
/* Returns the state of that process as a letter of ps(1), e.g. 'T' when it is stopped; '\0': it cannot be
 * seen. */
char platform_peer_state(int socket);

#endif
