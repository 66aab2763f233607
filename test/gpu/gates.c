/* gates.c - standin.h by the real driver, for programs that were linked with the stand-in: preloaded, it lets
 * them run on a GPU. A stream is held by waiting for a word of page-locked memory. The driver's calls can't
 * be counted, and none can be made to fail: tests that need that end. Any thread. */
#include "standin/standin.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct CUgraph_st *CUgraph;
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags);
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuGraphDestroy(CUgraph graph);

enum { AT_LEAST = 0 }; /* of cuStreamWaitValue32 */

/* A stream that is held. The word is never freed: the stream may still read it when it is released. */
struct gate {
    CUstream stream;
    volatile uint32_t *open;
    struct gate *next;
};
static struct gate *gates;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define DO(call)                                                                                             \
    do {                                                                                                     \
        CUresult result = (call);                                                                            \
        if (result) {                                                                                        \
            fprintf(stderr, "gates: " #call " has returned %d\n", (int)result);                              \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

void standin_hold(CUstream stream)
{
    CUcontext context;
    struct gate *gate = malloc(sizeof *gate);
    if (!gate)
        abort();
    DO(cuStreamGetCtx(stream, &context));
    DO(cuCtxPushCurrent_v2(context));
    DO(cuStreamSynchronize(stream));
    DO(cuMemHostAlloc((void **)(uintptr_t)&gate->open, sizeof *gate->open, CUDA_HOST_PORTABLE));
    *gate->open = 0;
    DO(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate->open, 1, AT_LEAST));
    DO(cuCtxPopCurrent_v2(&context));
    pthread_mutex_lock(&lock);
    gate->stream = stream;
    gate->next = gates;
    gates = gate;
    pthread_mutex_unlock(&lock);
}

void standin_release(CUstream stream)
{
    pthread_mutex_lock(&lock);
    for (struct gate **at = &gates; *at;) {
        struct gate *gate = *at;
        if (gate->stream == stream) {
            *gate->open = 1;
            *at = gate->next;
            free(gate);
        } else {
            at = &gate->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void standin_capture(CUstream stream, bool capturing)
{
    CUcontext context;
    CUgraph graph = NULL;
    DO(cuStreamGetCtx(stream, &context));
    DO(cuCtxPushCurrent_v2(context));
    if (capturing) {
        DO(cuStreamBeginCapture_v2(stream, CUDA_CAPTURE_GLOBAL));
    } else {
        DO(cuStreamEndCapture(stream, &graph));
        DO(cuGraphDestroy(graph));
    }
    DO(cuCtxPopCurrent_v2(&context));
}

static void need_the_standin(const char *what)
{
    fprintf(stderr, "gates: %s is possible on the stand-in only\n", what);
    abort();
}

void standin_fail(const char *symbol, int n, CUresult code)
{
    (void)symbol, (void)n, (void)code;
    need_the_standin("a failure");
}

int standin_calls(const char *symbol)
{
    (void)symbol;
    need_the_standin("to count calls");
    return 0;
}

void standin_delay(int microseconds)
{
    (void)microseconds; /* a GPU has delays of its own */
}
