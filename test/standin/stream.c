/* stream.c - streams and events. A stream is a queue that a thread works off; an event is a position in a
 * queue. The default stream waits for the blocking streams of its device and they wait for it, as CUDA's
 * legacy rules say. Records of streams are kept until the process ends, since events refer to them. */
#include "standin/stream.h"

#include "random.h"
#include "standin/calls.h"
#include "standin/context.h"
#include "standin/standin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct CUstream_st {
    int device;
    bool is_default; /* the legacy one of its device */
    bool blocking;   /* ordered with the default stream */
    bool destroyed;  /* queued work still runs */
    bool capturing;
    bool held;    /* by a test */
    bool running; /* its thread works */
    uint64_t submitted, completed;
    struct work *head, **tail;
    pthread_cond_t startable; /* wakes its thread */
    uint64_t random;
    struct CUstream_st *next;
};

struct CUevent_st {
    int device;
    bool captured;              /* it was recorded in a stream that was captured */
    struct CUstream_st *stream; /* NULL: it was never recorded */
    uint64_t position;          /* it is done when the stream has completed that many */
};

/* A place in the queue of a stream that waits for a position of another one. */
struct wait {
    struct work work; /* `run` is NULL */
    struct CUstream_st *stream;
    uint64_t position;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct CUstream_st *streams, *default_streams[DEVICES_LIMIT];
static uint64_t random_state;
static atomic_int delay_limit;
static _Thread_local struct CUstream_st *own_streams[DEVICES_LIMIT]; /* of this thread */

void stream_open(int delay, int seed)
{
    random_state = (uint64_t)seed;
    standin_delay(delay);
}

void standin_delay(int microseconds)
{
    atomic_store(&delay_limit, microseconds);
}

/* ---- the threads -------------------------------------------------------------------------------------- */

static bool is_startable(const struct CUstream_st *stream)
{
    const struct wait *wait = (const struct wait *)stream->head;
    if (!stream->head || stream->held)
        return false;
    return stream->head->run || wait->stream->completed >= wait->position;
}

static void be_late(struct CUstream_st *stream)
{
    int64_t late = random_below(&stream->random, atomic_load(&delay_limit) + 1);
    if (late)
        nanosleep(&(struct timespec){late / 1000000, late % 1000000 * 1000}, NULL);
}

/* Wakes the callers that wait, and the streams that may start something. There are many of them: one
 * condition for all would cost more than their work. */
static void wake(void)
{
    pthread_cond_broadcast(&changed);
    for (struct CUstream_st *each = streams; each; each = each->next)
        if (is_startable(each) || each->destroyed)
            pthread_cond_signal(&each->startable);
}

static void *serve(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!is_startable(stream) && (stream->head || !stream->destroyed))
            pthread_cond_wait(&stream->startable, &lock);
        struct work *work = stream->head;
        if (!work)
            break;
        stream->running = true;
        pthread_mutex_unlock(&lock);
        if (work->run && !context_result(stream->device)) {
            be_late(stream);
            work->run(work);
        }
        pthread_mutex_lock(&lock);
        stream->running = false;
        stream->head = work->next;
        if (!stream->head)
            stream->tail = &stream->head;
        stream->completed++;
        wake();
        work->release(work);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* With the lock. */
static struct CUstream_st *add_stream(int device, bool blocking)
{
    pthread_t thread;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        abort();
    stream->device = device;
    stream->blocking = blocking;
    stream->tail = &stream->head;
    pthread_cond_init(&stream->startable, NULL);
    stream->random = random_next(&random_state);
    if (pthread_create(&thread, NULL, serve, stream))
        abort();
    pthread_detach(thread);
    stream->next = streams;
    return streams = stream;
}

static void queue(struct CUstream_st *stream, struct work *work)
{
    work->device = stream->device;
    work->next = NULL;
    *stream->tail = work;
    stream->tail = &work->next;
    stream->submitted++;
    pthread_cond_signal(&stream->startable);
}

static void release_wait(struct work *work)
{
    free(work);
}

static void queue_wait(struct CUstream_st *stream, struct CUstream_st *other, uint64_t position)
{
    if (other == stream || other->completed >= position)
        return;
    struct wait *wait = malloc(sizeof *wait);
    if (!wait)
        abort();
    *wait = (struct wait){.work = {.release = release_wait}, .stream = other, .position = position};
    queue(stream, &wait->work);
}

/* ---- handles ------------------------------------------------------------------------------------------ */

static struct CUstream_st *default_stream(int device)
{
    if (!default_streams[device]) {
        default_streams[device] = add_stream(device, false);
        default_streams[device]->is_default = true;
    }
    return default_streams[device];
}

static struct CUstream_st *own_stream(int device)
{
    if (!own_streams[device])
        own_streams[device] = add_stream(device, true);
    return own_streams[device];
}

/* The stream of a handle; NULL: it is none. With the lock. */
static struct CUstream_st *resolve(CUstream handle)
{
    const struct CUctx_st *context = context_current();
    if (!handle || (uintptr_t)handle == CUDA_STREAM_LEGACY)
        return context ? default_stream(context->device) : NULL;
    if ((uintptr_t)handle == CUDA_STREAM_PER_THREAD)
        return context ? own_stream(context->device) : NULL;
    struct CUstream_st *stream = streams;
    while (stream && (stream != handle || stream->destroyed))
        stream = stream->next;
    return stream;
}

/* The default stream can't be used while a blocking stream of its device is captured. */
static CUresult check_implicit_capture(const struct CUstream_st *stream)
{
    for (const struct CUstream_st *each = streams; each && stream->is_default; each = each->next)
        if (each->capturing && each->blocking && each->device == stream->device)
            return CUDA_CAPTURE_IMPLICIT;
    return CUDA_OK;
}

/* Locks, and returns the stream of a handle in *stream; unlocks on failure. */
static CUresult lock_stream(CUstream handle, struct CUstream_st **stream)
{
    pthread_mutex_lock(&lock);
    *stream = resolve(handle);
    CUresult result = *stream ? check_implicit_capture(*stream) : CUDA_INVALID_HANDLE;
    if (result)
        pthread_mutex_unlock(&lock);
    return result;
}

static CUresult unlock(CUresult result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

static void set_capturing(struct CUstream_st *stream, bool capturing)
{
    calls_count_captures((int)capturing - (int)stream->capturing);
    stream->capturing = capturing;
}

/* Puts the stream behind those with which CUDA orders it implicitly. */
static void order_with_default(struct CUstream_st *stream)
{
    struct CUstream_st *legacy = default_streams[stream->device];
    if (stream->blocking && legacy)
        queue_wait(stream, legacy, legacy->submitted);
    for (struct CUstream_st *each = streams; each && stream->is_default; each = each->next)
        if (each->blocking && each->device == stream->device)
            queue_wait(stream, each, each->submitted);
}

CUresult stream_submit(CUstream handle, struct work *work)
{
    struct CUstream_st *stream;
    CUresult result = lock_stream(handle, &stream);
    if (result || stream->capturing) {
        work->release(work);
        return result ? result : unlock(CUDA_OK);
    }
    order_with_default(stream);
    queue(stream, work);
    return unlock(CUDA_OK);
}

static void wait_for(const struct CUstream_st *stream, uint64_t position)
{
    while (stream->completed < position)
        pthread_cond_wait(&changed, &lock);
}

CUresult stream_finish(CUstream handle)
{
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    if (stream->capturing)
        return unlock(CUDA_CAPTURE_UNSUPPORTED);
    wait_for(stream, stream->submitted);
    return unlock(context_result(stream->device));
}

void stream_finish_device(int device)
{
    pthread_mutex_lock(&lock);
    for (const struct CUstream_st *each = streams; each; each = each->next)
        if (each->device == device)
            wait_for(each, each->submitted);
    pthread_mutex_unlock(&lock);
}

CUresult stream_check_context(CUstream handle)
{
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    return unlock(stream->device == context_current()->device ? CUDA_OK : CUDA_INVALID_HANDLE);
}

/* ---- functions of streams ----------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    ENTER(cuStreamCreateWithPriority, NEEDS_CONTEXT);
    (void)priority; /* it is a hint */
    if (flags & ~(unsigned)CUDA_STREAM_NON_BLOCKING)
        return CUDA_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *stream = add_stream(context_current()->device, !(flags & CUDA_STREAM_NON_BLOCKING));
    return unlock(CUDA_OK);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
    ENTER(cuStreamDestroy_v2, NEEDS_CONTEXT);
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    stream->destroyed = true;
    wake();
    return unlock(CUDA_OK);
}

CUresult cuStreamQuery(CUstream handle)
{
    ENTER(cuStreamQuery, NEEDS_CONTEXT);
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    if (stream->capturing)
        return unlock(CUDA_CAPTURE_UNSUPPORTED);
    return unlock(stream->completed == stream->submitted ? context_result(stream->device) : CUDA_NOT_READY);
}

CUresult cuStreamSynchronize(CUstream handle)
{
    ENTER(cuStreamSynchronize, NEEDS_CONTEXT);
    return stream_finish(handle);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    ENTER(cuStreamIsCapturing, NEEDS_CONTEXT);
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    *status = stream->capturing ? CUDA_CAPTURING : CUDA_NOT_CAPTURING;
    return unlock(CUDA_OK);
}

/* ---- events ------------------------------------------------------------------------------------------- */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(cuEventCreate, NEEDS_CONTEXT);
    if (flags & ~7U)
        return CUDA_INVALID_VALUE;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return CUDA_OUT_OF_MEMORY;
    (*event)->device = context_current()->device;
    return CUDA_OK;
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
    ENTER(cuEventRecord, NEEDS_CONTEXT);
    struct CUstream_st *stream;
    CHECK(lock_stream(handle, &stream));
    if (event->device != stream->device)
        return unlock(CUDA_INVALID_HANDLE);
    event->captured = stream->capturing;
    if (!event->captured)
        order_with_default(stream);
    event->stream = stream;
    event->position = stream->submitted;
    return unlock(CUDA_OK);
}

CUresult cuEventQuery(CUevent event)
{
    ENTER(cuEventQuery, NEEDS_DRIVER);
    pthread_mutex_lock(&lock);
    if (event->captured)
        return unlock(CUDA_CAPTURED_EVENT);
    bool done = !event->stream || event->stream->completed >= event->position;
    return unlock(done ? context_result(event->device) : CUDA_NOT_READY);
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER(cuEventSynchronize, NEEDS_DRIVER);
    pthread_mutex_lock(&lock);
    if (event->captured)
        return unlock(CUDA_CAPTURED_EVENT);
    if (event->stream)
        wait_for(event->stream, event->position);
    return unlock(context_result(event->device));
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(cuEventDestroy_v2, NEEDS_DRIVER);
    free(event);
    return CUDA_OK;
}

/* It waits for what the event stands for now. A captured event draws the stream into its graph. */
CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    ENTER(cuStreamWaitEvent, NEEDS_CONTEXT);
    struct CUstream_st *stream;
    if (flags)
        return CUDA_INVALID_VALUE;
    CHECK(lock_stream(handle, &stream));
    if (event->captured) {
        set_capturing(stream, true);
        return unlock(CUDA_OK);
    }
    order_with_default(stream);
    if (event->stream)
        queue_wait(stream, event->stream, event->position);
    return unlock(CUDA_OK);
}

/* ---- what tests ask ----------------------------------------------------------------------------------- */

static struct CUstream_st *lock_stream_of_test(CUstream handle)
{
    struct CUstream_st *stream;
    if (lock_stream(handle, &stream))
        abort();
    return stream;
}

void standin_hold(CUstream handle)
{
    struct CUstream_st *stream = lock_stream_of_test(handle);
    stream->held = true;
    while (stream->running)
        pthread_cond_wait(&changed, &lock);
    unlock(CUDA_OK);
}

void standin_release(CUstream handle)
{
    lock_stream_of_test(handle)->held = false;
    wake();
    unlock(CUDA_OK);
}

void standin_capture(CUstream handle, bool capturing)
{
    struct CUstream_st *stream = lock_stream_of_test(handle);
    for (struct CUstream_st *each = streams; each; each = each->next)
        if (each == stream || (!capturing && each->device == stream->device))
            set_capturing(each, capturing);
    unlock(CUDA_OK);
}
