/* in_flight.c - see in_flight.h. Dropped operations form a queue, oldest first, that changes only with the
 * GIL held. Releasing memory may run Python, which may come back here in this thread or another: so an
 * operation leaves the queue before it is released, and no pointer into the queue is kept. */
#include "bind/in_flight.h"

#include <stdlib.h>

/* Unfinished operations tested by one call. They go to the tail, so that one which never ends keeps no other
 * waiting. */
#define TESTS 2

struct dropped {
    struct in_flight operation;
    struct dropped *next;
};

static struct dropped *head, **tail = &head;

static void push(struct dropped *dropped)
{
    dropped->next = NULL;
    *tail = dropped;
    tail = &dropped->next;
}

static struct dropped *pop(void)
{
    struct dropped *oldest = head;
    head = oldest->next;
    if (!head)
        tail = &head;
    return oldest;
}

static void release(struct in_flight *operation)
{
    hvd_release(operation->handle);
    held_tensors_release(&operation->held);
}

void in_flight_reclaim(void)
{
    int unfinished = 0;
    while (head && unfinished < TESTS) {
        struct dropped *oldest = pop();
        if (in_flight_is_over(&oldest->operation)) {
            release(&oldest->operation);
            free(oldest);
        } else {
            push(oldest);
            unfinished++;
        }
    }
}

void in_flight_drop(struct in_flight *operation)
{
    if (in_flight_is_over(operation)) {
        release(operation);
        return;
    }
    /* Without memory for the queue the operation's memory stays for good. */
    struct dropped *dropped = malloc(sizeof *dropped);
    if (dropped) {
        dropped->operation = *operation;
        push(dropped);
    }
}
