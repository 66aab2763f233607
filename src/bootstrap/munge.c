/* munge.c - serves and fetches a credential of MUNGE. libmunge is opened at run time, so the part of its
 * stable interface that is used is declared here. One credential serves all ranks for a while: a second
 * reader gets its text as well, with ERROR_REPLAYED, and the text names the job. */
#include "bootstrap/munge.h"

#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/dial.h"
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
#define CREDENTIAL_TIME  (60 * CLOCK_SECOND) /* below the 300 s after which it expires */
#define SOURCES          8                   /* addresses that are tried */
#define PATIENCE         (10 * CLOCK_SECOND) /* for the last of them, if the deadline is later */
#define PAUSE_MS         50                  /* when no descriptor is left for another connection */

/* name, result, parameters */
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

/* Returns HVD_UNSUPPORTED unless there is the library, and a daemon on this host. */
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

/* Only this user can decode the credential, which is encrypted whatever the configuration of munged is. */
static hvd_code make_credential(hvd_status *status)
{
    char *credential = NULL;
    void *context = munge.munge_ctx_create();
    if (!context)
        return status_no_memory(status);
    int error = munge.munge_ctx_set(context, OPTION_CIPHER, CIPHER_AES128);
    if (!error)
        error = munge.munge_ctx_set(context, OPTION_USER, geteuid());
    if (!error)
        error = munge.munge_encode(&credential, context, served.text, (int)strlen(served.text));
    if (!error)
        snprintf(served.credential, sizeof served.credential, "%s", credential);
    hvd_code code =
        error ? status_set(status, HVD_SYSTEM, "MUNGE makes no credential: %s", munge.munge_strerror(error))
              : HVD_OK;
    served.made = clock_now();
    free(credential);
    munge.munge_ctx_destroy(context);
    return code;
}

static void answer(int fd)
{
    hvd_status problem;
    if (clock_now() - served.made > CREDENTIAL_TIME && make_credential(&problem))
        log_warning(0, "%s", problem.text);
    send(fd, served.credential, strlen(served.credential), MSG_NOSIGNAL); /* fits into the socket's buffer */
    close(fd);
}

/* Reads nothing and keeps no connection open, so that clients cost no memory. */
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
    TRY(find(status));
    snprintf(served.text, sizeof served.text, "%s", text);
    snprintf(ports, sizeof ports, "%d", port);
    TRY(make_credential(status));
    TRY(addresses_listen(own, ports, served.listeners, &port, status));
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
    struct candidate candidate;
    const struct addrinfo *address;
    size_t length;
    char credential[CREDENTIAL_LIMIT];
};

struct fetch {
    struct dial dial;
    char *text;
    hvd_status refusal; /* HVD_OK: no credential was received */
    struct source sources[SOURCES];
};

static hvd_code begin(struct candidate *candidate, hvd_status *fault)
{
    struct source *source = (struct source *)candidate;
    candidate->socket.fd = socket_connect(source->address);
    return candidate->socket.fd < 0 ? status_set_errno(fault, errno, "can't connect") : HVD_IN_PROGRESS;
}

/* The other end sends the credential and closes the connection. */
static hvd_code advance(struct candidate *candidate, hvd_status *fault)
{
    struct source *source = (struct source *)candidate;
    size_t room = sizeof source->credential - 1 - source->length;
    int fd = candidate->socket.fd, error = candidate->connected ? 0 : socket_error(fd);
    if (error)
        return status_set_errno(fault, error, "can't connect");
    candidate->connected = true;
    ssize_t got = room ? recv(fd, source->credential + source->length, room, MSG_DONTWAIT) : 0;
    if (got > 0)
        source->length += (size_t)got;
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return HVD_IN_PROGRESS;
    source->credential[source->length] = '\0';
    if (got == 0 && room && source->length)
        return decode(source->credential, ((struct fetch *)candidate->dial)->text, fault);
    return status_set(fault, HVD_PEER_LOST, "it sends no credential");
}

static short events(const struct candidate *candidate)
{
    return candidate->connected ? POLLIN : POLLOUT;
}

static void end(struct candidate *candidate, const hvd_status *fault)
{
    struct fetch *fetch = (struct fetch *)candidate->dial;
    if (fault && fault->code == HVD_REFUSED)
        status_copy(&fetch->refusal, fault);
}

static hvd_code fetch_from_any(struct fetch *fetch, const struct addrinfo *found, int64_t deadline,
                               const struct interrupt *interrupt, hvd_status *status)
{
    static const struct dial_operations operations = {
        .begin = begin, .advance = advance, .events = events, .end = end};
    int poller = platform_poller_create(), count = 0;
    if (poller < 0)
        return status_set_errno(status, errno, "can't make a descriptor to fetch a credential");
    for (; found && count < SOURCES; found = found->ai_next)
        fetch->sources[count++].address = found;
    dial_init(&fetch->dial, &operations, poller, fetch->sources, sizeof *fetch->sources, count);
    hvd_code code = dial_run(&fetch->dial, PATIENCE, deadline, interrupt, status);
    dial_end(&fetch->dial);
    socket_close(&poller);
    return code;
}

hvd_code munge_fetch(const char *address, char text[PMI_VALUE_LIMIT], int64_t deadline,
                     const struct interrupt *interrupt, hvd_status *status)
{
    struct addrinfo *found = NULL;
    TRY(find(status));
    TRY(socket_resolve(address, &found, status));
    struct fetch *fetch = calloc(1, sizeof *fetch);
    hvd_code code;
    if (!fetch) {
        code = status_no_memory(status);
        goto free_addresses;
    }
    fetch->text = text;
    code = fetch_from_any(fetch, found, deadline, interrupt, status);
    if (code == HVD_PEER_LOST || code == HVD_INTERRUPTED)
        code = fetch->refusal.code ? status_copy(status, &fetch->refusal)
                                   : status_set(status, clock_now() < deadline ? HVD_REFUSED : HVD_TIMED_OUT,
                                                "%s serves no credential", address);
    free(fetch);
free_addresses:
    freeaddrinfo(found);
    return code;
}
