/* device.c - see device.h. One lock for all; a region is accessible only while its owner copies. */
#include "device.h"

#include "base/clock.h"
#include "base/types.h"
#include "device/memory.h"
#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DEVICES = 16, PAGE = 4096, LATEST = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- memory ------------------------------------------------------------------------------------------- */

struct region {
    char *start;
    size_t bytes; /* whole pages */
    int32_t device_id;
    struct region *next;
};

static struct region *regions;

static struct region *find_region(const void *data)
{
    struct region *region = regions;
    while (region &&
           ((const char *)data < region->start || (const char *)data >= region->start + region->bytes))
        region = region->next;
    return region;
}

static void set_access(const struct region *region, int access)
{
    if (region)
        CHECK(mprotect(region->start, region->bytes, access) == 0, "mprotect");
}

static void *allocate(int32_t device_id, size_t bytes)
{
    struct region *region = malloc(sizeof *region);
    size_t whole = bytes / PAGE * PAGE + PAGE;
    void *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(region && start != MAP_FAILED && device_id >= 0 && device_id < DEVICES, "no device memory");
    memset(start, 0x5a, whole);
    pthread_mutex_lock(&lock);
    *region = (struct region){start, whole, device_id, regions};
    regions = region;
    set_access(region, PROT_NONE);
    pthread_mutex_unlock(&lock);
    return start;
}

/* ---- queues of work ----------------------------------------------------------------------------------- */

/* One copy, or one fill. */
struct work {
    struct memory_copy copy;
    char element[16];
    size_t width; /* 0: a copy */
    struct work *next;
};

struct queue {
    struct work *head, *tail;
    unsigned long added, done;
    bool broken;
    int64_t until; /* nothing is done before: clock_now's */
};

struct memory_event {
    struct queue *queue;
    unsigned long position; /* done once the queue has done so much */
    int queries;            /* before it is done */
};

static struct queue devices[DEVICES], streams[DEVICES], side_streams[DEVICES];

static void push(struct queue *queue, struct work work)
{
    struct work *added = malloc(sizeof *added);
    CHECK(added, "out of memory");
    *added = work;
    added->next = NULL;
    if (queue->head)
        queue->tail->next = added;
    else
        queue->head = added;
    queue->tail = added;
    queue->added++;
}

static void move(void *to, const void *from, size_t length)
{
    const struct region *target = find_region(to), *source = find_region(from);
    set_access(target, PROT_READ | PROT_WRITE);
    set_access(source, PROT_READ | PROT_WRITE);
    memcpy(to, from, length);
    set_access(target, PROT_NONE);
    set_access(source, PROT_NONE);
}

static void fill(const struct work *work)
{
    const struct region *region = find_region(work->copy.to);
    set_access(region, PROT_READ | PROT_WRITE);
    for (size_t at = 0; at < work->copy.length; at += work->width)
        memcpy((char *)work->copy.to + at, work->element, work->width);
    set_access(region, PROT_NONE);
}

static void run(struct queue *queue, unsigned long position)
{
    for (; queue->done < position; queue->done++) {
        struct work *work = queue->head;
        queue->head = work->next;
        if (work->width)
            fill(work);
        else
            move(work->copy.to, work->copy.from, work->copy.length);
        free(work);
    }
}

static bool is_within(const void *data, const void *start, size_t bytes)
{
    return (const char *)data >= (const char *)start && (const char *)data < (const char *)start + bytes;
}

static bool has_fill(const struct queue *queue, const struct region *region)
{
    const struct work *work = queue->head;
    while (work && !(work->width && is_within(work->copy.to, region->start, region->bytes)))
        work = work->next;
    return work;
}

static void run_fills(const struct region *region)
{
    struct queue *queue = &devices[region->device_id];
    while (has_fill(queue, region))
        run(queue, queue->done + 1);
}

/* Nobody may free what a device still reads or writes. */
static void check_unused(const void *start, size_t bytes)
{
    for (int i = 0; i < 3 * DEVICES; i++) {
        const struct queue *queues[] = {devices, streams, side_streams};
        const struct queue *queue = &queues[i / DEVICES][i % DEVICES];
        for (const struct work *work = queue->head; work; work = work->next)
            CHECK(!is_within(work->copy.to, start, bytes) && !is_within(work->copy.from, start, bytes),
                  "memory is freed that device %d still uses", i % DEVICES);
    }
}

static void release(void *data)
{
    pthread_mutex_lock(&lock);
    struct region **at = &regions;
    while (*at && (*at)->start != data)
        at = &(*at)->next;
    struct region *region = *at;
    CHECK(region, "not this device's memory");
    run_fills(region);
    check_unused(region->start, region->bytes);
    *at = region->next;
    pthread_mutex_unlock(&lock);
    munmap(region->start, region->bytes);
    free(region);
}

/* ---- the row ------------------------------------------------------------------------------------------ */

static struct memory_event *make_event(struct queue *queue)
{
    static unsigned lateness;
    struct memory_event *event = malloc(sizeof *event);
    CHECK(event, "out of memory");
    *event = (struct memory_event){queue, queue->added, (int)(lateness++ % LATEST)};
    return event;
}

static hvd_code fill_late(void *data, const void *element, size_t width, size_t elements, hvd_status *status)
{
    struct work work = {.copy = {data, NULL, width * elements}, .width = width};
    (void)status;
    memcpy(work.element, element, width);
    pthread_mutex_lock(&lock);
    push(&devices[find_region(data)->device_id], work);
    pthread_mutex_unlock(&lock);
    return HVD_OK;
}

/* The size lies in front. */
static void *staging_allocate(int32_t device_id, size_t bytes)
{
    size_t whole = bytes / 64 * 64 + 128;
    char *block = aligned_alloc(64, whole);
    (void)device_id;
    if (!block)
        return NULL;
    memset(block, 0xa5, whole);
    memcpy(block, &whole, sizeof whole);
    return block + 64;
}

static void staging_release(void *data)
{
    size_t whole;
    char *block = (char *)data - 64;
    memcpy(&whole, block, sizeof whole);
    pthread_mutex_lock(&lock);
    check_unused(block, whole);
    pthread_mutex_unlock(&lock);
    free(block);
}

static hvd_code copy_late(const struct memory_copy *copies, int count, struct memory_event **copied,
                          hvd_status *status)
{
    pthread_mutex_lock(&lock);
    const struct region *region = find_region(copies[0].from);
    region = region ? region : find_region(copies[0].to);
    struct queue *queue = &devices[region->device_id];
    bool broken = queue->broken;
    for (int i = 0; i < count && !broken; i++) {
        CHECK(!find_region(copies[i].from) != !find_region(copies[i].to), "no copy between host and device");
        push(queue, (struct work){.copy = copies[i]});
    }
    *copied = broken ? NULL : make_event(queue);
    pthread_mutex_unlock(&lock);
    if (!broken)
        return HVD_OK;
    status->code = HVD_SYSTEM;
    strcpy(status->text, "the test device is broken");
    return HVD_SYSTEM;
}

static hvd_code event_record(int32_t device_id, void *stream, struct memory_event **event, hvd_status *status)
{
    (void)status;
    pthread_mutex_lock(&lock);
    *event = make_event(stream ? stream : &streams[device_id]);
    pthread_mutex_unlock(&lock);
    return HVD_OK;
}

static hvd_code event_query(struct memory_event *event, hvd_status *status)
{
    (void)status;
    pthread_mutex_lock(&lock);
    bool done = clock_now() >= event->queue->until && event->queries-- <= 0;
    if (done)
        run(event->queue, event->position);
    pthread_mutex_unlock(&lock);
    return done ? HVD_OK : HVD_IN_PROGRESS;
}

static void event_release(struct memory_event *event)
{
    pthread_mutex_lock(&lock);
    run(event->queue, event->position);
    pthread_mutex_unlock(&lock);
    free(event);
}

static const struct memory_ops memory_test = {
    .device_type = DEVICE_TYPE,
    .allocate = allocate,
    .release = release,
    .fill = fill_late,
    .staging_allocate = staging_allocate,
    .staging_release = staging_release,
    .copy = copy_late,
    .event_record = event_record,
    .event_query = event_query,
    .event_release = event_release,
};

void device_register(void)
{
    memory_register(&memory_test);
}

/* ---- for tests ---------------------------------------------------------------------------------------- */

void *device_allocate(int32_t device_id, size_t bytes)
{
    return allocate(device_id, bytes);
}

void device_release(void *data)
{
    release(data);
}

void device_read(void *to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&lock);
    CHECK(find_region(from), "this does not lie on the device");
    move(to, from, bytes);
    pthread_mutex_unlock(&lock);
}

void device_write_on(void *stream, void *to, const void *from, size_t bytes)
{
    pthread_mutex_lock(&lock);
    push(stream ? stream : &streams[find_region(to)->device_id], (struct work){.copy = {to, from, bytes}});
    pthread_mutex_unlock(&lock);
}

void device_write(void *to, const void *from, size_t bytes)
{
    device_write_on(NULL, to, from, bytes);
}

void *device_stream(int32_t device_id)
{
    return &streams[device_id];
}

void *device_side_stream(int32_t device_id)
{
    return &side_streams[device_id];
}

static void set_until(struct queue *queue, int64_t time)
{
    pthread_mutex_lock(&lock);
    queue->until = time;
    pthread_mutex_unlock(&lock);
}

void device_hold(void *stream)
{
    set_until(stream, INT64_MAX);
}

void device_go_on(void *stream)
{
    set_until(stream, 0);
}

void device_finish(void *stream)
{
    struct queue *queue = stream;
    pthread_mutex_lock(&lock);
    queue->until = 0;
    run(queue, queue->added);
    pthread_mutex_unlock(&lock);
}

void device_break(int32_t device_id)
{
    pthread_mutex_lock(&lock);
    devices[device_id].broken = true;
    pthread_mutex_unlock(&lock);
}

void device_delay(int32_t device_id, double seconds)
{
    set_until(&devices[device_id], clock_now() + (int64_t)(seconds * 1e9));
}

/* ---- tests of the host on the device ------------------------------------------------------------------ */

/* What a test holds as a handle. */
struct shadow {
    hvd_handle *handle;
    int32_t count, device_id;
    bool in_place, makes_results, settled;
    hvd_tensor *tensors; /* [2 * count]: inputs, outputs; on the device */
    size_t *bytes;       /* [2 * count]: the test's shapes are gone when it has submitted */
    void **origins;      /* [2 * count]: where the test has them */
    void **copies;       /* [2 * count]: of results, on the host */
};

/* A result that the test has taken, and its copy on the host. */
struct taken {
    void *copy, *result;
    struct taken *next;
};

static struct taken *all_taken;

static size_t bytes_of(const hvd_tensor *tensor)
{
    return (size_t)shape_elements(tensor->shape, tensor->ndim, 1) * hvd_dtype_size(tensor->dtype);
}

static hvd_tensor put_on_device(const hvd_tensor *tensor, int32_t device_id, bool has_values)
{
    hvd_tensor own = *tensor;
    size_t bytes = bytes_of(tensor);
    own.device_type = DEVICE_TYPE;
    own.device_id = device_id;
    own.data = allocate(device_id, bytes);
    if (bytes && has_values)
        device_write(own.data, tensor->data, bytes);
    return own;
}

static void shadow_drop(struct shadow *shadow)
{
    pthread_mutex_lock(&lock);
    run(&streams[shadow->device_id], streams[shadow->device_id].added);
    pthread_mutex_unlock(&lock);
    for (int32_t i = 0; i < (shadow->in_place ? 1 : 2) * shadow->count; i++)
        release(shadow->tensors[i].data);
}

static struct shadow *shadow_make(hvd_context *context, const hvd_request *request, hvd_request *own)
{
    int32_t device_id = hvd_get_placement(context).rank;
    size_t count = (size_t)request->count;
    struct shadow *shadow = calloc(1, sizeof *shadow);
    CHECK(shadow && (shadow->tensors = calloc(2 * count + 1, sizeof *shadow->tensors)) &&
              (shadow->bytes = calloc(2 * count + 1, sizeof *shadow->bytes)) &&
              (shadow->origins = calloc(2 * count + 1, sizeof *shadow->origins)) &&
              (shadow->copies = calloc(2 * count + 1, sizeof *shadow->copies)) && !request->done,
          "out of memory");
    shadow->count = request->count;
    shadow->device_id = device_id;
    shadow->in_place = !request->outputs;
    shadow->makes_results = operation_makes_results(request->operation);
    *own = *request;
    own->inputs = shadow->tensors;
    own->outputs = request->outputs ? shadow->tensors + count : NULL;
    own->stream = device_stream(device_id);
    for (size_t i = 0; i < count; i++) {
        shadow->tensors[i] = put_on_device(&request->inputs[i], device_id, true);
        shadow->bytes[i] = bytes_of(&request->inputs[i]);
        shadow->origins[i] = request->inputs[i].data;
        if (request->outputs) {
            shadow->tensors[count + i] = put_on_device(&request->outputs[i], device_id, false);
            shadow->bytes[count + i] = bytes_of(&request->outputs[i]);
            shadow->origins[count + i] = request->outputs[i].data;
        }
    }
    return shadow;
}

static void shadow_free(struct shadow *shadow)
{
    for (int32_t i = 0; i < 2 * shadow->count; i++)
        free(shadow->copies[i]);
    free(shadow->copies);
    free(shadow->tensors);
    free(shadow->bytes);
    free(shadow->origins);
    free(shadow);
}

/* The engine runs an invalid request of the test's own as it is. */
static bool is_whole(const hvd_request *request)
{
    if (!request || request->count < 0 || !operation_known((int)request->operation))
        return false;
    for (int i = 0; i < request->count; i++)
        if (!dtype_known((int)request->inputs[i].dtype) ||
            shape_elements(request->inputs[i].shape, request->inputs[i].ndim, 16) < 0)
            return false;
    return true;
}

hvd_code device_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle,
                       hvd_status *status)
{
    hvd_request own;
    device_register();
    CHECK(is_whole(request), "a request that can't be on a device");
    struct shadow *shadow = shadow_make(context, request, &own);
    hvd_code code = hvd_submit(context, &own, &shadow->handle, status);
    if (!code) {
        *handle = (hvd_handle *)shadow;
        return HVD_OK;
    }
    shadow_drop(shadow);
    shadow_free(shadow);
    return code;
}

/* Reads the outputs back; the other memory must be unchanged. */
static void settle(struct shadow *shadow, hvd_code code)
{
    if (shadow->settled || code == HVD_IN_PROGRESS)
        return;
    shadow->settled = true;
    int32_t first = shadow->in_place ? 0 : shadow->count;
    for (int32_t i = 0; i < shadow->count && !code; i++) {
        const hvd_tensor *input = &shadow->tensors[i], *output = &shadow->tensors[first + i];
        size_t bytes = shadow->bytes[i];
        if (shadow->bytes[first + i] && !(shadow->in_place && shadow->makes_results))
            device_read(shadow->origins[first + i], output->data, shadow->bytes[first + i]);
        char *copy = malloc(bytes + 1);
        device_read(copy, input->data, bytes);
        CHECK(!bytes || !memcmp(copy, shadow->origins[i], bytes), "input %d has changed on the device",
              (int)i);
        free(copy);
    }
    shadow_drop(shadow);
}

hvd_code device_wait(hvd_handle *handle, double seconds, hvd_status *status)
{
    struct shadow *shadow = (struct shadow *)handle;
    hvd_code code = hvd_wait(shadow->handle, seconds, status);
    settle(shadow, code);
    return code;
}

hvd_code device_test(hvd_handle *handle, hvd_status *status)
{
    struct shadow *shadow = (struct shadow *)handle;
    hvd_code code = hvd_test(shadow->handle, status);
    settle(shadow, code);
    return code;
}

static void *copy_result(const hvd_tensor *result)
{
    size_t bytes = bytes_of(result);
    void *copy = malloc(bytes + 1);
    CHECK(copy, "out of memory");
    device_read(copy, result->data, bytes);
    return copy;
}

hvd_code device_output(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status)
{
    struct shadow *shadow = (struct shadow *)handle;
    hvd_code code = hvd_output(shadow->handle, index, output, status);
    if (code || output->device_type == HVD_CPU)
        return code;
    free(shadow->copies[index]);
    output->data = shadow->copies[index] = copy_result(output);
    output->device_type = HVD_CPU;
    return code;
}

static hvd_code take(struct shadow *shadow, int32_t index, hvd_tensor *output, hvd_status *status)
{
    hvd_code code = hvd_output_take(shadow->handle, index, output, status);
    if (code || output->device_type == HVD_CPU)
        return code;
    struct taken *taken = malloc(sizeof *taken);
    void *copy = copy_result(output);
    CHECK(taken, "out of memory");
    pthread_mutex_lock(&lock);
    *taken = (struct taken){copy, output->data, all_taken};
    all_taken = taken;
    pthread_mutex_unlock(&lock);
    output->data = copy;
    output->device_type = HVD_CPU;
    return code;
}

hvd_code device_run(hvd_context *context, const hvd_request *request, hvd_tensor *outputs, hvd_status *status)
{
    hvd_handle *handle;
    hvd_code code = device_submit(context, request, &handle, status);
    if (code)
        return code;
    code = device_wait(handle, -1, status);
    int32_t results = request->operation == HVD_ALLTOALL ? 2 : request->count;
    for (int32_t i = request->outputs ? request->count : 0;
         !code && operation_makes_results(request->operation) && i < results; i++)
        code = take((struct shadow *)handle, i, &outputs[i], status);
    device_release_handle(handle);
    return code;
}

hvd_code device_joined_last(hvd_handle *handle, int32_t *rank, hvd_status *status)
{
    return hvd_joined_last(((struct shadow *)handle)->handle, rank, status);
}

/* The tensors of what is in flight are needed. */
void device_release_handle(hvd_handle *handle)
{
    struct shadow *shadow = (struct shadow *)handle;
    if (!shadow)
        return;
    device_wait(handle, -1, NULL);
    hvd_release(shadow->handle);
    shadow_free(shadow);
}

void device_free(void *data)
{
    pthread_mutex_lock(&lock);
    struct taken **at = &all_taken;
    while (*at && (*at)->copy != data)
        at = &(*at)->next;
    struct taken *taken = data ? *at : NULL;
    if (taken)
        *at = taken->next;
    pthread_mutex_unlock(&lock);
    if (!taken) {
        hvd_free(data);
        return;
    }
    hvd_free(taken->result);
    free(taken->copy);
    free(taken);
}
