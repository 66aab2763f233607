/* platform_poller.c - see platform_poller.h: epoll and eventfd. No state; any thread. */
#include "base/platform_poller.h"

#include "base/clock.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#define NEWS_LIMIT 64

int platform_event_create(void)
{
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void platform_event_set(int fd)
{
    eventfd_write(fd, 1);
}

void platform_event_clear(int fd)
{
    eventfd_t count;
    eventfd_read(fd, &count);
}

int platform_poller_create(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static bool poller_set(int poller, int operation, int fd, unsigned what, void *tag)
{
    struct epoll_event event = {.data.ptr = tag};
    if (what & POLLER_READ)
        event.events |= EPOLLIN | EPOLLRDHUP;
    if (what & POLLER_WRITE)
        event.events |= EPOLLOUT;
    if (what & POLLER_EDGE)
        event.events |= EPOLLET;
    return epoll_ctl(poller, operation, fd, &event) == 0;
}

bool platform_poller_add(int poller, int fd, unsigned what, void *tag)
{
    return poller_set(poller, EPOLL_CTL_ADD, fd, what, tag);
}

bool platform_poller_change(int poller, int fd, unsigned what, void *tag)
{
    return poller_set(poller, EPOLL_CTL_MOD, fd, what, tag);
}

void platform_poller_remove(int poller, int fd)
{
    epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
}

int platform_poller_read(int poller, struct poller_news *news, int limit)
{
    struct epoll_event events[NEWS_LIMIT];
    int count = epoll_wait(poller, events, limit < NEWS_LIMIT ? limit : NEWS_LIMIT, 0);
    for (int i = 0; i < count; i++) {
        uint32_t what = events[i].events;
        /* Also readable: the owner detects the end by reading. */
        bool end = what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
        news[i] = (struct poller_news){events[i].data.ptr, 0};
        news[i].what |= what & EPOLLIN || end ? POLLER_READ : 0;
        news[i].what |= what & EPOLLOUT ? POLLER_WRITE : 0;
        news[i].what |= end ? POLLER_END : 0;
    }
    return count < 0 ? 0 : count;
}

bool platform_poller_wait(int poller, int event, int64_t deadline)
{
    /* An epoll descriptor is readable while it has events. ppoll takes none of them, and waits in
     * nanoseconds. */
    struct pollfd both[] = {{poller, POLLIN, 0}, {event, POLLIN, 0}};
    struct timespec left = {0};
    int64_t nanoseconds = deadline == CLOCK_NEVER ? 0 : deadline - clock_now();
    if (nanoseconds > 0)
        left = (struct timespec){nanoseconds / CLOCK_SECOND, nanoseconds % CLOCK_SECOND};
    return ppoll(both, 2, deadline == CLOCK_NEVER ? NULL : &left, NULL) > 0 && both[1].revents;
}
