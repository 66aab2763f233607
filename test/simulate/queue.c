/* queue.c - see queue.h: a binary heap. */
#include "queue.h"

#include <stdlib.h>

static bool comes_before(const struct event *a, const struct event *b)
{
    return a->time != b->time ? a->time < b->time : a->number < b->number;
}

void queue_free(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        free(queue->heap[i].message);
    free(queue->heap);
    *queue = (struct queue){0};
}

void queue_push(struct queue *queue, struct event event)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity ? queue->capacity * 2 : 1024;
        queue->heap = realloc(queue->heap, queue->capacity * sizeof *queue->heap);
        if (!queue->heap)
            abort();
    }
    event.number = queue->next_number++;
    size_t at = queue->count++;
    while (at > 0 && comes_before(&event, &queue->heap[(at - 1) / 2])) {
        queue->heap[at] = queue->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    queue->heap[at] = event;
}

bool queue_pop(struct queue *queue, struct event *event)
{
    if (!queue->count)
        return false;
    *event = queue->heap[0];
    struct event last = queue->heap[--queue->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && comes_before(&queue->heap[child + 1], &queue->heap[child]))
            child++;
        if (!comes_before(&queue->heap[child], &last))
            break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    queue->heap[at] = last;
    return true;
}
