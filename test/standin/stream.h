/* stream.h - queues of work, one thread for each. Internal to the stand-ins; any thread. */
#ifndef HVD_TEST_STANDIN_STREAM_H
#define HVD_TEST_STANDIN_STREAM_H

#include "standin/driver.h"

/* A piece of work; its kinds have it as their first member. */
struct work {
    void (*run)(
        struct work *work); /* called once, by the thread of the stream; not if the context is broken */
    void (*release)(struct work *work); /* called once */
    int device;                         /* set by stream_submit */
    struct work *next;                  /* set by stream_submit */
};

/* Work starts late by up to `delay` microseconds, at random from the seed. */
void stream_open(int delay, int seed);

/* Queues the work, which it takes ownership of. A stream that is captured drops it. */
__attribute__((visibility("default"))) CUresult stream_submit(CUstream stream, struct work *work);

/* Waits for all work that is queued now. */
CUresult stream_finish(CUstream stream);
void stream_finish_device(int device);

/* CUDA_INVALID_HANDLE unless the stream is one of the current context. */
CUresult stream_check_context(CUstream stream);

#endif
