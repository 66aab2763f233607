/* device.h - a device whose memory only its own functions can access: its pages are inaccessible otherwise,
 * so code that dereferences a tensor elsewhere ends by SIGSEGV. The device is slow: copies and events are
 * done when they have been queried a few times, and bytes that are not yet copied are garbage.
 *
 * Included in front of a test (-include), it puts all tensors of the test's requests on this device. A stream
 * writes the inputs after the engine has received the request, and outputs are read back after the test has
 * waited. */
#ifndef HVD_TEST_DEVICE_H
#define HVD_TEST_DEVICE_H

#include "horovod.h"

#include <stddef.h>

/* HVD_ON_CUDA: the device is one of CUDA, by the stand-in for its driver or, with gpu/gates.c, by the real
 * one. */
#ifdef HVD_ON_CUDA
#define DEVICE_TYPE HVD_CUDA
#define DEVICES     8 /* the most that the stand-in has */
#else
#define DEVICE_TYPE 12 /* DLPack: for extensions */
#define DEVICES     16
#endif

/* Each rank has the device of its number, modulo DEVICES, with a default stream and another one. Of a machine
 * with fewer GPUs, one has several numbers, and streams for each of them. */
int32_t device_id_of(int32_t number);
void *device_allocate(int32_t number, size_t bytes); /* garbage at first */
void device_release(void *data);
void device_read(void *to, const void *from, size_t bytes);                   /* at once */
void device_write_on(void *stream, void *to, const void *from, size_t bytes); /* some time */
void *device_stream(int32_t number);
void *device_side_stream(int32_t number);

/* Nothing that the stream holds is done before device_go_on. */
void device_hold(void *stream);
void device_go_on(void *stream);
void device_finish(void *stream); /* does all that it holds, and lets it go on */

/* The test device only. From now on copies of this device fail. */
void device_break(int32_t device_id);

/* The test device only. For so long nothing is done unless it is waited for. */
void device_delay(int32_t device_id, double seconds);

/* Adds the device to the engine's; more than once is fine. */
void device_register(void);

hvd_code device_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle,
                       hvd_status *status);
hvd_code device_run(hvd_context *context, const hvd_request *request, hvd_tensor *outputs,
                    hvd_status *status);
hvd_code device_wait(hvd_handle *handle, double seconds, hvd_status *status);
hvd_code device_test(hvd_handle *handle, hvd_status *status);
hvd_code device_output(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status);
hvd_code device_joined_last(hvd_handle *handle, int32_t *rank, hvd_status *status);
void device_release_handle(hvd_handle *handle);
void device_free(void *data);

#ifdef HVD_ON_DEVICE
#define hvd_submit      device_submit
#define hvd_run         device_run
#define hvd_wait        device_wait
#define hvd_test        device_test
#define hvd_output      device_output
#define hvd_joined_last device_joined_last
#define hvd_release     device_release_handle
#define hvd_free        device_free
#endif

#endif
