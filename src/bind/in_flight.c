/* in_flight.c - the list of operations in flight, and the queue of those whose Handle is gone. With the GIL
 * held. */
#include "bind/in_flight.h"

#include <stdlib.h>

/* Dropped operations form a queue, oldest first; it and the list of all operations change only with the GIL
 * held. Releasing memory may run Python, which may come back here in this thread or another: so an operation
 * leaves both before it is released, and no pointer into them is kept. */

/* Unfinished operations tested by one call. They go to the tail, so that one which never ends keeps no other
 * waiting. */
#define TESTS 2

struct dropped {
    struct in_flight operation;
    struct dropped *next;
};

static struct dropped *head, **tail = &head;
static struct in_flight *newest;

void in_flight_enter(struct in_flight *operation)
{
    operation->next = newest;
    operation->pointer = &newest;
    if (newest)
        newest->pointer = &operation->next;
    newest = operation;
}

static void leave(struct in_flight *operation)
{
    *operation->pointer = operation->next;
    if (operation->next)
        operation->next->pointer = operation->pointer;
}

const struct in_flight *in_flight_find(const void *memory, size_t bytes)
{
    for (const struct in_flight *operation = newest; operation; operation = operation->next) {
        if (held_tensors_touch(&operation->held, memory, bytes) && !in_flight_is_over(operation))
            return operation;
    }
    return NULL;
}

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

/* Of one that has left the list. */
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
            leave(&oldest->operation);
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
    leave(operation);
    if (in_flight_is_over(operation)) {
        release(operation);
        return;
    }
    /* Without memory for the queue the operation's memory stays for good. */
    struct dropped *dropped = malloc(sizeof *dropped);
    if (dropped) {
        dropped->operation = *operation;
        in_flight_enter(&dropped->operation);
        push(dropped);
    }
}
