/* context.h - the devices, one primary context for each, and the contexts that are current in a thread.
 * Internal to the stand-ins; any thread. */
#ifndef HVD_TEST_STANDIN_CONTEXT_H
#define HVD_TEST_STANDIN_CONTEXT_H

#include "standin/driver.h"

#include <stdatomic.h>

enum { DEVICES_LIMIT = 8 };

struct CUctx_st {
    int device;        /* as this process counts them */
    int physical;      /* as the machine counts them */
    atomic_bool alive; /* it has been retained */
    atomic_int result; /* CUDA_OK, otherwise why it is broken */
};

/* The context on top of this thread's stack; NULL: none. */
struct CUctx_st *context_current(void);
struct CUctx_st *context_of(int device);

CUresult context_result(int device);

/* From now on calls that use this device return the code; the first one stays. Prints why. */
__attribute__((visibility("default"))) void context_break(int device, CUresult code, const char *why);

#endif
