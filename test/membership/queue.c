/* queue.c - see queue.h: a binary heap. */
#include "queue.h"

#include <stdlib.h>

static bool precedes(const struct happening *a, const struct happening *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static void swap(struct happening *a, struct happening *b)
{
    struct happening kept = *a;
    *a = *b;
    *b = kept;
}

void queue_push(struct queue *queue, struct happening happening)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity ? 2 * queue->capacity : 256;
        queue->heap = realloc(queue->heap, queue->capacity * sizeof *queue->heap);
        if (!queue->heap)
            abort();
    }
    happening.number = queue->next_number++;
    queue->heap[queue->count] = happening;
    for (size_t at = queue->count++; at && precedes(&queue->heap[at], &queue->heap[(at - 1) / 2]);
         at = (at - 1) / 2)
        swap(&queue->heap[at], &queue->heap[(at - 1) / 2]);
}

bool queue_pop(struct queue *queue, struct happening *happening)
{
    struct happening *heap = queue->heap;
    if (!queue->count)
        return false;
    *happening = heap[0];
    heap[0] = heap[--queue->count];
    for (size_t at = 0, child; (child = 2 * at + 1) < queue->count; at = child) {
        child += child + 1 < queue->count && precedes(&heap[child + 1], &heap[child]);
        if (!precedes(&heap[child], &heap[at]))
            break;
        swap(&heap[child], &heap[at]);
    }
    return true;
}
