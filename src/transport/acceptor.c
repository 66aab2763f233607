/* acceptor.c - see opening.h. */
#include "transport/opening.h"

#include "base/clock.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>

#define PAUSE (CLOCK_SECOND / 20)

/* ---- life --------------------------------------------------------------------------------------------- */

void acceptor_init(struct acceptor *acceptor, struct mesh *hub, int poller)
{
    *acceptor = (struct acceptor){.hub = hub, .poller = poller};
    pthread_mutex_init(&acceptor->lock, NULL);
}

/* The lists change under atfork_lock, so that a child of fork() finds them whole. */
static void push(struct attempt **list, struct attempt *attempt)
{
    atfork_lock();
    attempt->next = *list;
    *list = attempt;
    atfork_unlock();
}

static struct attempt *take(struct attempt **place)
{
    atfork_lock();
    struct attempt *attempt = *place;
    *place = attempt->next;
    atfork_unlock();
    return attempt;
}

void acceptor_close(struct acceptor *acceptor)
{
    while (acceptor->attempts)
        attempt_free(take(&acceptor->attempts));
    while (acceptor->authenticated)
        attempt_free(take(&acceptor->authenticated));
    for (int i = 0; i < acceptor->listener_count; i++)
        socket_close(&acceptor->listeners[i].fd);
    pthread_mutex_destroy(&acceptor->lock);
}

void acceptor_abandon(struct acceptor *acceptor)
{
    for (struct attempt *attempt = acceptor->attempts; attempt; attempt = attempt->next)
        socket_close(&attempt->fd);
    for (struct attempt *attempt = acceptor->authenticated; attempt; attempt = attempt->next)
        socket_close(&attempt->fd);
    for (int i = 0; i < acceptor->listener_count; i++)
        socket_close(&acceptor->listeners[i].fd);
}

hvd_code acceptor_listen(struct acceptor *acceptor, int row, int listener, hvd_status *status)
{
    acceptor->listeners[acceptor->listener_count].fd = listener;
    acceptor->listeners[acceptor->listener_count++].row = row;
    if (platform_poller_add(acceptor->poller, listener, POLLER_READ, NULL))
        return HVD_OK;
    return status_set_errno(status, errno, "rank %d can't wait for connections", acceptor->hub->rank);
}

void acceptor_log(struct acceptor *acceptor, const char *text)
{
    int held;
    if (rate_limit_allows(&acceptor->rate_limit, &held))
        log_warning(acceptor->hub->rank, "%s%s", text, held ? " (and more before it)" : "");
}

/* 0: it goes on. */
static void pause_until(struct acceptor *acceptor, int64_t until)
{
    acceptor->paused_until = until;
    for (int i = 0; i < acceptor->listener_count; i++)
        platform_poller_change(acceptor->poller, acceptor->listeners[i].fd, until ? 0 : POLLER_READ, NULL);
}

/* ---- unauthenticated connections ---------------------------------------------------------------------- */

static struct attempt *unlist(struct acceptor *acceptor, const struct attempt *attempt)
{
    struct attempt **place = &acceptor->attempts;
    while (*place != attempt)
        place = &(*place)->next;
    acceptor->count--;
    return take(place);
}

static struct attempt *find_oldest(const struct acceptor *acceptor)
{
    struct attempt *oldest = acceptor->attempts;
    while (oldest && oldest->next)
        oldest = oldest->next;
    return oldest;
}

/* The newest comes first in the list. */
static struct attempt *find_dispensable(const struct acceptor *acceptor)
{
    struct attempt *silent = NULL;
    for (struct attempt *each = acceptor->attempts; each; each = each->next)
        silent = handshake_is_silent(&each->handshake) ? each : silent;
    return silent ? silent : find_oldest(acceptor);
}

/* 0: the next connection may be accepted; else until when it has to wait. */
static int64_t wait_for_room(const struct acceptor *acceptor, int listener)
{
    if (acceptor->count < UNAUTHENTICATED_LIMIT)
        return 0;
    const struct attempt *attempt = find_dispensable(acceptor);
    return handshake_wait_for_room(listener, attempt->since, handshake_is_silent(&attempt->handshake));
}

/* In a flood the oldest are dropped, so that a rank's own connection gets its turn. */
static void make_room(struct acceptor *acceptor)
{
    if (acceptor->count < UNAUTHENTICATED_LIMIT)
        return;
    acceptor_log(acceptor, "too many connections without a handshake; dropping the oldest");
    attempt_free(unlist(acceptor, find_dispensable(acceptor)));
}

static void add(struct acceptor *acceptor, int row, int fd, const char *who)
{
    struct attempt *attempt = attempt_accept(acceptor->hub, row, fd, who);
    if (!attempt || !attempt_watch(attempt, acceptor->poller)) {
        attempt_free(attempt);
        acceptor_log(acceptor, "out of memory for a connection");
        return;
    }
    push(&acceptor->attempts, attempt);
    acceptor->count++;
}

static hvd_code lack_descriptors(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = status_set_errno(status, errno, "can't accept a connection of another rank");
    if (!acceptor->hub->attached)
        return code;
    pthread_mutex_lock(&acceptor->lock);
    if (!acceptor->connectors)
        acceptor_log(acceptor, status->text);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed) {
        status_copy(&connector->fault, status);
        platform_event_set(connector->event);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return HVD_OK;
}

/* HVD_IN_PROGRESS: the rest has to wait a little, until *until. */
static hvd_code accept_all(struct acceptor *acceptor, int listener, int row, int64_t *until,
                           hvd_status *status)
{
    while (!(*until = wait_for_room(acceptor, listener))) {
        char who[SOCKET_TEXT];
        int fd = transport_at(row)->accept(listener, who);
        if (fd >= 0) {
            make_room(acceptor);
            add(acceptor, row, fd, who);
        } else if (errno == EAGAIN) {
            return HVD_OK;
        } else if (errno == EPERM) {
            acceptor_log(acceptor, "a process of another user tried to connect");
        } else if (errno == EMFILE || errno == ENFILE) {
            hvd_code code = lack_descriptors(acceptor, status);
            *until = clock_now() + PAUSE;
            return code ? code : HVD_IN_PROGRESS;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            *until = clock_now() + PAUSE; /* short of memory */
            break;
        }
    }
    return HVD_IN_PROGRESS;
}

hvd_code acceptor_accept(struct acceptor *acceptor, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; i < acceptor->listener_count && !acceptor->paused_until; i++) {
        int64_t until;
        code = accept_all(acceptor, acceptor->listeners[i].fd, acceptor->listeners[i].row, &until, status);
        if (code)
            pause_until(acceptor, until);
        if (code && code != HVD_IN_PROGRESS)
            return code;
    }
    return HVD_OK;
}

static void hand_over(struct acceptor *acceptor, struct attempt *attempt)
{
    attempt->since = clock_now();
    pthread_mutex_lock(&acceptor->lock);
    push(&acceptor->authenticated, attempt);
    for (struct connector *connector = acceptor->connectors; connector; connector = connector->next_listed)
        platform_event_set(connector->event);
    pthread_mutex_unlock(&acceptor->lock);
}

void acceptor_advance(struct acceptor *acceptor, struct attempt *attempt)
{
    hvd_status fault;
    hvd_code code = attempt_advance(attempt, &fault);
    if (code == HVD_IN_PROGRESS && attempt_watch(attempt, acceptor->poller))
        return;
    unlist(acceptor, attempt);
    attempt_unwatch(attempt);
    if (code == HVD_OK) {
        hand_over(acceptor, attempt);
        return;
    }
    /* Who tries several addresses closes all connections but one. */
    if (code != HVD_PEER_LOST)
        acceptor_log(acceptor, code == HVD_IN_PROGRESS ? "out of memory for a connection" : fault.text);
    attempt_free(attempt);
}

/* Of a mesh that this rank has not opened, or has closed. */
static void drop_unclaimed(struct acceptor *acceptor, int64_t now, int64_t *next)
{
    int64_t time = (int64_t)(acceptor->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    pthread_mutex_lock(&acceptor->lock);
    for (struct attempt **place = &acceptor->authenticated; *place;) {
        if (now - (*place)->since >= time) {
            attempt_free(take(place));
            continue;
        }
        *next = clock_earlier(*next, (*place)->since + time);
        place = &(*place)->next;
    }
    pthread_mutex_unlock(&acceptor->lock);
}

int64_t acceptor_keep_time(struct acceptor *acceptor)
{
    int64_t now = clock_now(), next = CLOCK_NEVER;
    if (acceptor->paused_until && now >= acceptor->paused_until)
        pause_until(acceptor, 0);
    if (acceptor->paused_until)
        next = acceptor->paused_until;
    for (struct attempt *oldest; (oldest = find_oldest(acceptor));) {
        if (now - oldest->since < UNAUTHENTICATED_TIME) {
            next = clock_earlier(next, oldest->since + UNAUTHENTICATED_TIME);
            break;
        }
        acceptor_log(acceptor, "a connection did not finish its handshake in time");
        attempt_free(unlist(acceptor, oldest));
    }
    drop_unclaimed(acceptor, now, &next);
    return next;
}

/* ---- authenticated connections ------------------------------------------------------------------------ */

void acceptor_enlist(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    connector->next_listed = acceptor->connectors;
    acceptor->connectors = connector;
    pthread_mutex_unlock(&acceptor->lock);
    platform_event_set(connector->event); /* for what is there already */
}

void acceptor_delist(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct connector **place = &acceptor->connectors;
    while (*place && *place != connector)
        place = &(*place)->next_listed;
    if (*place)
        *place = connector->next_listed;
    pthread_mutex_unlock(&acceptor->lock);
}

struct attempt *acceptor_take(struct acceptor *acceptor, struct connector *connector)
{
    pthread_mutex_lock(&acceptor->lock);
    struct attempt **place = &acceptor->authenticated, *taken = NULL;
    while (*place && !connector_mesh(connector, (*place)->handshake.claim.mesh))
        place = &(*place)->next;
    if (*place)
        taken = take(place);
    pthread_mutex_unlock(&acceptor->lock);
    return taken;
}
