/* mxnet.h - collectives as operations on MXNet's engine, by MXNet's C interface, whose functions are looked
 * up in its loaded library: no header of MXNet is needed to build. MXNet's engine runs one when all that
 * writes its arrays has ended, and what uses them later when the collective is done; the caller waits for
 * neither. Made for MXNet 1.9.1, its last release. */
#ifndef HVD_NATIVE_MXNET_H
#define HVD_NATIVE_MXNET_H

#include "horovod.h"

/* Fields as of hvd_request; python/horovod/mxnet/engine.py has the same struct. */
struct mxnet_call {
    int32_t operation, reduction, root, process_set, grouped, generated;
    int32_t priority; /* in MXNet's engine, too: larger runs earlier */
    double prescale, postscale;
    const char *name;
    int32_t count;
    void *const *inputs;  /* [count], handles of dense NDArrays on the CPU */
    void *const *outputs; /* [count], with the shapes of the results; NULL: in place */
};

/* Looks up MXNet's functions; `library` is dlopen's handle of libmxnet.so. Before the first push. */
hvd_code mxnet_open(void *library, hvd_status *status);

/* Puts an operation on MXNet's engine, from any thread. Handles and texts may go when it returns. What goes
 * wrong later MXNet throws where the arrays are next waited for. 0; -1: MXGetLastError has the text; -2: out
 * of memory. */
int mxnet_push(const struct mxnet_call *call);

#endif
