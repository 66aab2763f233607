/* in_flight.c - keeps two lists: all operations in flight, and a queue, oldest first, of those that Python
 * has dropped before they finished. Any Python thread calls these functions. Both lists change only with the
 * GIL held. Releasing memory may run Python code, which may call these functions again in this thread or
 * another; so an operation leaves both lists before it is released, and no pointer into them is kept. */
#include "bind/in_flight.h"

#include <stdlib.h>

/* One call tests at most this many unfinished operations. They move to the tail, so that one that never ends
 * delays no other. */
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
        if (held_tensors_overlap(&operation->held, memory, bytes) && !in_flight_is_over(operation))
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

/* Releases the memory of an operation that has left the list. */
static void release(struct in_flight *operation)
{
    hvd_release(operation->handle);
    held_tensors_release(&operation->held);
}

void in_flight_reclaim(void)
{
    int unfinished = 0;
    while (head && unfinished < TESTS) {
        struct dropped *oldest = head;
        head = oldest->next;
        if (!head)
            tail = &head;
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
    /* If there is no memory for the queue, the memory of the operation is never released. */
    struct dropped *dropped = malloc(sizeof *dropped);
    if (dropped) {
        dropped->operation = *operation;
        in_flight_enter(&dropped->operation);
        push(dropped);
    }
}
