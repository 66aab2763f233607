/* admission.h - accepts connections from listeners, and bounds in number and time those that have not
 * authenticated yet, so that a flood or a stalled connection costs little and no honest one is refused. The
 * owner decides what becomes of an authenticated connection.
 *
 * At most UNAUTHENTICATED_LIMIT connections are open at once, each for a limited time. A connection younger
 * than its grace is not dropped in favour of a newer one. Those that have sent no hello are dropped first,
 * and their grace shrinks with the number of connections in the kernel's queue, so that the newest waits for
 * about half a second, however many arrived before it. A dropped initiator tries again.
 *
 * While no connection can be accepted (at the limit, or without a descriptor) the listeners are masked in the
 * poller, until a connection leaves room or for a short time. One thread; lists change under atfork_lock, so
 * that a child of fork() finds them consistent. */
#ifndef HVD_NET_ADMISSION_H
#define HVD_NET_ADMISSION_H

#include "base/clock.h"
#include "horovod.h"
#include "net/addresses.h"
#include "net/handshake.h"

#define UNAUTHENTICATED_LIMIT          256
#define UNAUTHENTICATED_TIME           (10 * CLOCK_SECOND)
#define UNAUTHENTICATED_GRACE          (CLOCK_SECOND / 2)
#define UNAUTHENTICATED_SHORTEST_GRACE (CLOCK_SECOND / 50)

/* Listeners of one owner: of each of this many kinds (a transport, say), at each of its addresses. */
#define ADMISSION_LISTENERS (8 * ADDRESSES_LIMIT)

/* A connection that has not authenticated; a member of the owner's own struct. */
struct newcomer {
    struct newcomer *next, *previous; /* a ring in the order of arrival */
    int64_t since;
    const struct handshake *handshake;
};

struct admission_operations {
    /* As accept(2), and writes where the connection comes from; EPERM: it is another user's, and was closed.
     */
    int (*accept)(int listener, int kind, char from[SOCKET_TEXT]);
    /* Takes ownership of the descriptor, also on failure, and adds the newcomer. False: out of memory. */
    bool (*adopt)(void *owner, int fd, int kind, const char *from);
    /* Closes and frees a newcomer that was removed. */
    void (*drop)(void *owner, struct newcomer *newcomer);
    /* Returns true if the owner can hold one more connection of any state; NULL: always. */
    bool (*has_room)(void *owner);
};

struct admission {
    const struct admission_operations *operations;
    void *owner;
    int poller;
    void *tag; /* of the listeners in the poller */
    int rank;  /* for the log, as the name in front of each line; -1: none */
    char name[48];
    struct {
        int fd, kind;
    } listeners[ADMISSION_LISTENERS];
    int listener_count;
    struct newcomer *oldest;
    int count;            /* of newcomers */
    int64_t paused_until; /* no connection is accepted before; 0: not paused */
    struct rate_limit rate_limit;
};

/* Takes ownership of a listener. */
hvd_code admission_listen(struct admission *admission, int listener, int kind, hvd_status *status);

/* Accepts the connections that wait, when the poller has reported a listener. HVD_SYSTEM: there is no
 * descriptor for one, and accepting is paused. */
hvd_code admission_accept(struct admission *admission, hvd_status *status);

/* Drops newcomers past their time, after what they have sent was read, and ends a pause. Returns when to call
 * it again; CLOCK_NEVER: not at all. */
int64_t admission_keep_time(struct admission *admission);

void admission_add(struct admission *admission, struct newcomer *newcomer, const struct handshake *handshake);
void admission_remove(struct admission *admission, struct newcomer *newcomer);
/* A connection has ended or was authenticated: accepting continues if it was paused. */
void admission_resume(struct admission *admission);

/* Writes a line of log about what is refused, at a bounded rate. */
void admission_log(struct admission *admission, const char *text);

/* Closes the listeners, and drops the newcomers. */
void admission_close(struct admission *admission);
/* In the child after fork: closes the listeners only. */
void admission_abandon(struct admission *admission);

/* For the next connection of the listener at the limit: 0 if the newcomer that was accepted at `since` may be
 * dropped for it; otherwise until when it must wait. */
int64_t admission_wait(int listener, int64_t since, bool is_silent);

#endif
