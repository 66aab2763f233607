/* allreduce_flat.c - for short vectors on 3 ranks, where doubling would have to fold: every rank sends its
 * vector to all others, and adds all of them up at once.
 *
 *   4 ranks      rank 0           rank 1           rank 2           rank 3
 *   exchange     1 2 3 come       0 2 3 come       0 1 3 come       0 1 2 come
 *   add          0+1+2+3          0+1+2+3          0+1+2+3          0+1+2+3
 *
 *   cost: 1 step; each rank sends the vector n - 1 times.
 *
 * All ranks add in the order of ranks, so all get the same bits. With so few every rank is a peer of every
 * other one (pattern.h). */
#include "coll/allreduce.h"

#include "base/status.h"
#include "device/reduce_many.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 5

/* The job's scratch. Until all vectors are here the job's output is its tensors and, behind them, the room.
 */
struct flat {
    struct vector tensors; /* the output as it was */
    size_t stride;         /* from a rank's vector in the room to the next */
    char *room;
};

static bool fits(uint64_t bytes, int size, uint64_t latency_threshold)
{
    return size == 3 && bytes <= latency_threshold;
}

static hvd_code begin(struct job *job, hvd_status *status)
{
    const size_t line = 64;
    size_t count = (size_t)job->output.count, stride = (job->output.length + line - 1) / line * line;
    size_t lists = (count + 1) * (sizeof(struct span) + sizeof(size_t)) + line;
    struct flat *flat = malloc(sizeof *flat + lists + (size_t)job->size * stride);
    if (!flat)
        return status_set(status, HVD_OUT_OF_MEMORY, "rank %d has no memory for the %zu bytes of all ranks",
                          job->rank, (size_t)job->size * stride);
    struct span *spans = (struct span *)(flat + 1);
    size_t *starts = (size_t *)(spans + count + 1);
    char *room = (char *)(starts + count + 1);
    room += -(uintptr_t)room % line;
    memcpy(spans, job->output.spans, count * sizeof *spans);
    spans[count] = (struct span){room, (size_t)job->size * stride};
    *flat = (struct flat){.tensors = job->output, .stride = stride, .room = room};
    job->output = (struct vector){spans, starts, (int)count + 1, 0};
    vector_measure(&job->output);
    job->scratch = flat;
    return HVD_OK;
}

static void plan_exchange(const struct job *job, struct schedule *schedule)
{
    const struct flat *flat = job->scratch;
    struct step step = {.kind = STEP_COPY, .gate = STEP_NO_GATE, .length = flat->tensors.length};
    size_t room = flat->tensors.length;
    step.offset = room + (size_t)job->rank * flat->stride;
    int copied = schedule_add(schedule, step);
    for (int distance = 1; distance < job->size; distance++) {
        step.kind = STEP_SEND;
        step.peer = pattern_shift(job->rank, distance, job->size);
        step.buffer = BUFFER_OUTPUT;
        step.gate = copied;
        step.offset = room + (size_t)job->rank * flat->stride;
        schedule_add(schedule, step);
        step.kind = STEP_RECEIVE;
        step.peer = pattern_shift(job->rank, -distance, job->size);
        step.gate = STEP_NO_GATE;
        step.offset = room + (size_t)step.peer * flat->stride;
        schedule_add(schedule, step);
    }
}

static void compute(struct job *job, const struct step *step, size_t done, size_t length)
{
    const struct flat *flat = job->scratch;
    size_t element = hvd_dtype_size(job->dtype), offset = step->offset + done, end = offset + length;
    int64_t divisor = job->reduction == HVD_AVERAGE ? job->size : 1;
    while (offset < end) {
        struct iovec to;
        const void *sources[MOST_RANKS];
        vector_parts(&flat->tensors, offset, end - offset, &to, 1);
        for (int rank = 0; rank < job->size; rank++)
            sources[rank] = flat->room + (size_t)rank * flat->stride + offset;
        reduce_many(job->dtype, job->reduction, to.iov_base, sources, job->size, to.iov_len / element,
                    job->postscale, divisor);
        offset += to.iov_len;
    }
}

static hvd_code plan(struct job *job, int phase, struct schedule *schedule, bool *more, hvd_status *status)
{
    *more = phase == 0;
    if (phase == 0) {
        hvd_code code = begin(job, status);
        if (code == HVD_OK)
            plan_exchange(job, schedule);
        return code;
    }
    job->output = ((struct flat *)job->scratch)->tensors;
    schedule_add(schedule, (struct step){.kind = STEP_COMPUTE,
                                         .buffer = BUFFER_OUTPUT,
                                         .gate = STEP_NO_GATE,
                                         .length = job->output.length});
    return HVD_OK;
}

const struct algorithm allreduce_flat = {.name = "flat",
                                         .operation = HVD_ALLREDUCE,
                                         .fits = fits,
                                         .plan = plan,
                                         .compute = compute,
                                         .most_ranks = MOST_RANKS};
