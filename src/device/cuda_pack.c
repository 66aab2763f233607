/* cuda_pack.c - see cuda_pack.h. Kernels are loaded under a lock, and stay loaded until the process ends. */
#include "device/cuda_pack.h"

#include "base/status.h"
#include "device/cuda_kernels.h"
#include "device/cuda_kernels_ptx.h"

#include <pthread.h>
#include <stdatomic.h>

#define WARP         32
#define MOST_THREADS 256 /* of a block */
#define LARGEST_LANE 16  /* bytes that a thread moves at a time */

enum state { NOT_LOADED, LOADED, REFUSED };

static struct gpu {
    _Atomic(enum state) state;
    CUfunction move_pieces;
} gpus[CUDA_MOST_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void load(struct gpu *gpu, const struct cuda_use *use)
{
    hvd_status status;
    CUmodule module;
    CUresult result = use->cuda->module_load(&module, cuda_kernels_ptx);
    if (!result)
        result = use->cuda->module_function(&gpu->move_pieces, module, "move_pieces");
    if (cuda_check(use->cuda, result, "loading the engine's kernels", &status))
        log_warning(-1, "GPU %d: %s; tensors are copied one by one, which is slower", (int)use->device_id,
                    status.text);
    atomic_store(&gpu->state, result ? REFUSED : LOADED);
}

bool cuda_can_pack(const struct cuda_use *use)
{
    struct gpu *gpu = &gpus[use->device_id];
    if (atomic_load(&gpu->state) == NOT_LOADED) {
        pthread_mutex_lock(&lock);
        if (atomic_load(&gpu->state) == NOT_LOADED)
            load(gpu, use);
        pthread_mutex_unlock(&lock);
    }
    return atomic_load(&gpu->state) == LOADED;
}

/* Starts only as many threads in a block as the largest piece has lanes. */
static CUresult launch(const struct cuda_use *use, struct pack_table *table, unsigned blocks,
                       unsigned largest)
{
    unsigned lanes = (largest + LARGEST_LANE - 1) / LARGEST_LANE;
    unsigned threads = lanes < MOST_THREADS ? (lanes + WARP - 1) / WARP * WARP : MOST_THREADS;
    void *parameters[] = {table};
    return use->cuda->launch(gpus[use->device_id].move_pieces, blocks, 1, 1, threads, 1, 1, 0, use->stream,
                             parameters, NULL);
}

static char *pointer_to(CUdeviceptr address)
{
    return (char *)(uintptr_t)address;
}

static CUresult move_pieces(const struct cuda_use *use, CUdeviceptr buffer, const struct cuda_piece *pieces,
                            int count, bool unpacks)
{
    CUresult result = CUDA_OK;
    struct pack_table table = {.buffer = pointer_to(buffer), .unpacks = unpacks};
    for (int at = 0; at < count && !result; at += (int)table.count) {
        unsigned blocks = 0, largest = 0;
        table.count = 0;
        for (int i = at; i < count && table.count < PACK_PIECES; i++) {
            unsigned n = table.count++;
            table.data[n] = pointer_to(pieces[i].data);
            table.offset[n] = pieces[i].offset;
            table.bytes[n] = pieces[i].bytes;
            table.first_block[n] = blocks;
            blocks += (pieces[i].bytes - 1) / PACK_BLOCK_BYTES + 1;
            largest = pieces[i].bytes > largest ? pieces[i].bytes : largest;
        }
        result = launch(use, &table, blocks, largest);
    }
    return result;
}

CUresult cuda_pack(const struct cuda_use *use, CUdeviceptr buffer, const struct cuda_piece *pieces, int count)
{
    return move_pieces(use, buffer, pieces, count, false);
}

CUresult cuda_unpack(const struct cuda_use *use, CUdeviceptr buffer, const struct cuda_piece *pieces,
                     int count)
{
    return move_pieces(use, buffer, pieces, count, true);
}
