/* nccl_library.h - NVIDIA's NCCL without its header: a library that is opened at run time. A process uses
 * one: the one that it has loaded already, such as PyTorch's, otherwise that of HOROVOD_NCCL_LIBRARY, of the
 * Python package `nvidia.nccl` beside this one, or of the system. Any thread. */
#ifndef HVD_BACKEND_NCCL_LIBRARY_H
#define HVD_BACKEND_NCCL_LIBRARY_H

#include "backend/nccl_calls.h"
#include "base/settings.h"
#include "horovod.h"

struct nccl_library {
    int version_code;
    char path[4096];
#define MEMBER(type, member, symbol, parameters) type(*member) parameters;
    NCCL_CALLS(MEMBER)
#undef MEMBER
};

/* Opens the library with the first call; `path` is HOROVOD_NCCL_LIBRARY, maybe empty. Returns the same every
 * time; NULL, with the reason, if there is none that can be used. */
const struct nccl_library *nccl_open_library(const char *path, hvd_status *reason);

#endif
