/* submit.h - submissions of the engine's own. Any thread. */
#ifndef HVD_ENGINE_SUBMIT_H
#define HVD_ENGINE_SUBMIT_H

#include "horovod.h"

/* As hvd_submit, which refuses what only the engine may submit. */
hvd_code submit(hvd_context *context, const hvd_request *request, hvd_handle **handle, hvd_status *status);

#endif
