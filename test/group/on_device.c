/* on_device.c - runs a test's requests with all tensors on the device of device.h, and brings the results
 * back. */
#include "device.h"

#include "base/types.h"
#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What a test holds as a handle. */
struct shadow {
    hvd_handle *handle;
    int32_t count, number; /* of the device */
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct taken *all_taken; /* under the lock */

static size_t bytes_of(const hvd_tensor *tensor)
{
    return (size_t)shape_elements(tensor->shape, tensor->ndim, 1) * hvd_dtype_size(tensor->dtype);
}

static hvd_tensor put_on_device(const hvd_tensor *tensor, int32_t number, bool has_values)
{
    hvd_tensor own = *tensor;
    size_t bytes = bytes_of(tensor);
    own.device_type = DEVICE_TYPE;
    own.device_id = device_id_of(number);
    own.data = device_allocate(number, bytes);
    if (bytes && has_values)
        device_write_on(device_stream(number), own.data, tensor->data, bytes);
    return own;
}

static void shadow_drop(struct shadow *shadow)
{
    device_finish(device_stream(shadow->number));
    for (int32_t i = 0; i < (shadow->in_place ? 1 : 2) * shadow->count; i++)
        device_release(shadow->tensors[i].data);
}

static struct shadow *shadow_make(hvd_context *context, const hvd_request *request, hvd_request *own)
{
    int32_t number = hvd_get_placement(context).rank % DEVICES;
    size_t count = (size_t)request->count;
    struct shadow *shadow = calloc(1, sizeof *shadow);
    CHECK(shadow && (shadow->tensors = calloc(2 * count + 1, sizeof *shadow->tensors)) &&
              (shadow->bytes = calloc(2 * count + 1, sizeof *shadow->bytes)) &&
              (shadow->origins = calloc(2 * count + 1, sizeof *shadow->origins)) &&
              (shadow->copies = calloc(2 * count + 1, sizeof *shadow->copies)) && !request->done,
          "out of memory");
    shadow->count = request->count;
    shadow->number = number;
    shadow->in_place = !request->outputs;
    shadow->makes_results = operation_makes_results(request->operation);
    *own = *request;
    own->inputs = shadow->tensors;
    own->outputs = request->outputs ? shadow->tensors + count : NULL;
    own->stream = device_stream(number);
    for (size_t i = 0; i < count; i++) {
        shadow->tensors[i] = put_on_device(&request->inputs[i], number, true);
        shadow->bytes[i] = bytes_of(&request->inputs[i]);
        shadow->origins[i] = request->inputs[i].data;
        if (request->outputs) {
            shadow->tensors[count + i] = put_on_device(&request->outputs[i], number, false);
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
