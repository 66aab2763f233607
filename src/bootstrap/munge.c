/* munge.c - serves and fetches a credential of MUNGE. libmunge is opened at run time, so what is used of its
 * stable interface is declared here. One credential serves all ranks for a while: a replay hands its reader
 * what it was made for, and the text names the job. */
#include "bootstrap/munge.h"

#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LIBRARY          "libmunge.so.2"
#define CREDENTIAL_LIMIT 8192                /* with the NUL */
#define CREDENTIAL_TIME  (60 * CLOCK_SECOND) /* below the 300 s after which MUNGE takes it for expired */
#define SOURCES          8                   /* addresses that are tried */
#define PAUSE_MS         50                  /* when there are no descriptors to accept with */

/* name, what it returns, parameters */
#define FUNCTIONS(_)                                                                                         \
    _(munge_encode, int, (char **credential, void *context, const void *text, int length))                   \
    _(munge_decode, int,                                                                                     \
      (const char *credential, void *context, void **text, int *length, uid_t *user, gid_t *group))          \
    _(munge_strerror, const char *, (int error))                                                             \
    _(munge_ctx_create, void *, (void))                                                                      \
    _(munge_ctx_destroy, void, (void *context))                                                              \
    _(munge_ctx_set, int, (void *context, int option, ...))

/* Of its header. */
enum { OPTION_CIPHER = 0, OPTION_USER = 9, CIPHER_AES128 = 4, ERROR_REPLAYED = 17 };

static struct {
    bool found;
#define MEMBER(name, type, parameters) type(*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} munge;

static pthread_once_t opened = PTHREAD_ONCE_INIT;

static struct {
    int listeners[ADDRESSES_LIMIT], count; /* 0: nothing is served */
    int stop;
    pthread_t thread;
    char text[PMI_VALUE_LIMIT], credential[CREDENTIAL_LIMIT];
    int64_t made;
    struct atfork_handler watch;
} served;

static void open_library(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    munge.found = library != NULL;
#define LOOK_UP(name, type, parameters)                                                                      \
    *(void **)&munge.name = library ? dlsym(library, #name) : NULL;                                          \
    munge.found = munge.found && munge.name;
    FUNCTIONS(LOOK_UP)
#undef LOOK_UP
}

/* Without a daemon on this host it is of no use. */
static hvd_code find(hvd_status *status)
{
    char *credential = NULL;
    pthread_once(&opened, open_library);
    if (!munge.found)
        return status_set(status, HVD_UNSUPPORTED, "there is no " LIBRARY);
    int error = munge.munge_encode(&credential, NULL, NULL, 0);
    free(credential);
    return error ? status_set(status, HVD_UNSUPPORTED, "munged: %s", munge.munge_strerror(error)) : HVD_OK;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------- */

/* Encrypted whatever munged is configured for, and only for this user. */
static hvd_code make_credential(hvd_status *status)
{
    char *credential = NULL;
    void *context = munge.munge_ctx_create();
    int error = context ? munge.munge_ctx_set(context, OPTION_CIPHER, CIPHER_AES128) : ENOMEM;
    if (!error)
        error = munge.munge_ctx_set(context, OPTION_USER, geteuid());
    if (!error)
        error = munge.munge_encode(&credential, context, served.text, (int)strlen(served.text));
    if (!error)
        snprintf(served.credential, sizeof served.credential, "%s", credential);
    hvd_code code = !error ? HVD_OK
                           : status_set(status, HVD_SYSTEM, "MUNGE makes no credential: %s",
                                        context ? munge.munge_strerror(error) : "out of memory");
    served.made = clock_now();
    free(credential);
    if (context)
        munge.munge_ctx_destroy(context);
    return code;
}

static void answer(int fd)
{
    hvd_status problem;
    if (clock_now() - served.made > CREDENTIAL_TIME && make_credential(&problem))
        log_warning(0, "%s", problem.text);
    send(fd, served.credential, strlen(served.credential), MSG_NOSIGNAL); /* it fits the socket's buffer */
    close(fd);
}

/* Reads nothing, and keeps no connection open: clients cost it no memory. */
static void *serve(void *argument)
{
    struct pollfd polled[ADDRESSES_LIMIT + 1] = {{.fd = served.stop, .events = POLLIN}};
    (void)argument;
    for (int i = 0; i < served.count; i++)
        polled[1 + i] = (struct pollfd){.fd = served.listeners[i], .events = POLLIN};
    while (!polled[0].revents) {
        poll(polled, (nfds_t)served.count + 1, -1);
        for (int i = 0; i < served.count; i++) {
            int fd = socket_accept(served.listeners[i]);
            if (fd >= 0)
                answer(fd);
            else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                poll(NULL, 0, PAUSE_MS);
        }
    }
    return NULL;
}

static void close_listeners(void)
{
    while (served.count > 0)
        socket_close(&served.listeners[--served.count]);
    socket_close(&served.stop);
}

static void close_in_child(void *owner)
{
    (void)owner;
    close_listeners();
}

hvd_code munge_serve(const struct addresses *own, int port, const char *text, hvd_status *status)
{
    char ports[16];
    hvd_code code = find(status);
    if (code)
        return code;
    snprintf(served.text, sizeof served.text, "%s", text);
    snprintf(ports, sizeof ports, "%d", port);
    code = make_credential(status);
    if (!code)
        code = addresses_listen(own, ports, served.listeners, &port, status);
    if (code)
        return code;
    served.count = own->count ? own->count : 1;
    served.stop = platform_event_create();
    int error = served.stop < 0 ? errno : thread_start(&served.thread, serve, NULL);
    if (error) {
        close_listeners();
        return status_set_errno(status, error, "can't start the thread that serves the credential");
    }
    served.watch = (struct atfork_handler){.in_child = close_in_child};
    atfork_add(&served.watch);
    return HVD_OK;
}

void munge_stop(void)
{
    if (!served.count)
        return;
    platform_event_set(served.stop);
    pthread_join(served.thread, NULL);
    atfork_remove(&served.watch);
    close_listeners();
}

/* ---- the other ranks ---------------------------------------------------------------------------------- */

static hvd_code decode(const char *credential, char text[PMI_VALUE_LIMIT], hvd_status *status)
{
    void *payload = NULL;
    int length = 0;
    uid_t user;
    gid_t group;
    int error = munge.munge_decode(credential, NULL, &payload, &length, &user, &group);
    hvd_code code = HVD_OK;
    if (error && error != ERROR_REPLAYED)
        code =
            status_set(status, HVD_REFUSED, "MUNGE refuses the credential: %s", munge.munge_strerror(error));
    else if (user != geteuid())
        code = status_set(status, HVD_REFUSED, "the credential is that of user %u", (unsigned)user);
    else if (length >= PMI_VALUE_LIMIT)
        code = status_set(status, HVD_REFUSED, "the credential carries %d bytes, more than a rendezvous has",
                          length);
    else
        snprintf(text, PMI_VALUE_LIMIT, "%.*s", length, (const char *)payload);
    free(payload);
    return code;
}

/* One address of rank 0's host. */
struct source {
    int fd; /* -1: over */
    size_t length;
    char credential[CREDENTIAL_LIMIT];
};

/* True when all has come that the other end sends before it closes the connection. */
static bool receive(struct source *source)
{
    size_t room = sizeof source->credential - 1 - source->length;
    ssize_t got = room ? recv(source->fd, source->credential + source->length, room, MSG_DONTWAIT) : 0;
    if (got > 0)
        source->length += (size_t)got;
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return false;
    socket_close(&source->fd);
    source->credential[source->length] = '\0';
    return got == 0 && room && source->length;
}

/* Side by side: an address may swallow packets, or lead to something else. */
static bool receive_from_any(struct source *sources, int count, char text[PMI_VALUE_LIMIT], int64_t deadline,
                             const struct interrupt *interrupt, hvd_status *status)
{
    struct pollfd polled[SOURCES];
    for (;;) {
        int open = 0;
        for (int i = 0; i < count; i++) {
            polled[i] = (struct pollfd){.fd = sources[i].fd, .events = POLLIN};
            open += sources[i].fd >= 0;
        }
        if (!open || clock_now() >= deadline || interrupt_is_set(interrupt))
            return false;
        poll(polled, (nfds_t)count, socket_poll_timeout(interrupt_slice(interrupt, deadline)));
        for (int i = 0; i < count; i++)
            if (polled[i].fd >= 0 && polled[i].revents && receive(&sources[i]) &&
                decode(sources[i].credential, text, status) == HVD_OK)
                return true;
    }
}

static int connect_to_all(const struct addrinfo *found, struct source *sources)
{
    int count = 0;
    for (const struct addrinfo *at = found; at && count < SOURCES; at = at->ai_next) {
        sources[count].length = 0;
        sources[count++].fd = socket_connect(at);
    }
    return count;
}

hvd_code munge_fetch(const char *address, char text[PMI_VALUE_LIMIT], int64_t deadline,
                     const struct interrupt *interrupt, hvd_status *status)
{
    struct addrinfo *found = NULL;
    hvd_code code = find(status);
    if (!code)
        code = socket_resolve(address, &found, status);
    if (code)
        return code;
    struct source *sources = malloc(SOURCES * sizeof *sources);
    int count = sources ? connect_to_all(found, sources) : 0;
    freeaddrinfo(found);
    if (!sources)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    hvd_status problem = {.code = HVD_OK};
    bool received = receive_from_any(sources, count, text, deadline, interrupt, &problem);
    for (int i = 0; i < count; i++)
        socket_close(&sources[i].fd);
    free(sources);
    if (received)
        return HVD_OK;
    return problem.code ? status_copy(status, &problem)
                        : status_set(status, clock_now() < deadline ? HVD_REFUSED : HVD_TIMED_OUT,
                                     "%s serves no credential", address);
}
