/* cuda_device.c - device.h by CUDA, on the stand-in for the driver (standin/standin.h) or on the real one
 * (gpu/gates.c). Any thread. */
#include "device.h"

#include "device/cuda.h"
#include "device/memory.h"
#include "group.h"
#include "standin/standin.h"

#include <pthread.h>
#include <stdlib.h>

/* OF_READS is not ordered with any other stream. */
enum lane { DEFAULT, SIDE, OF_READS, LANES };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams[DEVICES][LANES]; /* NULL: not yet made; under the lock */

#define DO(call)                                                                                             \
    do {                                                                                                     \
        CUresult result = (call);                                                                            \
        CHECK(!result, "error %d", (int)result);                                                             \
    } while (0)

__attribute__((constructor)) static void configure(void)
{
    setenv("STANDIN_DEVICES", "8", true);
    setenv("STANDIN_DELAY_US", "50", false);
    if (getenv("HOROVOD_TEST_SEED"))
        setenv("STANDIN_SEED", getenv("HOROVOD_TEST_SEED"), false);
}

int32_t device_id_of(int32_t number)
{
    int count = 0;
    DO(cuInit(0));
    DO(cuDeviceGetCount(&count));
    return number % count;
}

void device_register(void)
{
    const struct memory_ops *memory;
    CHECK_OK(memory_open(HVD_CUDA, &memory, &check_status));
}

static struct cuda_use enter(int32_t device_id)
{
    struct cuda_use use;
    CHECK_OK(cuda_enter(&use, device_id, &check_status));
    return use;
}

static struct cuda_use enter_device_of(const void *data)
{
    int device_id = -1;
    DO(cuPointerGetAttribute(&device_id, CUDA_POINTER_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)data));
    return enter(device_id);
}

static CUstream stream_of(int32_t number, enum lane lane)
{
    struct cuda_use use = enter(device_id_of(number));
    pthread_mutex_lock(&lock);
    CUstream *stream = &streams[number][lane];
    if (!*stream)
        DO(cuStreamCreateWithPriority(stream, CUDA_STREAM_NON_BLOCKING, 0));
    pthread_mutex_unlock(&lock);
    cuda_leave(&use);
    return *stream;
}

void *device_stream(int32_t number)
{
    return stream_of(number, DEFAULT);
}

void *device_side_stream(int32_t number)
{
    return stream_of(number, SIDE);
}

void *device_allocate(int32_t number, size_t bytes)
{
    void *data = memory_cuda.allocate(device_id_of(number), bytes);
    CHECK(data, "no memory of the device");
    return data;
}

void device_release(void *data)
{
    memory_cuda.release(data);
}

/* ---- copies ------------------------------------------------------------------------------------------- */

static void copy(CUstream stream, void *to, const void *from, size_t bytes)
{
    DO(cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, bytes, stream));
}

void device_read(void *to, const void *from, size_t bytes)
{
    struct cuda_use use = enter_device_of(from);
    CUstream stream = stream_of(use.device_id, OF_READS);
    copy(stream, to, from, bytes);
    DO(cuStreamSynchronize(stream));
    cuda_leave(&use);
}

void device_write_on(void *stream, void *to, const void *from, size_t bytes)
{
    struct cuda_use use = enter_device_of(to);
    copy(stream, to, from, bytes);
    cuda_leave(&use);
}

/* ---- gates -------------------------------------------------------------------------------------------- */

void device_hold(void *stream)
{
    standin_hold(stream);
}

void device_go_on(void *stream)
{
    standin_release(stream);
}

void device_finish(void *stream)
{
    int32_t number = 0;
    standin_release(stream);
    pthread_mutex_lock(&lock);
    while (number < DEVICES - 1 && streams[number][DEFAULT] != stream && streams[number][SIDE] != stream)
        number++;
    pthread_mutex_unlock(&lock);
    struct cuda_use use = enter(device_id_of(number));
    DO(cuStreamSynchronize(stream));
    cuda_leave(&use);
}
