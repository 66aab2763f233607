/* admission.c - the ring of connections that have not authenticated, its limits, and the accept loop. One
 * thread at a time, the owner's. */
#include "net/admission.h"

#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"

#include <errno.h>

#define PAUSE         (CLOCK_SECOND / 20)  /* without a descriptor or memory */
#define LONGEST_QUEUE (CLOCK_SECOND / 2)   /* that a connection waits in the kernel's queue */
#define LONGEST_WAIT  (CLOCK_SECOND / 20)  /* more connections may come to wait meanwhile */
#define SHORTEST_WAIT (CLOCK_SECOND / 200) /* so that each turn drops several */

/* ---- limits ------------------------------------------------------------------------------------------- */

/* Returns the grace of a silent newcomer. */
static int64_t grace_of(int listener)
{
    unsigned waiting, limit;
    if (!socket_backlog(listener, &waiting, &limit) || !waiting)
        return UNAUTHENTICATED_GRACE;
    if (waiting >= limit / 2) /* soon the kernel turns connections away */
        return UNAUTHENTICATED_SHORTEST_GRACE;
    int64_t grace = clock_earlier(UNAUTHENTICATED_GRACE, LONGEST_QUEUE * UNAUTHENTICATED_LIMIT / waiting);
    return grace > UNAUTHENTICATED_SHORTEST_GRACE ? grace : UNAUTHENTICATED_SHORTEST_GRACE;
}

int64_t admission_wait(int listener, int64_t since, bool is_silent)
{
    int64_t now = clock_now(), due = since + (is_silent ? grace_of(listener) : UNAUTHENTICATED_GRACE);
    if (now >= due)
        return 0;
    due = clock_earlier(due, now + LONGEST_WAIT);
    return due > now + SHORTEST_WAIT ? due : now + SHORTEST_WAIT;
}

void admission_log(struct admission *admission, const char *text)
{
    int held;
    if (rate_limit_allows(&admission->rate_limit, &held))
        log_warning(admission->rank, "%s%s%s", admission->name, text, held ? " (and more before it)" : "");
}

/* Masks the listeners; 0: accepting continues. */
static void pause_until(struct admission *admission, int64_t until)
{
    admission->paused_until = until;
    for (int i = 0; i < admission->listener_count; i++)
        platform_poller_change(admission->poller, admission->listeners[i].fd, until ? 0 : POLLER_READ,
                               admission->tag);
}

void admission_resume(struct admission *admission)
{
    if (admission->paused_until)
        pause_until(admission, 0);
}

/* ---- the ring ----------------------------------------------------------------------------------------- */

void admission_add(struct admission *admission, struct newcomer *newcomer, const struct handshake *handshake)
{
    struct newcomer *next = admission->oldest ? admission->oldest : newcomer;
    struct newcomer *last = admission->oldest ? next->previous : newcomer;
    *newcomer =
        (struct newcomer){.next = next, .previous = last, .since = clock_now(), .handshake = handshake};
    next->previous = last->next = newcomer;
    admission->oldest = next;
    admission->count++;
}

static void unlink_newcomer(struct admission *admission, struct newcomer *newcomer)
{
    struct newcomer *next = newcomer->next;
    newcomer->previous->next = next;
    next->previous = newcomer->previous;
    if (admission->oldest == newcomer)
        admission->oldest = next == newcomer ? NULL : next;
    admission->count--;
}

void admission_remove(struct admission *admission, struct newcomer *newcomer)
{
    atfork_lock();
    unlink_newcomer(admission, newcomer);
    atfork_unlock();
    admission_resume(admission);
}

/* At the limit: the oldest one that has sent nothing, or the oldest one. */
static struct newcomer *find_dispensable(const struct admission *admission)
{
    struct newcomer *oldest = admission->oldest, *each = oldest;
    while (each && !handshake_is_silent(each->handshake))
        each = each->next == oldest ? NULL : each->next;
    return each ? each : oldest;
}

static void drop(struct admission *admission, struct newcomer *newcomer)
{
    atfork_lock();
    unlink_newcomer(admission, newcomer);
    atfork_unlock();
    admission->operations->drop(admission->owner, newcomer);
}

/* ---- accepting ---------------------------------------------------------------------------------------- */

hvd_code admission_listen(struct admission *admission, int listener, int kind, hvd_status *status)
{
    admission->listeners[admission->listener_count].fd = listener;
    admission->listeners[admission->listener_count++].kind = kind;
    if (platform_poller_add(admission->poller, listener, POLLER_READ, admission->tag))
        return HVD_OK;
    return status_set_errno(status, errno, "%scan't wait for connections", admission->name);
}

/* 0: the next connection may be accepted; otherwise until when it must wait. */
static int64_t wait_for_room(const struct admission *admission, int listener)
{
    if (admission->operations->has_room && !admission->operations->has_room(admission->owner))
        return clock_now() + PAUSE;
    if (admission->count < UNAUTHENTICATED_LIMIT)
        return 0;
    const struct newcomer *newcomer = find_dispensable(admission);
    return newcomer ? admission_wait(listener, newcomer->since, handshake_is_silent(newcomer->handshake)) : 0;
}

/* Returns 0 or an errno value. A child of fork() gets no descriptor that is in no list. */
static int accept_one(struct admission *admission, int listener, int kind)
{
    char from[SOCKET_TEXT];
    bool is_full = admission->count >= UNAUTHENTICATED_LIMIT;
    struct newcomer *dispensable = is_full ? find_dispensable(admission) : NULL;
    atfork_lock();
    int fd = admission->operations->accept(listener, kind, from);
    int error = fd < 0 ? errno : 0;
    if (!error && !admission->operations->adopt(admission->owner, fd, kind, from))
        error = ENOMEM;
    atfork_unlock();
    if (!error && dispensable) {
        admission_log(admission, "too many connections without a handshake; dropping the oldest");
        drop(admission, dispensable);
    }
    return error;
}

static hvd_code accept_all(struct admission *admission, int listener, int kind, hvd_status *status)
{
    int64_t until;
    while (!(until = wait_for_room(admission, listener))) {
        int error = accept_one(admission, listener, kind);
        if (error == EAGAIN)
            return HVD_OK;
        if (error == EPERM)
            admission_log(admission, "a process of another user tried to connect");
        if (error == EMFILE || error == ENFILE) {
            pause_until(admission, clock_now() + PAUSE);
            return status_set_errno(status, error, "can't accept a connection");
        }
        if (error && error != EPERM && error != ECONNABORTED && error != EINTR) {
            hvd_status fault;
            status_set_errno(&fault, error, "can't accept a connection");
            admission_log(admission, fault.text);
            until = clock_now() + PAUSE;
            break;
        }
    }
    pause_until(admission, until);
    return HVD_OK;
}

hvd_code admission_accept(struct admission *admission, hvd_status *status)
{
    for (int i = 0; i < admission->listener_count && !admission->paused_until; i++)
        TRY(accept_all(admission, admission->listeners[i].fd, admission->listeners[i].kind, status));
    return HVD_OK;
}

int64_t admission_keep_time(struct admission *admission)
{
    int64_t now = clock_now();
    while (admission->oldest && now - admission->oldest->since >= UNAUTHENTICATED_TIME) {
        admission_log(admission, "a connection did not finish its handshake in time");
        drop(admission, admission->oldest);
    }
    if (admission->paused_until && now >= admission->paused_until)
        pause_until(admission, 0);
    int64_t next = admission->oldest ? admission->oldest->since + UNAUTHENTICATED_TIME : CLOCK_NEVER;
    return admission->paused_until ? clock_earlier(next, admission->paused_until) : next;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

void admission_close(struct admission *admission)
{
    while (admission->oldest)
        drop(admission, admission->oldest);
    admission_abandon(admission);
}

void admission_abandon(struct admission *admission)
{
    for (int i = 0; i < admission->listener_count; i++)
        socket_close(&admission->listeners[i].fd);
}
