/* starter_watch.c - one thread, which sleeps but for messages of the starter. SIGTERM lets the program write
 * a checkpoint; a program that ignores it, or is stuck, is killed. */
#include "engine/starter_watch.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "base/thread.h"
#include "net/socket.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

static bool has_ended(struct starter_watch *watch)
{
    struct poller_news news;
    bool ended = atomic_load(&watch->lost);
    while (!ended && platform_poller_read(watch->poller, &news, 1) > 0)
        ended = news.what & POLLER_END;
    return ended;
}

static void end_process(struct starter_watch *watch)
{
    log_error(-1, "the process that has started this one, and decides on its epochs, has ended; this one "
                  "ends, too");
    kill(watch->process, SIGTERM);
    int64_t deadline = clock_after(watch->grace_seconds);
    while (!atomic_load(&watch->closing) && clock_now() < deadline) {
        platform_poller_wait(-1, watch->event, deadline);
        platform_event_clear(watch->event);
    }
    if (!atomic_load(&watch->closing))
        kill(watch->process, SIGKILL);
}

static void *run(void *argument)
{
    struct starter_watch *watch = argument;
    bool ended = false;
    while (!ended && !atomic_load(&watch->closing)) {
        platform_poller_wait(watch->poller, watch->event, CLOCK_NEVER);
        ended = has_ended(watch);
        platform_event_clear(watch->event);
    }
    if (ended && !atomic_load(&watch->closing) && watch->needed(watch->owner))
        end_process(watch);
    return NULL;
}

hvd_code starter_watch_open(struct starter_watch *watch, int connection, hvd_status *status)
{
    watch->poller = platform_poller_create();
    watch->event = platform_event_create();
    bool made = watch->poller >= 0 && watch->event >= 0 &&
                platform_poller_add(watch->poller, connection, POLLER_READ | POLLER_EDGE, NULL);
    watch->process = getpid();
    int error = made ? thread_start_small(&watch->thread, run, watch) : errno;
    if (!error)
        return HVD_OK;
    socket_close(&watch->poller);
    socket_close(&watch->event);
    watch->process = 0;
    return status_set_errno(status, error, "can't watch the connection to the starter");
}

void starter_watch_close(struct starter_watch *watch)
{
    if (!watch->process)
        return;
    if (watch->process == getpid()) { /* a child of fork() has no such thread */
        atomic_store(&watch->closing, true);
        platform_event_set(watch->event);
        pthread_join(watch->thread, NULL);
    }
    socket_close(&watch->poller);
    socket_close(&watch->event);
    watch->process = 0;
}

void starter_watch_report(struct starter_watch *watch)
{
    if (!watch->process)
        return;
    atomic_store(&watch->lost, true);
    platform_event_set(watch->event);
}
