/* delay.c - a switch that holds every frame for the same time: bench_delay MICROSECONDS DEVICE PID... makes a
 * TAP device of this name in the network namespace of each process, and connects them while it runs. The last
 * byte of a device's address is its place in the list, from 1: there is nothing to learn. For kernels without
 * netem. One thread. */
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST_PORTS = 64, MOST_FRAMES = 256, FRAME_BYTES = 9014 };

struct frame {
    int64_t due;
    int from;
    ssize_t length;
    unsigned char bytes[FRAME_BYTES]; /* Ethernet's: where to, six bytes, comes first */
};

static struct pollfd ports[MOST_PORTS];
static int port_count;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void add_port(const char *device, const char *pid)
{
    char path[64];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET))
        fail(path);
    close(space);
    int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request))
        fail("/dev/net/tun");
    ports[port_count++] = (struct pollfd){.fd = tap, .events = POLLIN};
}

static void deliver(const struct frame *frame)
{
    bool to_all = frame->bytes[0] & 1;
    for (int i = 0; i < port_count; i++) {
        bool here = to_all ? i != frame->from : i == frame->bytes[5] - 1;
        /* EIO: the device is down, and frames are lost as on any wire. */
        if (here && write(ports[i].fd, frame->bytes, (size_t)frame->length) < 0 && errno != EIO)
            fail("write");
    }
}

/* Frames leave in the order in which they came, so that one queue has them all. When it is full, they wait in
 * the devices' own. */
static void carry(int64_t delay)
{
    static struct frame queue[MOST_FRAMES];
    for (size_t first = 0, next = 0;;) {
        int64_t left = first < next ? queue[first % MOST_FRAMES].due - clock_now() : 0;
        left = left < 0 ? 0 : left;
        struct timespec wait = {left / CLOCK_SECOND, left % CLOCK_SECOND};
        if (ppoll(ports, (nfds_t)port_count, first < next ? &wait : NULL, NULL) < 0)
            fail("ppoll");
        for (int i = 0; i < port_count && next < first + MOST_FRAMES; i++) {
            struct frame *frame = &queue[next % MOST_FRAMES];
            if (!ports[i].revents)
                continue;
            frame->length = read(ports[i].fd, frame->bytes, sizeof frame->bytes);
            if (frame->length < 0)
                fail("read");
            frame->from = i;
            frame->due = clock_now() + delay;
            next++;
        }
        while (first < next && queue[first % MOST_FRAMES].due <= clock_now())
            deliver(&queue[first++ % MOST_FRAMES]);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 3 + MOST_PORTS) {
        fprintf(stderr, "usage: %s MICROSECONDS DEVICE PID...\n", argv[0]);
        return 2;
    }
    for (int i = 3; i < argc; i++)
        add_port(argv[2], argv[i]);
    /* A wire waits for no core; where that may not be asked for, at least the timer is exact. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
    prctl(PR_SET_TIMERSLACK, 1);
    carry(strtol(argv[1], NULL, 10) * 1000);
}
