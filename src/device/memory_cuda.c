/* memory_cuda.c - the row of NVIDIA's GPUs. Fills and copies run on the engine's stream of the tensor's GPU,
 * in the order of the calls. Any thread; nothing here is called with a lock of the engine held but the
 * progress lock. In a child of fork() what the parent has made is left alone. */
#include "device/memory.h"

#include "base/status.h"
#include "device/cuda.h"
#include "device/cuda_copy.h"
#include "device/pinned.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static CUdeviceptr address_of(const void *data)
{
    return (CUdeviceptr)(uintptr_t)data;
}

/* ---- devices ------------------------------------------------------------------------------------------ */

static hvd_code open_driver(hvd_status *reason)
{
    return cuda_open(reason) ? HVD_OK : HVD_UNSUPPORTED;
}

static int32_t count_devices(void)
{
    const struct cuda *cuda = cuda_open(NULL);
    return cuda ? cuda->devices : 0;
}

static hvd_code find_device(const void *data, int32_t *device_id, hvd_status *status)
{
    int ordinal = 0;
    const struct cuda *cuda = cuda_open(status);
    if (!cuda)
        return HVD_UNSUPPORTED;
    TRY(cuda_check(cuda, cuda->pointer_attribute(&ordinal, CUDA_POINTER_DEVICE_ORDINAL, address_of(data)),
                   "finding the GPU of a tensor's memory", status));
    *device_id = ordinal;
    return HVD_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static void *allocate(int32_t device_id, size_t bytes)
{
    struct cuda_use use;
    CUdeviceptr address = 0;
    if (cuda_enter(&use, device_id, NULL))
        return NULL;
    if (use.cuda->mem_alloc(&address, bytes ? bytes : 1))
        address = 0;
    cuda_leave(&use);
    return (void *)(uintptr_t)address;
}

static void release(void *data)
{
    struct cuda_use use;
    int32_t device_id;
    if (find_device(data, &device_id, NULL) || cuda_enter(&use, device_id, NULL))
        return; /* a child of fork(), or the process is ending, or the GPU has failed */
    use.cuda->stream_synchronize(use.stream);
    use.cuda->mem_free(address_of(data));
    cuda_leave(&use);
}

/* Writes the first element in words, then copies all that is written behind itself. */
static CUresult fill_by_doubling(const struct cuda_use *use, CUdeviceptr to, const char *element,
                                 size_t width, size_t elements)
{
    CUresult result = CUDA_OK;
    for (size_t at = 0; !result && at < width; at += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, element + at, sizeof word);
        result = use->cuda->set32(to + at, word, 1, use->stream);
    }
    for (size_t done = 1, more; !result && done < elements; done += more) {
        more = done < elements - done ? done : elements - done;
        result = use->cuda->copy(to + done * width, to, more * width, use->stream);
    }
    return result;
}

static CUresult fill_on(const struct cuda_use *use, CUdeviceptr to, const void *element, size_t width,
                        size_t elements)
{
    uint32_t word = 0;
    memcpy(&word, element, width < sizeof word ? width : sizeof word);
    if (width == 1)
        return use->cuda->set8(to, (unsigned char)word, elements, use->stream);
    if (width == 2)
        return use->cuda->set16(to, (unsigned short)word, elements, use->stream);
    if (width == 4)
        return use->cuda->set32(to, word, elements, use->stream);
    return fill_by_doubling(use, to, element, width, elements);
}

static hvd_code fill(void *data, const void *element, size_t width, size_t elements, hvd_status *status)
{
    struct cuda_use use;
    int32_t device_id;
    TRY(find_device(data, &device_id, status));
    TRY(cuda_enter(&use, device_id, status));
    CUresult result = fill_on(&use, address_of(data), element, width, elements);
    cuda_leave(&use);
    return cuda_check(use.cuda, result, "filling memory of a GPU", status);
}

/* ---- events: created once and kept, since creating one takes microseconds ----------------------------- */

struct memory_event {
    CUevent event;
    int32_t device_id;
    struct memory_event *next; /* among those that are free */
};

static pthread_mutex_t events_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_event *free_events;

static struct memory_event *take_free(int32_t device_id)
{
    pthread_mutex_lock(&events_lock);
    struct memory_event **at = &free_events;
    while (*at && (*at)->device_id != device_id)
        at = &(*at)->next;
    struct memory_event *event = *at;
    if (event)
        *at = event->next;
    pthread_mutex_unlock(&events_lock);
    return event;
}

static void keep_free(struct memory_event *event)
{
    pthread_mutex_lock(&events_lock);
    event->next = free_events;
    free_events = event;
    pthread_mutex_unlock(&events_lock);
}

static hvd_code make_event(const struct cuda_use *use, struct memory_event **event, hvd_status *status)
{
    struct memory_event *made = malloc(sizeof *made);
    if (!made)
        return status_no_memory(status);
    *made = (struct memory_event){.device_id = use->device_id};
    hvd_code code = cuda_check(
        use->cuda,
        use->cuda->event_create(&made->event, CUDA_EVENT_DISABLE_TIMING | CUDA_EVENT_BLOCKING_SYNC),
        "creating an event on the GPU", status);
    if (code)
        free(made);
    else
        *event = made;
    return code;
}

static hvd_code record(const struct cuda_use *use, CUstream stream, struct memory_event **event,
                       hvd_status *status)
{
    struct memory_event *taken = take_free(use->device_id);
    if (!taken)
        TRY(make_event(use, &taken, status));
    hvd_code code = cuda_check(use->cuda, use->cuda->event_record(taken->event, stream),
                               "recording an event on a stream of the GPU", status);
    if (code)
        keep_free(taken);
    else
        *event = taken;
    return code;
}

/* An event in a stream that is captured would be part of the graph. The capture goes on. */
static hvd_code check_capture(const struct cuda_use *use, CUstream stream, hvd_status *status)
{
    CUstreamCaptureStatus capturing = CUDA_NOT_CAPTURING;
    CUresult result = use->cuda->stream_capturing(stream, &capturing);
    if (result == CUDA_CAPTURE_IMPLICIT || (!result && capturing != CUDA_NOT_CAPTURING))
        return status_set(status, HVD_UNSUPPORTED,
                          "the tensor's stream is being captured into a CUDA graph, and an operation of "
                          "several ranks can't be part of one: call it outside of the capture");
    return cuda_check(use->cuda, result, "asking whether a stream of the GPU is captured", status);
}

static hvd_code event_record(int32_t device_id, void *stream, struct memory_event **event, hvd_status *status)
{
    struct cuda_use use;
    TRY(cuda_enter(&use, device_id, status));
    hvd_code code = check_capture(&use, stream, status);
    if (!code)
        code = record(&use, stream, event, status);
    cuda_leave(&use);
    return code;
}

static hvd_code event_query(struct memory_event *event, hvd_status *status)
{
    struct cuda_use use;
    TRY(cuda_enter(&use, event->device_id, status));
    CUresult result = use.cuda->event_query(event->event);
    cuda_leave(&use);
    if (result == CUDA_NOT_READY)
        return HVD_IN_PROGRESS;
    return cuda_check(use.cuda, result, "work on the GPU", status);
}

static hvd_code stream_wait(void *stream, struct memory_event *event, hvd_status *status)
{
    struct cuda_use use;
    TRY(cuda_enter(&use, event->device_id, status));
    CUresult result = use.cuda->stream_wait(stream, event->event, 0);
    cuda_leave(&use);
    return cuda_check(use.cuda, result, "letting a stream of the GPU wait", status);
}

static void event_release(struct memory_event *event)
{
    struct cuda_use use;
    if (cuda_enter(&use, event->device_id, NULL))
        return;
    if (use.cuda->event_query(event->event) == CUDA_NOT_READY)
        use.cuda->event_synchronize(event->event);
    cuda_leave(&use);
    keep_free(event);
}

/* ---- copies ------------------------------------------------------------------------------------------- */

/* Lets the work of the next GPU of a batch wait for that of the one before, so that one event is the end of
 * both. Leaves the one before also on failure. */
static hvd_code change_device(struct cuda_use *use, int32_t device_id, hvd_status *status)
{
    struct memory_event *before;
    hvd_code code = record(use, use->stream, &before, status);
    cuda_leave(use);
    if (code)
        return code;
    code = cuda_enter(use, device_id, status);
    if (!code) {
        code = cuda_check(use->cuda, use->cuda->stream_wait(use->stream, before->event, 0),
                          "waiting for another GPU", status);
        if (code)
            cuda_leave(use);
    }
    keep_free(before); /* the stream waits for what it stands for now, whatever is recorded later */
    return code;
}

/* All copies have the same direction. */
static bool are_to_devices(const struct cuda *cuda, const struct memory_copy *copy)
{
    unsigned type = 0;
    return !cuda->pointer_attribute(&type, CUDA_POINTER_MEMORY_TYPE, address_of(copy->to)) &&
           type == CUDA_MEMORY_DEVICE;
}

/* Returns how many copies, from the first one on, are of the same GPU, and which. */
static hvd_code find_neighbours(const struct memory_copy *copies, int count, bool to_devices,
                                int32_t *device_id, int *neighbours, hvd_status *status)
{
    *neighbours = 0;
    for (int i = 0; i < count; i++) {
        int32_t other;
        TRY(find_device(to_devices ? copies[i].to : copies[i].from, &other, status));
        if (i && other != *device_id)
            break;
        *device_id = other;
        ++*neighbours;
    }
    return HVD_OK;
}

static hvd_code copy(const struct memory_copy *copies, int count, struct memory_event **copied,
                     hvd_status *status)
{
    struct cuda_use use;
    int32_t device_id = 0;
    int neighbours;
    const struct cuda *cuda = cuda_open(status);
    if (!cuda)
        return HVD_UNSUPPORTED;
    bool to_devices = are_to_devices(cuda, copies);
    TRY(find_neighbours(copies, count, to_devices, &device_id, &neighbours, status));
    TRY(cuda_enter(&use, device_id, status));
    hvd_code code = cuda_copy(&use, copies, neighbours, to_devices, status);
    for (int i = neighbours; i < count && !code; i += neighbours) {
        code = find_neighbours(copies + i, count - i, to_devices, &device_id, &neighbours, status);
        if (!code)
            TRY(change_device(&use, device_id, status));
        if (!code)
            code = cuda_copy(&use, copies + i, neighbours, to_devices, status);
    }
    if (!code)
        code = record(&use, use.stream, copied, status);
    if (code)
        use.cuda->stream_synchronize(use.stream); /* nothing may touch the tensors after a failure */
    cuda_leave(&use);
    return code;
}

/* In a child of fork() all of it is the parent's. */
static void trim(void)
{
    if (!cuda_open(NULL))
        return;
    cuda_copy_trim();
    pinned_trim();
}

const struct memory_ops memory_cuda = {
    .device_type = HVD_CUDA,
    .open = open_driver,
    .count = count_devices,
    .allocate = allocate,
    .release = release,
    .fill = fill,
    .staging_allocate = pinned_allocate,
    .staging_release = pinned_release,
    .copy = copy,
    .event_record = event_record,
    .event_query = event_query,
    .stream_wait = stream_wait,
    .event_release = event_release,
    .trim = trim,
};
