/* staging.c - copies tensors of a device to host memory and back for collectives that run on the host. The
 * thread that makes progress; copies run on the device meanwhile, and only staging_end waits for one. The
 * collective's vectors are host memory from staging_begin on. */
#include "coll/staging.h"

#include "base/status.h"
#include "base/types.h"

#include <stdlib.h>

/* Host memory with the same spans as a vector of tensors. */
struct mirror {
    struct vector vector;
    char *block;
};

struct staging {
    struct vector input, output; /* the tensors */
    struct mirror host_input, host_output;
    hvd_code (*gathered)(struct collective *collective, const uint64_t *rows, hvd_status *status);
    int ready;                        /* number of the collective's events that are done */
    bool input_copied, output_copied; /* the copy has started */
    struct memory_event *copying;     /* the end of the copies that were started */
};

/* ---- host memory -------------------------------------------------------------------------------------- */

static hvd_code mirror_make(struct mirror *mirror, const struct collective *collective,
                            const struct vector *tensors, hvd_status *status)
{
    const struct memory_ops *memory = collective->memory;
    struct span *spans = malloc(((size_t)tensors->count + 1) * sizeof *spans);
    mirror->block = memory->staging_allocate(collective->device_id, tensors->length);
    mirror->vector = (struct vector){spans, tensors->starts, tensors->count, tensors->length};
    if (!spans || !mirror->block)
        return status_set(
            status, HVD_OUT_OF_MEMORY,
            "rank %d is out of host memory for %zu bytes of a device's tensors on their way through "
            "%s",
            collective->rank, tensors->length, hvd_operation_name(collective->operation));
    for (int i = 0; i < tensors->count; i++)
        spans[i] = (struct span){mirror->block + tensors->starts[i], tensors->spans[i].length};
    return HVD_OK;
}

static void mirror_free(struct mirror *mirror, const struct memory_ops *memory)
{
    free(mirror->vector.spans);
    if (mirror->block)
        memory->staging_release(mirror->block);
}

/* Makes host memory for the output, whose size is known only now. */
static hvd_code gathered(struct collective *collective, const uint64_t *rows, hvd_status *status)
{
    struct staging *staging = collective->staging;
    collective->output = staging->output;
    hvd_code code = staging->gathered(collective, rows, status);
    staging->output = collective->output;
    if (!code)
        code = mirror_make(&staging->host_output, collective, &staging->output, status);
    collective->output = staging->host_output.vector;
    return code;
}

hvd_code staging_begin(struct collective *collective, hvd_status *status)
{
    if (!collective->memory)
        return HVD_OK;
    struct staging *staging = calloc(1, sizeof *staging);
    if (!staging)
        return status_no_memory(status);
    *staging = (struct staging){
        .input = collective->input, .output = collective->output, .gathered = collective->gathered};
    collective->staging = staging;
    collective->gathered = gathered;
    hvd_code code = mirror_make(&staging->host_input, collective, &staging->input, status);
    collective->input = staging->host_input.vector;
    /* Reductions and broadcasts run in place in host memory, whether or not the tensors are in place. */
    if (!operation_makes_results(collective->operation)) {
        collective->output = collective->input;
        return code;
    }
    if (!code && staging->output.count)
        code = mirror_make(&staging->host_output, collective, &staging->output, status);
    collective->output = staging->host_output.vector;
    return code;
}

/* ---- copies ------------------------------------------------------------------------------------------- */

/* Starts copies from `from` to `to`. A span without an address is not needed and is skipped. */
static hvd_code copy_start(const struct collective *collective, const struct vector *to,
                           const struct vector *from, hvd_status *status)
{
    struct memory_copy *copies = malloc(((size_t)to->count + 1) * sizeof *copies);
    hvd_code code = HVD_OK;
    int count = 0;
    if (!copies)
        return status_no_memory(status);
    for (int i = 0; i < to->count; i++)
        if (to->spans[i].length && to->spans[i].data && from->spans[i].data)
            copies[count++] =
                (struct memory_copy){to->spans[i].data, from->spans[i].data, to->spans[i].length};
    if (count)
        code = collective->memory->copy(copies, count, &collective->staging->copying, status);
    free(copies);
    return code;
}

static hvd_code copy_query(const struct collective *collective, hvd_status *status)
{
    struct staging *staging = collective->staging;
    hvd_code code = staging->copying ? collective->memory->event_query(staging->copying, status) : HVD_OK;
    if (staging->copying && code != HVD_IN_PROGRESS) {
        collective->memory->event_release(staging->copying);
        staging->copying = NULL;
    }
    return code;
}

hvd_code staging_copy_input(struct collective *collective, hvd_status *status)
{
    struct staging *staging = collective->staging;
    if (!staging)
        return HVD_OK;
    for (; staging->ready < collective->ready_count; staging->ready++) {
        TRY(collective->memory->event_query(collective->ready[staging->ready], status));
    }
    bool overwritten = collective->operation == HVD_BROADCAST && collective->rank != collective->root;
    if (!staging->input_copied && !overwritten)
        TRY(copy_start(collective, &staging->host_input.vector, &staging->input, status));
    staging->input_copied = true;
    TRY(copy_query(collective, status));
    if (collective->staged)
        collective->staged(collective, false);
    return HVD_OK;
}

hvd_code staging_copy_output(struct collective *collective, hvd_status *status)
{
    struct staging *staging = collective->staging;
    const struct mirror *from =
        operation_makes_results(collective->operation) ? &staging->host_output : &staging->host_input;
    if (!staging->output_copied && collective->staged)
        collective->staged(collective, true);
    if (!staging->output_copied)
        TRY(copy_start(collective, &staging->output, &from->vector, status));
    staging->output_copied = true;
    return copy_query(collective, status);
}

void staging_end(struct collective *collective)
{
    struct staging *staging = collective->staging;
    if (!staging)
        return;
    if (staging->copying)
        collective->memory->event_release(staging->copying);
    mirror_free(&staging->host_input, collective->memory);
    mirror_free(&staging->host_output, collective->memory);
    free(staging);
    collective->staging = NULL;
}
