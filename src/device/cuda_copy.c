/* cuda_copy.c - see cuda_copy.h. Tensors that are next to each other in host memory are a run. A run of
 * several travels by one copy, between the host and a buffer of the GPU, and one kernel moves all of a batch
 * between the tensors and the buffer:
 *
 *     to the host:     tensors  --kernel-->  buffer  --copy-->  host
 *     to the device:   tensors  <--kernel--  buffer  <--copy--  host
 *
 * All use of a buffer is on the engine's stream of its GPU, which orders it. A lock keeps the calls of one
 * thread for a buffer together. */
#include "device/cuda_copy.h"

#include "base/status.h"
#include "device/cuda_pack.h"

#include <pthread.h>
#include <stdlib.h>

#define ALIGNMENT 64 /* of a run in the buffer */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct gpu {
    CUdeviceptr buffer; /* 0: there is none */
    bool refused;       /* there was no memory for it: logged once */
} gpus[CUDA_MOST_GPUS]; /* under the lock */

/* A copy that the driver makes. */
struct transfer {
    CUdeviceptr host, device;
    size_t bytes;
};

/* What fits into the buffer at a time. */
struct round {
    struct cuda_piece *pieces;
    struct transfer *transfers;
    int piece_count, transfer_count;
    size_t used; /* bytes of the buffer */
};

struct batch {
    const struct cuda_use *use;
    const struct memory_copy *copies;
    int count;
    bool to_device;
};

static struct transfer transfer_of(const struct batch *batch, int i)
{
    const struct memory_copy *copy = &batch->copies[i];
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)copy->to, from = (CUdeviceptr)(uintptr_t)copy->from;
    return batch->to_device ? (struct transfer){from, to, copy->length}
                            : (struct transfer){to, from, copy->length};
}

/* Returns the number of copies, at least 1, that are a run from the first one on, and their bytes. */
static int find_run(const struct batch *batch, int first, size_t *bytes)
{
    struct transfer run = transfer_of(batch, first);
    int i = first + 1;
    if (run.bytes <= CUDA_COPY_PACKED)
        for (; i < batch->count; i++) {
            struct transfer next = transfer_of(batch, i);
            if (next.host != run.host + run.bytes || next.bytes > CUDA_COPY_PACKED ||
                run.bytes + next.bytes > CUDA_COPY_BUFFER)
                break;
            run.bytes += next.bytes;
        }
    *bytes = run.bytes;
    return i - first;
}

/* Returns true if packing saves more copies than the one kernel that it costs. */
static bool is_worth_packing(const struct batch *batch)
{
    size_t bytes;
    int saved = 0;
    for (int i = 0, length; i < batch->count && saved < 2; i += length) {
        length = find_run(batch, i, &bytes);
        saved += length - 1;
    }
    return saved > 1;
}

static CUresult start_transfer(const struct batch *batch, const struct transfer *transfer)
{
    return batch->to_device
               ? batch->use->cuda->copy(transfer->device, transfer->host, transfer->bytes, batch->use->stream)
               : batch->use->cuda->copy(transfer->host, transfer->device, transfer->bytes,
                                        batch->use->stream);
}

static CUresult copy_each(const struct batch *batch)
{
    CUresult result = CUDA_OK;
    for (int i = 0; i < batch->count && !result; i++) {
        struct transfer transfer = transfer_of(batch, i);
        result = start_transfer(batch, &transfer);
    }
    return result;
}

/* ---- rounds ------------------------------------------------------------------------------------------- */

/* Plans copies from the first one on, as far as the buffer suffices; returns the first that is left. */
static int plan_round(struct round *round, const struct batch *batch, int first, CUdeviceptr buffer)
{
    int at = first;
    round->piece_count = round->transfer_count = 0;
    round->used = 0;
    while (at < batch->count) {
        struct transfer run = transfer_of(batch, at);
        int end = at + find_run(batch, at, &run.bytes);
        bool is_packed = end > at + 1;
        if (is_packed && run.bytes > CUDA_COPY_BUFFER - round->used)
            break;
        if (is_packed)
            run.device = buffer + round->used;
        for (size_t offset = round->used; at < end; at++) {
            struct transfer piece = transfer_of(batch, at);
            if (is_packed)
                round->pieces[round->piece_count++] =
                    (struct cuda_piece){piece.device, (unsigned)offset, (unsigned)piece.bytes};
            offset += piece.bytes;
        }
        if (is_packed)
            round->used += (run.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        round->transfers[round->transfer_count++] = run;
    }
    return at;
}

static CUresult start_round(const struct round *round, const struct batch *batch, CUdeviceptr buffer)
{
    CUresult result = CUDA_OK;
    if (!batch->to_device)
        result = cuda_pack(batch->use, buffer, round->pieces, round->piece_count);
    for (int i = 0; i < round->transfer_count && !result; i++)
        result = start_transfer(batch, &round->transfers[i]);
    if (batch->to_device && !result)
        result = cuda_unpack(batch->use, buffer, round->pieces, round->piece_count);
    return result;
}

static CUresult copy_by_rounds(const struct batch *batch, struct round *round, CUdeviceptr buffer)
{
    CUresult result = CUDA_OK;
    for (int at = 0; at < batch->count && !result;) {
        at = plan_round(round, batch, at, buffer);
        result = start_round(round, batch, buffer);
    }
    return result;
}

/* ---- buffers ------------------------------------------------------------------------------------------ */

/* Returns the buffer, which is allocated with the first use; 0: it can't be. Under the lock. */
static CUdeviceptr find_buffer(struct gpu *gpu, const struct cuda_use *use)
{
    hvd_status status;
    if (gpu->buffer || gpu->refused)
        return gpu->buffer;
    CUresult result = use->cuda->mem_alloc(&gpu->buffer, CUDA_COPY_BUFFER);
    if (cuda_check(use->cuda, result, "allocating a buffer for small tensors", &status)) {
        gpu->buffer = 0;
        gpu->refused = true;
        log_warning(-1, "GPU %d: %s; tensors are copied one by one, which is slower", (int)use->device_id,
                    status.text);
    }
    return gpu->buffer;
}

static hvd_code copy_packed(const struct batch *batch, hvd_status *status)
{
    struct gpu *gpu = &gpus[batch->use->device_id];
    struct round round = {.pieces = malloc((size_t)batch->count * sizeof *round.pieces),
                          .transfers = malloc((size_t)batch->count * sizeof *round.transfers)};
    hvd_code code = HVD_OK;
    if (round.pieces && round.transfers) {
        pthread_mutex_lock(&lock);
        CUdeviceptr buffer = find_buffer(gpu, batch->use);
        CUresult result = buffer ? copy_by_rounds(batch, &round, buffer) : copy_each(batch);
        pthread_mutex_unlock(&lock);
        code = cuda_check(batch->use->cuda, result, "copying tensors of the GPU", status);
    } else {
        code = status_no_memory(status);
    }
    free(round.pieces);
    free(round.transfers);
    return code;
}

hvd_code cuda_copy(const struct cuda_use *use, const struct memory_copy *copies, int count, bool to_device,
                   hvd_status *status)
{
    struct batch batch = {use, copies, count, to_device};
    if (is_worth_packing(&batch) && cuda_can_pack(use))
        return copy_packed(&batch, status);
    return cuda_check(use->cuda, copy_each(&batch), "copying a tensor of the GPU", status);
}

void cuda_copy_trim(void)
{
    struct cuda_use use;
    for (int32_t i = 0; i < CUDA_MOST_GPUS; i++) {
        pthread_mutex_lock(&lock);
        CUdeviceptr buffer = gpus[i].buffer;
        gpus[i].buffer = 0;
        gpus[i].refused = false;
        pthread_mutex_unlock(&lock);
        if (!buffer || cuda_enter(&use, i, NULL))
            continue; /* the process is ending, or the GPU has failed */
        use.cuda->stream_synchronize(use.stream);
        use.cuda->mem_free(buffer);
        cuda_leave(&use);
    }
}
