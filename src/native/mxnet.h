/* mxnet.h - collectives as operations on MXNet's engine, by MXNet's C interface, whose functions are looked
 * up in its loaded library: no header of MXNet is needed to build. MXNet's engine runs one when all
 * operations that write its arrays have ended, and later users of the arrays when the collective is done; the
 * caller waits for neither. Any thread. For MXNet 1.9.1, its last release. */
#ifndef HVD_NATIVE_MXNET_H
#define HVD_NATIVE_MXNET_H

#include "horovod.h"

/* Fields have the meaning of hvd_request's; python/horovod/mxnet/engine.py has the same struct. */
struct mxnet_call {
    int32_t operation, reduction, root, process_set, grouped, generated;
    int32_t priority; /* also in MXNet's engine: larger runs earlier */
    double prescale, postscale;
    const char *name;
    int32_t count;
    void *const *inputs;  /* [count], handles of dense NDArrays on the CPU */
    void *const *outputs; /* [count], with the shapes of the results; NULL: in place */
};

/* Looks up MXNet's functions; `library` is dlopen's handle of libmxnet.so. Before the first push. */
hvd_code mxnet_open(void *library, hvd_status *status);

/* Puts an operation on MXNet's engine, from any thread. Handles and texts may be freed when it returns. MXNet
 * throws later errors when the arrays are next waited for. Returns 0; -1: MXGetLastError has the text; -2:
 * out of memory. */
int mxnet_push(const struct mxnet_call *call);

#endif
