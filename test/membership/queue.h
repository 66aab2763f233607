/* queue.h - what will happen, in the order of virtual time; equal times in the order in which they were
 * added.
 */
#ifndef MEMBERSHIP_QUEUE_H
#define MEMBERSHIP_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind {
    KIND_TICK,
    KIND_DISCOVER,
    KIND_FAULT,
    KIND_REST,       /* faults end */
    KIND_TIMER,      /* slot a, number b */
    KIND_CONTINUE,   /* slot a: a stopped process */
    KIND_COLLECTIVE, /* slot a, epoch b, number c */
    KIND_ERROR,      /* slot a, epoch b, lost rank c */
    KIND_SILENCE,    /* slot a has been stopped in epoch b for as long as others wait */
    KIND_KILL,       /* slot a, step b: its time is up */
    KIND_GROUP,      /* slot a: its process group ends */
    KIND_ORPHANS,    /* host a: its agent has ended a while ago */
    KIND_REPAIR,     /* host a is up again */
    KIND_LOST,       /* launcher: host a, connection b, silent c */
    /* agent -> launcher: host a, connection b, slot c, detail d */
    KIND_PREPARED,
    KIND_UNPREPARED,
    KIND_NOT_STARTED,
    KIND_WAITS,
    KIND_DONE,
    KIND_LEAVES,      /* it was asked to leave */
    KIND_HOST_LEAVES, /* the same of all of the host */
    KIND_ENDED,
    KIND_GONE,
    /* launcher -> agent: host a, connection b */
    KIND_PREPARE,
    KIND_START, /* slot c */
    KIND_END,   /* slot c, step d */
    KIND_EPOCH, /* c */
    KIND_NOTICE /* epoch c, bits d */
};

struct happening {
    int64_t time;
    uint64_t number;
    enum kind kind;
    int a, b, c, d;
};

struct queue {
    struct happening *heap;
    size_t count, capacity;
    uint64_t next_number;
};

void queue_push(struct queue *queue, struct happening happening);
bool queue_pop(struct queue *queue, struct happening *happening); /* false when it is empty */

#endif
