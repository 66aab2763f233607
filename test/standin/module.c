/* module.c - modules of kernels in PTX, and launches. Any thread. */
#include "standin/calls.h"
#include "standin/context.h"
#include "standin/ptx.h"
#include "standin/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_THREADS = 1024, BLOCK_DEPTH = 64, BLOCK_SHARED = 48 << 10, GRID_ROWS = 65535 };

struct CUfunc_st {
    const struct ptx_entry *entry;
    int device;
    struct CUfunc_st *next; /* of its module */
};

struct CUmod_st {
    struct ptx_module *ptx;
    int device;
    struct CUfunc_st *functions;
    struct CUmod_st *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all lists */
static struct CUmod_st *modules;

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(cuModuleLoadData, NEEDS_CONTEXT);
    char why[PTX_TEXT];
    struct ptx_module *ptx = ptx_load(image, why);
    if (!ptx) {
        fprintf(stderr, "stand-in GPU: PTX, %s\n", why);
        return CUDA_INVALID_PTX;
    }
    *module = calloc(1, sizeof **module);
    if (!*module)
        abort();
    (*module)->ptx = ptx;
    (*module)->device = context_current()->device;
    pthread_mutex_lock(&lock);
    (*module)->next = modules;
    modules = *module;
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

CUresult cuModuleUnload(CUmodule module)
{
    ENTER(cuModuleUnload, NEEDS_CONTEXT);
    stream_finish_device(module->device);
    pthread_mutex_lock(&lock);
    struct CUmod_st **at = &modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    pthread_mutex_unlock(&lock);
    while (module->functions) {
        struct CUfunc_st *gone = module->functions;
        module->functions = gone->next;
        free(gone);
    }
    ptx_unload(module->ptx);
    free(module);
    return CUDA_OK;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(cuModuleGetFunction, NEEDS_CONTEXT);
    const struct ptx_entry *entry = ptx_find(module->ptx, name);
    if (!entry)
        return CUDA_NOT_FOUND;
    *function = malloc(sizeof **function);
    if (!*function)
        abort();
    pthread_mutex_lock(&lock);
    **function = (struct CUfunc_st){entry, module->device, module->functions};
    module->functions = *function;
    pthread_mutex_unlock(&lock);
    return CUDA_OK;
}

/* ---- launches ----------------------------------------------------------------------------------------- */

struct launch {
    struct work work;
    struct ptx_launch *ptx;
};

static void run_launch(struct work *work)
{
    char why[PTX_TEXT];
    CUresult result = ptx_run(((struct launch *)work)->ptx, why);
    if (result)
        context_break(work->device, result, why);
}

static void release_launch(struct work *work)
{
    ptx_release(((struct launch *)work)->ptx);
    free(work);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra)
{
    ENTER(cuLaunchKernel, NEEDS_CONTEXT);
    unsigned long threads = (unsigned long)block_x * block_y * block_z;
    if (!grid_x || !grid_y || !grid_z || grid_y > GRID_ROWS || grid_z > GRID_ROWS || !threads ||
        threads > BLOCK_THREADS || block_z > BLOCK_DEPTH || shared > BLOCK_SHARED)
        return CUDA_INVALID_VALUE;
    if (extra)
        return CUDA_NOT_SUPPORTED;
    if (function->device != context_current()->device)
        return CUDA_INVALID_HANDLE;
    CHECK(stream_check_context(stream));
    struct launch *launch = malloc(sizeof *launch);
    if (!launch)
        return CUDA_OUT_OF_MEMORY;
    const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    *launch = (struct launch){{.run = run_launch, .release = release_launch},
                              ptx_prepare(function->entry, grid, block, shared, parameters)};
    return stream_submit(stream, &launch->work);
}
