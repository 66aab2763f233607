/* platform_poller.h - waits for many descriptors, and for events that other threads set. All calls report
 * faults by errno. Any thread. */
#ifndef HVD_BASE_PLATFORM_POLLER_H
#define HVD_BASE_PLATFORM_POLLER_H

#include <stdbool.h>
#include <stdint.h>

/* A counter that makes its descriptor readable until it is cleared. */
int platform_event_create(void);
void platform_event_set(int fd);
void platform_event_clear(int fd);

/* Waits for many descriptors. POLLER_EDGE: edge-triggered. */
enum { POLLER_READ = 1, POLLER_WRITE = 2, POLLER_END = 4, POLLER_EDGE = 8 };
struct poller_news {
    void *tag;
    unsigned what;
};
int platform_poller_create(void);
bool platform_poller_add(int poller, int fd, unsigned what, void *tag);
void platform_poller_remove(int poller, int fd);
bool platform_poller_change(int poller, int fd, unsigned what, void *tag);
/* Returns the news that there are now, at most `limit`. */
int platform_poller_read(int poller, struct poller_news *news, int limit);
/* Blocks until the poller has news, the event (-1: none) is set, or `deadline`; whether the event is set. */
bool platform_poller_wait(int poller, int event, int64_t deadline);

#endif
