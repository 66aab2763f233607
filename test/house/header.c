/* horovod.h in C11, with nothing before it. */
#include "horovod.h"

hvd_code run_barrier(hvd_context *context, hvd_status *status);

hvd_code run_barrier(hvd_context *context, hvd_status *status)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_BARRIER, .name = "here"};
    return hvd_run(context, &request, NULL, status);
}
