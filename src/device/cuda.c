/* cuda.c - see cuda.h. The functions are found once. Contexts and streams are opened under a lock, and stay
 * open until the process ends, as the frameworks' do. */
#include "device/cuda.h"

#include "base/status.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* ---- the driver --------------------------------------------------------------------------------------- */

static struct cuda driver;
static pthread_once_t load_once = PTHREAD_ONCE_INIT, init_once = PTHREAD_ONCE_INIT;
static hvd_status load_failure, init_failure;
static atomic_bool forked; /* this is a child of the process that has opened the driver */

static const char of_fork[] =
    "this process is a child of fork(), and its parent has used the GPU; start it by spawn";

static void set_forked(void *owner)
{
    (void)owner;
    atomic_store(&forked, true);
}

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        status_set(&load_failure, HVD_UNSUPPORTED, "no driver for NVIDIA's GPUs was found: %s", dlerror());
        return;
    }
    static const struct {
        const char *symbol;
        size_t place;
    } calls[] = {
#define PLACE(member, symbol, parameters) {#symbol, offsetof(struct cuda, member)},
        CUDA_CALLS(PLACE)
#undef PLACE
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = dlsym(library, calls[i].symbol);
        memcpy((char *)&driver + calls[i].place, &function, sizeof function);
        if (!function)
            status_set(&load_failure, HVD_UNSUPPORTED,
                       "the driver for NVIDIA's GPUs is too old: it has no %s", calls[i].symbol);
    }
}

static void init(void)
{
    static struct atfork_handler handler = {.in_child = set_forked};
    int count = 0;
    pthread_once(&load_once, load);
    if (status_copy(&init_failure, &load_failure))
        return;
    atfork_add(&handler);
    CUresult result = driver.init(0);
    if (!result)
        result = driver.device_count(&count);
    if (result == CUDA_NO_DEVICE || (!result && !count))
        status_set(&init_failure, HVD_UNSUPPORTED,
                   "the driver finds no GPU; `nvidia-smi` and CUDA_VISIBLE_DEVICES may say why");
    else if (result == CUDA_NOT_INITIALIZED)
        status_set(&init_failure, HVD_UNSUPPORTED, "%s", of_fork);
    else if (cuda_check(&driver, result, "opening the driver for NVIDIA's GPUs", &init_failure))
        init_failure.code = HVD_UNSUPPORTED;
    driver.devices = count < CUDA_MOST_GPUS ? count : CUDA_MOST_GPUS;
    if (init_failure.code)
        atfork_remove(&handler);
}

const struct cuda *cuda_open(hvd_status *reason)
{
    if (atomic_load_explicit(&forked, memory_order_relaxed)) {
        status_set(reason, HVD_UNSUPPORTED, "%s", of_fork);
        return NULL;
    }
    pthread_once(&init_once, init);
    return status_copy(reason, &init_failure) ? NULL : &driver;
}

/* ---- errors ------------------------------------------------------------------------------------------- */

/* After these errors, which kernels cause, the driver refuses all further calls of the process. */
static bool is_final(CUresult result)
{
    return result >= CUDA_ILLEGAL_ADDRESS && result <= CUDA_LAUNCH_FAILED &&
           result != CUDA_LAUNCH_OUT_OF_RESOURCES;
}

hvd_code cuda_check(const struct cuda *cuda, CUresult result, const char *what, hvd_status *status)
{
    const char *text = "unknown error", *name = "no name";
    if (!result)
        return HVD_OK;
    cuda->error_string(result, &text);
    cuda->error_name(result, &name);
    return status_set(status, result == CUDA_OUT_OF_MEMORY ? HVD_OUT_OF_MEMORY : HVD_SYSTEM,
                      "%s failed: %s (%s, %d)%s", what, text, name, result,
                      is_final(result)
                          ? "; a kernel that was launched before is at fault, and this process can't use "
                            "the GPU any longer: CUDA_LAUNCH_BLOCKING=1 shows which"
                          : "");
}

/* ---- contexts ----------------------------------------------------------------------------------------- */

static struct gpu {
    CUcontext context; /* NULL: not open */
    CUstream stream;   /* NULL: not open */
} gpus[CUDA_MOST_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult open_context(struct gpu *gpu, int32_t device_id)
{
    CUdevice device;
    if (gpu->context)
        return CUDA_OK;
    CUresult result = driver.device_get(&device, device_id);
    return result ? result : driver.primary_retain(&gpu->context, device);
}

/* Copies are urgent: collectives wait for them. So the stream has the highest priority. */
static CUresult open_stream(struct gpu *gpu)
{
    int least = 0, greatest = 0;
    if (gpu->stream)
        return CUDA_OK;
    CUresult result = driver.stream_priorities(&least, &greatest);
    return result ? result : driver.stream_create(&gpu->stream, CUDA_STREAM_NON_BLOCKING, greatest);
}

/* Under the lock. On success the context is current. */
static CUresult push(struct cuda_use *use)
{
    struct gpu *gpu = &gpus[use->device_id];
    CUresult result = open_context(gpu, use->device_id);
    if (!result)
        result = driver.ctx_push(gpu->context);
    if (result)
        return result;
    use->before = CUDA_CAPTURE_RELAXED;
    driver.capture_mode(&use->before);
    result = open_stream(gpu);
    if (result)
        cuda_leave(use);
    use->stream = gpu->stream;
    return result;
}

hvd_code cuda_enter(struct cuda_use *use, int32_t device_id, hvd_status *status)
{
    *use = (struct cuda_use){.cuda = cuda_open(status), .device_id = device_id};
    if (!use->cuda)
        return HVD_UNSUPPORTED;
    if (device_id < 0 || device_id >= driver.devices)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "there is no GPU %d: this process sees %d, with numbers from 0; "
                          "CUDA_VISIBLE_DEVICES says which",
                          (int)device_id, (int)driver.devices);
    pthread_mutex_lock(&lock);
    CUresult result = push(use);
    pthread_mutex_unlock(&lock);
    return cuda_check(&driver, result, "opening a context on the GPU", status);
}

void cuda_leave(struct cuda_use *use)
{
    CUcontext popped;
    driver.capture_mode(&use->before);
    driver.ctx_pop(&popped);
}

/* ---- what was found ----------------------------------------------------------------------------------- */

int32_t hvd_cuda_version(void)
{
    int version = 0;
    pthread_once(&load_once, load);
    return load_failure.code || driver.driver_version(&version) ? 0 : version;
}

hvd_code hvd_find_cuda(hvd_status *found)
{
    char name[128];
    const struct cuda *cuda = cuda_open(found);
    if (!cuda)
        return HVD_UNSUPPORTED;
    int version = hvd_cuda_version();
    *found = (hvd_status){.code = HVD_OK};
    append_text(found->text, sizeof found->text, "%d GPU%s by a driver for CUDA %d.%d: ", (int)cuda->devices,
                cuda->devices == 1 ? "" : "s", version / 1000, version % 1000 / 10);
    for (int i = 0; i < cuda->devices; i++) {
        CUdevice device;
        if (!cuda->device_get(&device, i) && !cuda->device_name(name, sizeof name, device))
            append_text(found->text, sizeof found->text, "%s%s", i ? ", " : "", name);
    }
    return HVD_OK;
}
