/* claim.c - a local socket whose name identifies the rank, and what the process that holds it answers. Any
 * thread. */
#include "bootstrap/claim.h"

#include "base/status.h"
#include "net/crypto.h"
#include "net/socket.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX        "horovod-rank-"
#define IDENTITY_TEXT 8192
#define QUEUE         4096 /* refused processes that may connect at once to find out which one holds the rank */

/* The connection to a process manager belongs to one rank of one job, which may have no name. Returns 0
 * without a connection. */
static unsigned long long connection_number(const struct starter *starter)
{
    struct stat info;
    return starter->pmi < 0 || fstat(starter->pmi, &info) || !S_ISSOCK(info.st_mode) ? 0 : info.st_ino;
}

/* The secret is the key of the MAC, so that other users can't guess the name. */
static void make_address(const struct settings *settings, const struct starter *starter,
                         struct sockaddr_un *address, socklen_t *length)
{
    uint8_t mac[CRYPTO_MAC_BYTES];
    char text[IDENTITY_TEXT];
    int written =
        snprintf(text, sizeof text, "%s|%s|%s:%d|%llu|%.1000s|%.1000s|%lld|%.1000s|%lld|%lld|%.3000s",
                 starter->name ? starter->name : "", starter->job, starter->host, starter->port,
                 connection_number(starter), settings->rendezvous, settings->job, (long long)settings->epoch,
                 settings->slot, (long long)settings->rank, (long long)starter->rank, settings->ranks);
    size_t bytes = (size_t)written < sizeof text ? (size_t)written : sizeof text - 1;
    crypto_mac(settings->secret, strlen(settings->secret), text, bytes, mac);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *name = address->sun_path + 1; /* the NUL before it: an address without a file */
    size_t at = (size_t)snprintf(name, sizeof address->sun_path - 1, PREFIX);
    for (int i = 0; i < CRYPTO_MAC_BYTES; i++)
        at += (size_t)snprintf(name + at, sizeof address->sun_path - 1 - at, "%02x", mac[i]);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + at);
}

/* Returns false if no process of this user holds the address any longer. */
static bool find_holder(const struct sockaddr_un *address, socklen_t length, long *pid)
{
    struct ucred holder = {0};
    socklen_t size = sizeof holder;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool reached = fd >= 0 && (!connect(fd, (const struct sockaddr *)address, length) || errno == EAGAIN);
    bool known = reached && !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &size) && holder.pid > 0;
    socket_close(&fd);
    *pid = known ? (long)holder.pid : 0;
    return reached && (!known || holder.uid == geteuid());
}

static hvd_code refuse(const struct settings *settings, const struct starter *starter, long holder,
                       hvd_status *status)
{
    char process[64] = "another process of this host";
    if (holder)
        snprintf(process, sizeof process, "process %ld", holder);
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "process %ld can't be rank %lld: %s is this rank already, and a program that it starts "
                      "inherits its variables (%s). Call hvd.init() in the rank's own process only: under "
                      "if __name__ == \"__main__\" in a script that spawns workers; or start the program "
                      "without these variables",
                      (long)getpid(), (long long)(starter->name ? starter->rank : settings->rank), process,
                      starter->variables);
}

hvd_code claim_rank(const struct settings *settings, const struct starter *starter, int *descriptor,
                    hvd_status *status)
{
    struct sockaddr_un address;
    socklen_t length;
    long holder;
    bool alone = !*settings->slot && settings->size == 1 && starter->size == 1;
    bool named = *settings->rendezvous || *starter->job || connection_number(starter);
    *descriptor = -1;
    if (alone || !named) /* without a name another job of this host may have the same variables */
        return HVD_OK;
    make_address(settings, starter, &address, &length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool held = fd >= 0 && !bind(fd, (struct sockaddr *)&address, length) && !listen(fd, QUEUE);
    bool taken = fd >= 0 && !held && errno == EADDRINUSE;
    if (held)
        *descriptor = fd;
    else
        socket_close(&fd);
    return taken && find_holder(&address, length, &holder) ? refuse(settings, starter, holder, status)
                                                           : HVD_OK;
}
