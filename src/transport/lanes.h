/* lanes.h - a stream of bytes each way over one socket, or striped over several (lanes), each of them over a
 * network interface of its own if there are that many.
 *
 * A striped stream is cut into blocks. Each travels on one lane behind its number, by which the receiver
 * finds the next one, whatever the delays of the lanes. The sender gives a block to the lane with the fewest
 * unsent bytes, so a faster lane carries more. Lanes may join at any time, on one end before the other; the
 * loss of one is the loss of the stream. A stream that is not striped has one lane and no numbers. Nothing
 * blocks. One thread at a time. */
#ifndef HVD_TRANSPORT_LANES_H
#define HVD_TRANSPORT_LANES_H

#include "net/tls.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LANES_LIMIT        8
#define LANES_HEADER_BYTES 4 /* a block's number */

/* Edge-triggered: `readable` and `writable` say whether a system call may be worth it. */
struct lane {
    int fd;
    struct tls *tls; /* NULL: not encrypted */
    bool readable, writable;
    bool ending;                        /* the kernel has reported the end */
    bool ended;                         /* nothing is left to read before the end */
    int error;                          /* that has ended it; 0: an orderly end */
    uint8_t number[LANES_HEADER_BYTES]; /* of the next block to come, as far as it has been read */
    size_t number_read;
    uint64_t acknowledged; /* bytes that were acknowledged when lanes_find_broken was last called */
    unsigned unanswered;   /* calls in a row that found the same bytes unacknowledged and sent again */
};

struct lanes {
    struct lane list[LANES_LIMIT];
    int count;
    bool striped;
    double limit;
    int outgoing, incoming; /* the lanes of the present blocks; -1: not known yet */
    bool malformed;         /* a block had a number that can't be */
    size_t out_left, in_left;
    uint32_t next_out, next_in; /* numbers */
    uint8_t number[LANES_HEADER_BYTES];
    size_t number_left; /* of it to be sent */
};

/* Without any lane. An outage of less than `limit` seconds ends no connection; 0: there is no limit. */
void lanes_init(struct lanes *lanes, bool striped, double limit);

/* Takes ownership of the connection. False: there are too many. */
bool lanes_add(struct lanes *lanes, int fd, struct tls *tls);

/* Return the bytes that were moved; 0: nothing can move now; -1: the stream is broken, by errno, or has ended
 * (errno 0). */
ssize_t lanes_send(struct lanes *lanes, const struct iovec *parts, int count);
ssize_t lanes_receive(struct lanes *lanes, const struct iovec *parts, int count);

/* Return true if a call may move something. */
bool lanes_may_send(const struct lanes *lanes);
bool lanes_may_receive(const struct lanes *lanes);

/* Returns true if nothing more will arrive. */
bool lanes_ended(const struct lanes *lanes);

/* An errno value of one of the sockets; 0: none has failed. */
int lanes_error(const struct lanes *lanes);

/* To be called periodically. Returns the socket of a lane whose network path is broken: for `limit` calls in
 * a row the other host has acknowledged nothing, though it should have; -1: none. */
int lanes_find_broken(struct lanes *lanes, unsigned limit);

/* Returns true if the other host has received all that was sent. */
bool lanes_are_delivered(const struct lanes *lanes);

/* Notes what a poller has reported of some of the sockets; POLLER_READ, ... */
void lanes_ready(struct lanes *lanes, unsigned what);

/* Closes all sockets: with an orderly end, or (abandon, in a child of fork()) the descriptors only. */
void lanes_close(struct lanes *lanes);
void lanes_abandon(struct lanes *lanes);

#endif
