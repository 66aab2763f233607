/* timeline.c - see timeline.h. The driver copies events into the backlog; the writer thread turns them into
 * text and appends it to the file, at most every NAP: after a burst nothing is lost but those last few
 * milliseconds if the job is killed. */
#include "watch/timeline.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/platform.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/types.h"
#include "watch/backlog.h"
#include "watch/trace.h"
#include "watch/trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BACKLOG_BYTES (4u << 20)
#define CHUNK_BYTES   (64u << 10)
#define NAP           (20 * CLOCK_SECOND / 1000)
#define DETAIL_LIMIT  160

/* What the writer thread does; a futex word. */
enum { WRITER_WORKS, WRITER_NAPS, WRITER_SLEEPS };

struct timeline {
    int rank;
    struct backlog backlog;
    atomic_uint recording; /* 0: nothing; else the number of the present recording */
    atomic_bool marks_cycles;
    atomic_uint writer;
    atomic_bool ending; /* the writer has to empty the backlog, and end */

    pthread_mutex_t lock; /* of starting and stopping */
    unsigned recordings;
    bool running; /* the writer thread, and the rest below */
    pthread_t thread;
    struct trace_file file;
    struct trace trace;
    char *path;
    int error; /* what ended the writing; the writer's */
};

hvd_code timeline_create(int rank, struct timeline **timeline, hvd_status *status)
{
    struct timeline *created = calloc(1, sizeof *created);
    if (!created || !backlog_init(&created->backlog, BACKLOG_BYTES)) {
        free(created);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the timeline");
    }
    created->rank = rank;
    pthread_mutex_init(&created->lock, NULL);
    *timeline = created;
    return HVD_OK;
}

void timeline_destroy(struct timeline *timeline)
{
    if (!timeline)
        return;
    timeline_stop(timeline);
    backlog_fini(&timeline->backlog);
    pthread_mutex_destroy(&timeline->lock);
    free(timeline);
}

/* ---- the driver's side ------------------------------------------------------------------------------- */

/* "[2, 3]"; a group's as "[2, 3], [4]", cut when it gets long. */
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

/* The detail of an end, and the type of its record. */
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

static void wake_writer(struct timeline *timeline)
{
    unsigned writer = atomic_load(&timeline->writer);
    if (writer == WRITER_WORKS || (writer == WRITER_NAPS && !backlog_is_half_full(&timeline->backlog)))
        return;
    if (atomic_exchange(&timeline->writer, WRITER_WORKS) != WRITER_WORKS)
        futex_wake_all(&timeline->writer);
}

/* Horovod has always shown Adasum as an operation of its own. */
static const char *operation_of(const struct event *event)
{
    bool adasum = event->operation == HVD_ALLREDUCE && event->reduction == HVD_ADASUM;
    return adasum ? reduction_name(event->reduction) : hvd_operation_name(event->operation);
}

void timeline_notice(struct timeline *timeline, const struct event *event)
{
    unsigned recording = atomic_load_explicit(&timeline->recording, memory_order_acquire);
    if (!recording || (event->kind == EVENT_DECIDING && !atomic_load(&timeline->marks_cycles)))
        return;
    char detail[DETAIL_LIMIT];
    size_t detail_length = 0;
    int dtype = event->kind == EVENT_FINISHED ? detail_of(event, detail, &detail_length) : -1;
    size_t name_length = event->name ? strlen(event->name) : 0;
    struct record *record = backlog_reserve(&timeline->backlog, sizeof *record + name_length + detail_length);
    if (!record)
        return;
    *record = (struct record){.kind = event->kind,
                              .recording = recording,
                              .time = event->time,
                              .process_set = event->process_set,
                              .rank = event->rank,
                              .phase = event->phase,
                              .operation = operation_of(event),
                              .dtype = dtype,
                              .unnamed = event->request && !event->request->name,
                              .name_length = (uint32_t)name_length,
                              .detail_length = (uint32_t)detail_length};
    if (event->batch)
        record->batch = *event->batch;
    if (name_length)
        memcpy(record->texts, event->name, name_length);
    memcpy(record->texts + name_length, detail, detail_length);
    backlog_commit(&timeline->backlog);
    wake_writer(timeline);
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

/* Writes what waits; false when nothing did. */
static bool write_backlog(struct timeline *timeline)
{
    const struct record *record;
    bool any = false;
    for (; (record = backlog_first(&timeline->backlog)); any = true) {
        /* One of an earlier recording may come late. */
        if (record->recording == timeline->recordings && !timeline->error)
            trace_add(&timeline->trace, record);
        backlog_drop(&timeline->backlog);
        if (timeline->trace.out.length >= CHUNK_BYTES)
            append(timeline);
    }
    append(timeline);
    return any;
}

static void rest(struct timeline *timeline, unsigned how, int64_t deadline)
{
    atomic_store(&timeline->writer, how);
    bool needed =
        atomic_load(&timeline->ending) || (how == WRITER_SLEEPS && backlog_first(&timeline->backlog) != NULL);
    if (!needed)
        futex_wait(&timeline->writer, how, deadline);
    atomic_store(&timeline->writer, WRITER_WORKS);
}

static void *write_timeline(void *argument)
{
    struct timeline *timeline = argument;
    while (!atomic_load(&timeline->ending)) {
        if (write_backlog(timeline))
            rest(timeline, WRITER_NAPS, clock_now() + NAP);
        else
            rest(timeline, WRITER_SLEEPS, CLOCK_NEVER);
    }
    write_backlog(timeline);
    return NULL;
}

/* ---- start and stop ---------------------------------------------------------------------------------- */

static void stop(struct timeline *timeline)
{
    if (!timeline->running)
        return;
    atomic_store(&timeline->recording, 0);
    atomic_store(&timeline->ending, true);
    atomic_store(&timeline->writer, WRITER_WORKS);
    futex_wake_all(&timeline->writer);
    pthread_join(timeline->thread, NULL);
    uint64_t dropped = atomic_exchange(&timeline->backlog.dropped, 0);
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

/* File, trace and writer of a new recording; undone on a failure. */
static hvd_code open_recording(struct timeline *timeline, const char *path, hvd_status *status)
{
    struct wire_writer head = {0};
    int64_t start = clock_now();
    trace_head(&head);
    char *copy = strdup(path);
    if (head.failed || !copy) {
        wire_writer_free(&head);
        free(copy);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the timeline %s", path);
    }
    hvd_code code = trace_file_open(&timeline->file, path, (const char *)head.bytes, status);
    wire_writer_free(&head);
    if (code) {
        free(copy);
        return code;
    }
    timeline->path = copy;
    timeline->error = 0;
    timeline->recordings++;
    trace_init(&timeline->trace, start);
    atomic_store(&timeline->ending, false);
    int error = thread_start(&timeline->thread, write_timeline, timeline);
    if (!error)
        return HVD_OK;
    trace_file_close(&timeline->file);
    free(copy);
    return status_set_errno(status, error, "can't start the thread that writes the timeline %s", path);
}

hvd_code timeline_start(struct timeline *timeline, const char *path, bool mark_cycles, hvd_status *status)
{
    pthread_mutex_lock(&timeline->lock);
    stop(timeline);
    hvd_code code = open_recording(timeline, path, status);
    if (!code) {
        timeline->running = true;
        atomic_store(&timeline->marks_cycles, mark_cycles);
        atomic_store_explicit(&timeline->recording, timeline->recordings, memory_order_release);
    }
    pthread_mutex_unlock(&timeline->lock);
    return code;
}

void timeline_stop(struct timeline *timeline)
{
    pthread_mutex_lock(&timeline->lock);
    stop(timeline);
    pthread_mutex_unlock(&timeline->lock);
}
