/* device.c - the test device of device.h. One lock for all; a region is accessible only while its owner
 * copies. */
#include "device.h"

#include "base/clock.h"
#include "base/types.h"
#include "device/memory.h"
#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, LATEST = 4 };

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

static int32_t count_devices(void)
{
    return DEVICES;
}

static const struct memory_ops memory_test = {
    .device_type = DEVICE_TYPE,
    .count = count_devices,
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

int32_t device_id_of(int32_t number)
{
    return number;
}

void *device_allocate(int32_t number, size_t bytes)
{
    return allocate(number, bytes);
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
    push(stream, (struct work){.copy = {to, from, bytes}});
    pthread_mutex_unlock(&lock);
}

void *device_stream(int32_t number)
{
    return &streams[number];
}

void *device_side_stream(int32_t number)
{
    return &side_streams[number];
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
