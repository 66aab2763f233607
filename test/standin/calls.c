/* calls.c - see calls.h. */
#include "standin/calls.h"

#include "standin/context.h"
#include "standin/standin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const symbols[] = {
#define CALL(member, symbol, parameters) #symbol,
    ALL_CALLS(CALL)
#undef CALL
};

static atomic_int counts[CALLS];
static atomic_bool begun, forked, ended;
static _Thread_local bool forbidden_here;
static _Thread_local CUstreamCaptureMode capture_mode = CUDA_CAPTURE_GLOBAL;
static atomic_int captures;

static struct {
    atomic_int call; /* CALLS: none */
    atomic_int left; /* calls until it fails */
    atomic_int code;
} failure = {.call = CALLS};

/* Returns the code that a test has ordered for this call, otherwise CUDA_OK. */
static CUresult ordered_failure(enum call call)
{
    if (atomic_load(&failure.call) != (int)call || atomic_fetch_sub(&failure.left, 1) != 1)
        return CUDA_OK;
    CUresult code = atomic_load(&failure.code);
    const struct CUctx_st *context = context_current();
    if (context && code >= CUDA_ILLEGAL_ADDRESS && code <= CUDA_LAUNCH_FAILED &&
        code != CUDA_LAUNCH_OUT_OF_RESOURCES)
        context_break(context->device, code, "a test has ordered a failure");
    return code;
}

/* While any thread captures a stream, calls that might wait for the device are refused, except in a thread
 * that has allowed itself more. */
static bool is_refused_in_capture(enum call call)
{
    static const bool waits[CALLS] = {
        [CALL_cuMemAlloc_v2] = true,    [CALL_cuMemFree_v2] = true,         [CALL_cuMemHostAlloc] = true,
        [CALL_cuMemFreeHost] = true,    [CALL_cuMemHostRegister_v2] = true, [CALL_cuMemHostUnregister] = true,
        [CALL_cuModuleLoadData] = true, [CALL_cuEventQuery] = true,         [CALL_cuEventSynchronize] = true,
        [CALL_cuStreamQuery] = true,    [CALL_cuStreamSynchronize] = true,  [CALL_cuCtxSynchronize] = true,
    };
    return waits[call] && atomic_load(&captures) && (int)capture_mode == CUDA_CAPTURE_GLOBAL;
}

CUresult calls_enter(enum call call, enum need need)
{
    atomic_fetch_add(&counts[call], 1);
    if (atomic_load(&ended))
        return CUDA_DEINITIALIZED;
    if (forbidden_here)
        return CUDA_NOT_PERMITTED;
    if (need == NEEDS_NOTHING)
        return CUDA_OK;
    if (atomic_load(&forked) || (!atomic_load(&begun) && call != CALL_cuInit))
        return CUDA_NOT_INITIALIZED;
    CHECK(ordered_failure(call));
    if (is_refused_in_capture(call))
        return CUDA_CAPTURE_UNSUPPORTED;
    if (need == NEEDS_DRIVER)
        return CUDA_OK;
    const struct CUctx_st *context = context_current();
    return context ? context_result(context->device) : CUDA_INVALID_CONTEXT;
}

static void forget_in_child(void)
{
    atomic_store(&forked, true);
    for (int i = 0; i < CALLS; i++)
        atomic_store(&counts[i], 0);
}

/* The driver of a process that ends refuses calls of threads that are still running. */
__attribute__((destructor)) static void end(void)
{
    atomic_store(&ended, true);
}

void calls_begin(void)
{
    const char *ordered = getenv("STANDIN_FAIL");
    if (ordered) {
        char symbol[64] = "";
        int n = 0, code = CUDA_UNKNOWN;
        if (sscanf(ordered, "%63[^:]:%d:%d", symbol, &n, &code) < 2) { /* NOLINT(cert-err34-c) */
            fprintf(stderr, "stand-in GPU: STANDIN_FAIL=%s is not symbol:n[:code]\n", ordered);
            abort();
        }
        standin_fail(symbol, n, code);
    }
    pthread_atfork(NULL, NULL, forget_in_child);
    atomic_store(&begun, true);
}

void calls_forbid(bool forbidden)
{
    forbidden_here = forbidden;
}

void calls_count_captures(int more)
{
    atomic_fetch_add(&captures, more);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode, NEEDS_DRIVER);
    CUstreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return CUDA_OK;
}

static int call_named(const char *symbol)
{
    int call = 0;
    while (call < CALLS && strcmp(symbols[call], symbol) != 0)
        call++;
    if (call == CALLS) {
        fprintf(stderr, "stand-in GPU: there is no function %s\n", symbol);
        abort();
    }
    return call;
}

void standin_fail(const char *symbol, int n, CUresult code)
{
    atomic_store(&failure.call, CALLS);
    atomic_store(&failure.code, code);
    atomic_store(&failure.left, n);
    atomic_store(&failure.call, call_named(symbol));
}

int standin_calls(const char *symbol)
{
    int all = 0;
    if (symbol)
        return atomic_load(&counts[call_named(symbol)]);
    for (int i = 0; i < CALLS; i++)
        all += atomic_load(&counts[i]);
    return all;
}

/* ---- names of results --------------------------------------------------------------------------------- */

struct result_text {
    CUresult code;
    const char *name, *text;
};

static const struct result_text *text_of(CUresult code)
{
    static const struct result_text texts[] = {
        {CUDA_OK, "CUDA_SUCCESS", "no error"},
        {CUDA_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
        {CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
        {CUDA_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
        {CUDA_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
        {CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
        {CUDA_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
        {CUDA_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
        {CUDA_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
        {CUDA_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
         "too many resources requested for launch"},
        {CUDA_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
        {CUDA_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
         "operation would make the legacy stream depend on a capturing blocking stream"},
#define RESULT(ours, code, name, text) {code, #name, text},
        STANDIN_RESULTS(RESULT)
#undef RESULT
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == code)
            return &texts[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult result, const char **text)
{
    ENTER(cuGetErrorName, NEEDS_NOTHING);
    const struct result_text *found = text_of(result);
    *text = found ? found->name : NULL;
    return found ? CUDA_OK : CUDA_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char **text)
{
    ENTER(cuGetErrorString, NEEDS_NOTHING);
    const struct result_text *found = text_of(result);
    *text = found ? found->text : NULL;
    return found ? CUDA_OK : CUDA_INVALID_VALUE;
}
