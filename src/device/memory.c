/* memory.c - the table of device types, and the row of host memory. Any thread; rows are only added or
 * replaced, by an atomic store. */
#include "device/memory.h"

#include "base/platform_memory.h"
#include "base/status.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define TYPES 32 /* DLPack has 17 */

#define ALIGNMENT        64
#define LARGE_PAGE       ((size_t)2 << 20)
#define LARGE_PAGES_FROM (2 * LARGE_PAGE) /* smaller blocks would have few whole ones */

static bool is_large(size_t bytes)
{
    return bytes >= LARGE_PAGES_FROM;
}

static void host_expect_writes(void *data, size_t bytes)
{
    if (is_large(bytes))
        platform_memory_prefer_large_pages(data, bytes);
}

static void *host_allocate(int32_t device_id, size_t bytes)
{
    void *data;
    (void)device_id;
    if (posix_memalign(&data, is_large(bytes) ? LARGE_PAGE : ALIGNMENT, bytes ? bytes : 1))
        return NULL;
    host_expect_writes(data, bytes);
    return data;
}

static hvd_code host_fill(void *data, const void *element, size_t width, size_t elements, hvd_status *status)
{
    (void)status;
    for (size_t i = 0; i < elements; i++)
        memcpy((char *)data + i * width, element, width);
    return HVD_OK;
}

const struct memory_ops memory_host = {
    .device_type = HVD_CPU,
    .host_access = true,
    .allocate = host_allocate,
    .release = free,
    .expect_writes = host_expect_writes,
    .fill = host_fill,
};

static const struct memory_ops *_Atomic rows[TYPES] = {[HVD_CPU] = &memory_host};

const struct memory_ops *memory_of(int32_t device_type)
{
    return device_type < 0 || device_type >= TYPES ? NULL : atomic_load(&rows[device_type]);
}

hvd_code memory_open(int32_t device_type, const struct memory_ops **memory, hvd_status *reason)
{
    hvd_status why;
    const struct memory_ops *row = memory_of(device_type);
    *memory = row;
    if (row && !row->open)
        return HVD_OK;
    if (!row && device_type != memory_cuda.device_type)
        return status_set(reason, HVD_UNSUPPORTED, "a device of type %d, which this process can't use",
                          (int)device_type);
    if (memory_cuda.open(&why))
        return status_set(reason, HVD_UNSUPPORTED, "a GPU, which this process can't use (%s)", why.text);
    if (!row)
        memory_register(&memory_cuda);
    *memory = &memory_cuda;
    return HVD_OK;
}

static atomic_bool has_devices;

void memory_register(const struct memory_ops *ops)
{
    assert(ops->device_type > 0 && ops->device_type < TYPES);
    atomic_store(&rows[ops->device_type], ops);
    atomic_store(&has_devices, true);
}

int hvd_has_devices(void)
{
    return atomic_load_explicit(&has_devices, memory_order_relaxed);
}

void memory_trim(void)
{
    for (int32_t type = 0; type < TYPES; type++) {
        const struct memory_ops *row = memory_of(type);
        if (row && row->trim)
            row->trim();
    }
}
