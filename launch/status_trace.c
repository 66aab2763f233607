/* status_trace.c - see status_trace.h. */
#include "status_trace.h"
#include "record_client.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>

#define STEPS 5 /* unless given */

static hvd_code write_file(struct collected *collected, const struct job_view *job_view, const char *path,
                           char *text, size_t capacity, hvd_status *status)
{
    struct rank_trace trace = collected_trace(collected, job_view->id);
    if (!rank_trace_measure(&trace).requests)
        return status_set(status, HVD_REFUSED, "no rank has recorded anything yet, so there is no timeline");
    FILE *file = fopen(path, "we");
    int64_t bytes = file ? rank_trace_write(&trace, file) : -1;
    hvd_code code =
        bytes < 0 ? status_set_errno(status, errno, "can't write the timeline file %s", path) : HVD_OK;
    if (file)
        fclose(file);
    if (!code)
        rank_trace_describe(&trace, job_view->size, path, bytes, text, capacity);
    return code;
}

hvd_code status_trace_write(const struct options *options, const struct job_view *job_view, bool asks,
                            char *text, size_t capacity, hvd_status *status)
{
    const struct history_window window = {.steps = options->steps ? (int)options->steps : STEPS,
                                          .most = collected_share(RANK_TRACE_MOST, job_view->size)};
    struct collected collected = {0};
    hvd_code code = asks ? record_query_ask(job_view->id, &window, &collected, status)
                         : collected_take_here(&collected, job_view, &window, status);
    if (!code)
        code = write_file(&collected, job_view, options->timeline, text, capacity, status);
    collected_free(&collected);
    return code;
}
