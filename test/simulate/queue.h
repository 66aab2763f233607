/* queue.h - events in the order of virtual time; equal times in the order in which they were added. */
#ifndef SIMULATE_QUEUE_H
#define SIMULATE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_kind {
    EVENT_SUBMIT,  /* name */
    EVENT_JOIN,    /* the member joins */
    EVENT_TURN,    /* flush */
    EVENT_TIMER,   /* flush, as the coordinator requested */
    EVENT_DELIVER, /* peer (sender), message */
    EVENT_DONE,    /* batch */
    EVENT_OPEN,    /* the set that was added is connected */
    EVENT_LEAVE,   /* the rank (of the job) */
    EVENT_CUT,     /* some edge of some set */
    EVENT_LOOK,    /* of the rank (of the job) at its silent peers */
    EVENT_LOST,    /* the rank (of the job) loses peer (of the job) */
    EVENT_BROKEN   /* the rank (of the job) finds the network path to some peer broken */
};

struct message {
    size_t length;
    uint8_t bytes[];
};

struct event {
    int64_t time;
    uint64_t number;
    enum event_kind kind;
    int set, rank; /* the member; rank of the set */
    int argument;  /* name, peer, batch */
    struct message *message;
};

struct queue {
    struct event *heap;
    size_t count, capacity;
    uint64_t next_number;
};

void queue_free(struct queue *queue);
void queue_push(struct queue *queue, struct event event);
bool queue_pop(struct queue *queue, struct event *event); /* false when it is empty */

#endif
