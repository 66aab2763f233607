/* timeline.c - the queue of records and the thread that writes them. The thread that makes progress appends
 * records to a bounded queue; the writer thread swaps the queue for an empty one, turns the records into text
 * and appends it to the file, at most every INTERVAL: only these last milliseconds are lost if the job is
 * killed. */
#include "watch/timeline.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/types.h"
#include "watch/trace.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_BYTES  (4u << 20)
#define CHUNK_BYTES  (64u << 10)
#define INTERVAL     (20 * CLOCK_SECOND / 1000)
#define DETAIL_LIMIT 160

/* Numbers of tensors in the file: each epoch has its own. */
#define TENSORS_OF_EPOCH 100000
#define MOST_EPOCHS      20000

struct timeline {
    int rank;
    atomic_uint recording; /* number of the present recording; 0: nothing is recorded */
    atomic_bool marks_cycles;

    pthread_mutex_t queue_lock; /* never held for longer than a copy of one record */
    pthread_cond_t queue_filled;
    char *queue;   /* records, each aligned as malloc aligns */
    size_t queued; /* bytes */
    uint64_t dropped;
    bool sleeps; /* the writer waits for a first record */
    bool ending; /* the writer must empty the queue, and end */

    pthread_mutex_t lock; /* held while starting and stopping; locked before queue_lock */
    unsigned recordings;
    bool running; /* the writer thread runs, and the members below are valid */
    pthread_t thread;
    char *written; /* the records that the writer works on; swapped with `queue` */
    struct trace_file file;
    struct trace trace;
    char *path;
    int error; /* errno of writing the file; the writer's */
};

hvd_code timeline_create(int rank, struct timeline **timeline, hvd_status *status)
{
    struct timeline *created = calloc(1, sizeof *created);
    char *queue = malloc(QUEUE_BYTES), *written = malloc(QUEUE_BYTES);
    if (!created || !queue || !written) {
        free(created);
        free(queue);
        free(written);
        return status_no_memory(status);
    }
    created->rank = rank;
    created->queue = queue;
    created->written = written;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&created->queue_filled, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&created->queue_lock, NULL);
    pthread_mutex_init(&created->lock, NULL);
    *timeline = created;
    return HVD_OK;
}

void timeline_destroy(struct timeline *timeline)
{
    if (!timeline)
        return;
    timeline_stop(timeline);
    pthread_cond_destroy(&timeline->queue_filled);
    pthread_mutex_destroy(&timeline->queue_lock);
    pthread_mutex_destroy(&timeline->lock);
    free(timeline->queue);
    free(timeline->written);
    free(timeline);
}

/* ---- recording --------------------------------------------------------------------------------------- */

/* Writes "[2, 3]", or for a group "[2, 3], [4]", which is cut if it is long. */
static size_t shapes_text(const hvd_request *request, char *text, size_t capacity)
{
    size_t used = 0;
    for (int i = 0; i < request->count; i++) {
        char shape[64];
        shape_text(request->inputs[i].shape, request->inputs[i].ndim, shape, sizeof shape);
        size_t length = strlen(shape);
        if (used + length + 8 > capacity) {
            memcpy(text + used, ", ...", 5);
            return used + 5;
        }
        if (i) {
            memcpy(text + used, ", ", 2);
            used += 2;
        }
        memcpy(text + used, shape, length);
        used += length;
    }
    return used;
}

/* Writes the detail of a finished operation, and returns the type for its record. */
static int detail_of(const struct event *event, char *detail, size_t *length)
{
    const hvd_request *request = event->request;
    if (event->status->code) {
        *length = strnlen(event->status->text, DETAIL_LIMIT);
        memcpy(detail, event->status->text, *length);
        return RECORD_FAILED;
    }
    if (!request->count)
        return -1;
    *length = shapes_text(request, detail, DETAIL_LIMIT);
    return (int)request->inputs[0].dtype;
}

static size_t bytes_of(const struct record *record)
{
    size_t bytes = sizeof *record + record->name_length + record->detail_length,
           grain = _Alignof(max_align_t);
    return (bytes + grain - 1) / grain * grain;
}

/* Called with the queue lock held; returns false if there is no room. */
static bool enqueue(struct timeline *timeline, const struct record *record, const char *name,
                    const char *detail)
{
    size_t bytes = bytes_of(record), before = timeline->queued;
    if (bytes > QUEUE_BYTES - before)
        return false;
    struct record *copy = (struct record *)(void *)(timeline->queue + before);
    *copy = *record;
    if (record->name_length)
        memcpy(copy->texts, name, record->name_length);
    memcpy(copy->texts + record->name_length, detail, record->detail_length);
    timeline->queued += bytes;
    if (timeline->sleeps || (before < QUEUE_BYTES / 2 && timeline->queued >= QUEUE_BYTES / 2))
        pthread_cond_signal(&timeline->queue_filled);
    timeline->sleeps = false;
    return true;
}

void timeline_notice(struct timeline *timeline, const struct event *event)
{
    unsigned recording = atomic_load_explicit(&timeline->recording, memory_order_acquire);
    if (!recording || (event->kind == EVENT_DECIDING && !atomic_load(&timeline->marks_cycles)))
        return;
    char detail[DETAIL_LIMIT];
    size_t detail_length = 0;
    int dtype = event->kind == EVENT_FINISHED ? detail_of(event, detail, &detail_length) : -1;
    /* Horovod has always shown Adasum as an operation of its own. */
    bool adasum = event->operation == HVD_ALLREDUCE && event->reduction == HVD_ADASUM;
    struct record record = {.kind = event->kind,
                            .recording = recording,
                            .time = event->time,
                            .process_set = event->process_set,
                            .rank = event->rank,
                            .phase = event->phase,
                            .operation = adasum ? reduction_name(event->reduction)
                                                : hvd_operation_name(event->operation),
                            .dtype = dtype,
                            .unnamed = event->request && !event->request->name,
                            .name_length = event->name ? (uint32_t)strlen(event->name) : 0,
                            .detail_length = (uint32_t)detail_length};
    if (event->batch)
        record.batch = *event->batch;
    pthread_mutex_lock(&timeline->queue_lock);
    timeline->dropped += !enqueue(timeline, &record, event->name, detail);
    pthread_mutex_unlock(&timeline->queue_lock);
}

/* ---- the writer thread ------------------------------------------------------------------------------- */

static void append(struct timeline *timeline)
{
    struct wire_writer *out = &timeline->trace.out;
    if (!timeline->error && out->failed)
        timeline->error = ENOMEM;
    else if (!timeline->error && out->length)
        timeline->error = trace_file_append(&timeline->file, out->bytes, out->length);
    else
        return;
    out->length = 0;
    if (timeline->error)
        log_warning(timeline->rank,
                    "can't write the timeline %s any more: %s; it ends here, and the job goes on",
                    timeline->path, strerror(timeline->error));
}

static void write_records(struct timeline *timeline, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const struct record *record = (const struct record *)(const void *)(timeline->written + at);
        /* The last records of an earlier recording may have been queued after its end. */
        if (record->recording == timeline->recordings && !timeline->error)
            trace_add(&timeline->trace, record);
        at += bytes_of(record);
        if (timeline->trace.out.length >= CHUNK_BYTES)
            append(timeline);
    }
    append(timeline);
}

/* Waits for a first record, or the end. */
static void await_records(struct timeline *timeline)
{
    while (!timeline->queued && !timeline->ending) {
        timeline->sleeps = true;
        pthread_cond_wait(&timeline->queue_filled, &timeline->queue_lock);
    }
    timeline->sleeps = false;
}

/* Waits until INTERVAL has passed, the queue is half full, or the end. */
static void await_interval(struct timeline *timeline)
{
    int64_t deadline = clock_now() + INTERVAL;
    struct timespec until = {.tv_sec = deadline / CLOCK_SECOND, .tv_nsec = deadline % CLOCK_SECOND};
    int error = 0;
    while (!error && !timeline->ending && timeline->queued < QUEUE_BYTES / 2)
        error = pthread_cond_timedwait(&timeline->queue_filled, &timeline->queue_lock, &until);
}

static void *write_timeline(void *argument)
{
    struct timeline *timeline = argument;
    pthread_mutex_lock(&timeline->queue_lock);
    for (await_records(timeline); timeline->queued; await_records(timeline)) {
        size_t bytes = timeline->queued;
        char *empty = timeline->written;
        timeline->written = timeline->queue;
        timeline->queue = empty;
        timeline->queued = 0;
        pthread_mutex_unlock(&timeline->queue_lock);
        write_records(timeline, bytes);
        pthread_mutex_lock(&timeline->queue_lock);
        await_interval(timeline);
    }
    pthread_mutex_unlock(&timeline->queue_lock);
    return NULL;
}

/* ---- start and stop ---------------------------------------------------------------------------------- */

static void stop(struct timeline *timeline)
{
    if (!timeline->running)
        return;
    atomic_store(&timeline->recording, 0);
    pthread_mutex_lock(&timeline->queue_lock);
    timeline->ending = true;
    pthread_cond_signal(&timeline->queue_filled);
    pthread_mutex_unlock(&timeline->queue_lock);
    pthread_join(timeline->thread, NULL);
    pthread_mutex_lock(&timeline->queue_lock);
    uint64_t dropped = timeline->dropped;
    timeline->dropped = 0;
    pthread_mutex_unlock(&timeline->queue_lock);
    trace_finish(&timeline->trace, clock_now(), dropped);
    append(timeline);
    if (dropped)
        log_warning(timeline->rank,
                    "the timeline %s lacks %llu events, which came faster than they could be written",
                    timeline->path, (unsigned long long)dropped);
    trace_free(&timeline->trace);
    trace_file_close(&timeline->file);
    free(timeline->path);
    timeline->running = false;
}

/* Opens file, trace and writer of a new recording; leaves none of them open if it fails. */
static hvd_code open_recording(struct timeline *timeline, const char *path, int epoch, hvd_status *status)
{
    struct wire_writer head = {0};
    int64_t start = clock_now();
    trace_head(&head);
    char *copy = strdup(path);
    hvd_code code = HVD_OK;
    if (head.failed || !copy)
        code = status_no_memory(status);
    else if (epoch == 0 || !trace_file_continue(&timeline->file, path, &start))
        code = trace_file_open(&timeline->file, path, (const char *)head.bytes, status);
    wire_writer_free(&head);
    if (code)
        goto free_copy;
    timeline->path = copy;
    timeline->error = 0;
    timeline->recordings++;
    trace_init(&timeline->trace, start);
    timeline->trace.last_pid = epoch % MOST_EPOCHS * TENSORS_OF_EPOCH;
    timeline->ending = false; /* no writer runs */
    int error = thread_start(&timeline->thread, write_timeline, timeline);
    if (!error)
        return HVD_OK;
    code = status_set_errno(status, error, "can't start the thread that writes the timeline %s", path);
    trace_file_close(&timeline->file);
free_copy:
    free(copy);
    return code;
}

hvd_code timeline_start(struct timeline *timeline, const char *path, bool mark_cycles, int epoch,
                        hvd_status *status)
{
    pthread_mutex_lock(&timeline->lock);
    stop(timeline);
    hvd_code code = open_recording(timeline, path, epoch, status);
    if (code)
        goto unlock;
    timeline->running = true;
    atomic_store(&timeline->marks_cycles, mark_cycles);
    atomic_store_explicit(&timeline->recording, timeline->recordings, memory_order_release);
unlock:
    pthread_mutex_unlock(&timeline->lock);
    return code;
}

void timeline_stop(struct timeline *timeline)
{
    pthread_mutex_lock(&timeline->lock);
    stop(timeline);
    pthread_mutex_unlock(&timeline->lock);
}
