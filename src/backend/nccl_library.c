/* nccl_library.c - finds and opens NCCL, see nccl_library.h. It is opened once, and stays open. */
#include "backend/nccl_library.h"

#include "base/status.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NAME "libnccl.so.2"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl_library library; /* version_code is 0: not open; under the lock until it is */

static int find_loaded(struct dl_phdr_info *object, size_t bytes, void *argument)
{
    const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
    (void)bytes;
    if (strncmp(name, "libnccl.so", strlen("libnccl.so")) != 0)
        return 0;
    snprintf(argument, sizeof library.path, "%s", object->dlpi_name);
    return 1;
}

/* Opens the one of the package `nvidia.nccl`, which is next to the package that this code is in. */
static void *open_package(void)
{
    char path[sizeof library.path];
    Dl_info own;
    if (!dladdr(&library, &own))
        return NULL;
    const char *slash = strrchr(own.dli_fname, '/');
    int length = slash ? (int)(slash - own.dli_fname) : 0;
    snprintf(path, sizeof path, "%.*s/../nvidia/nccl/lib/" NAME, length, own.dli_fname);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void *open_file(const char *path)
{
    char loaded[sizeof library.path];
    if (dl_iterate_phdr(find_loaded, loaded))
        return dlopen(loaded, RTLD_NOW | RTLD_LOCAL);
    if (path && *path)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *file = open_package();
    return file ? file : dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
}

static hvd_code find_functions(void *file, struct nccl_library *found, hvd_status *reason)
{
    static const struct {
        const char *symbol;
        size_t place;
    } calls[] = {
#define PLACE(type, member, symbol, parameters) {#symbol, offsetof(struct nccl_library, member)},
        NCCL_CALLS(PLACE)
#undef PLACE
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = dlsym(file, calls[i].symbol);
        memcpy((char *)found + calls[i].place, &function, sizeof function);
        if (!function)
            return status_set(reason, HVD_UNSUPPORTED,
                              "NCCL is too old: it has no %s; 2.27.3 or later is needed", calls[i].symbol);
    }
    Dl_info place;
    if (dladdr(dlsym(file, "ncclGetVersion"), &place))
        snprintf(found->path, sizeof found->path, "%s", place.dli_fname);
    if (found->version(&found->version_code) || found->version_code < NCCL_OLDEST)
        return status_set(reason, HVD_UNSUPPORTED, "NCCL has the version %d; 2.27.3 or later is needed (%s)",
                          found->version_code, found->path);
    return HVD_OK;
}

static hvd_code open_library(const char *path, hvd_status *reason)
{
    struct nccl_library found = {0};
    void *file = open_file(path);
    if (!file)
        return status_set(
            reason, HVD_UNSUPPORTED,
            "no NCCL was found: %.300s; install one, e.g. by `pip install nvidia-nccl-cu12`, or name "
            "it in HOROVOD_NCCL_LIBRARY",
            dlerror());
    TRY(find_functions(file, &found, reason));
    library = found;
    return HVD_OK;
}

const struct nccl_library *nccl_open_library(const char *path, hvd_status *reason)
{
    pthread_mutex_lock(&lock);
    hvd_code code = library.version_code ? HVD_OK : open_library(path, reason);
    pthread_mutex_unlock(&lock);
    return code ? NULL : &library;
}

hvd_code hvd_find_nccl(const char *path, int32_t *version, hvd_status *found)
{
    const struct nccl_library *opened = nccl_open_library(path, found);
    *version = opened ? opened->version_code : 0;
    if (!opened)
        return HVD_UNSUPPORTED;
    *found = (hvd_status){.code = HVD_OK};
    append_text(found->text, sizeof found->text, "NCCL %d.%d.%d (%s)", *version / 10000, *version / 100 % 100,
                *version % 100, opened->path);
    return HVD_OK;
}
