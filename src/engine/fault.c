/* fault.c - publishes why this rank stops (base/fault.h has the bytes). The thread that makes progress and
 * threads of the user call it. It only tries the lock of the job's client, since a thread that waits may hold
 * it. */
#include "engine/fault.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/status.h"
#include "rendezvous/client.h"

#include <stdio.h>

/* A job of one rank has no client yet. */
static hvd_code connect_alone(struct hvd_context *context, int64_t deadline, hvd_status *status)
{
    const struct settings *settings = &context->settings;
    TRY(rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption, deadline, NULL,
                           &context->rendezvous, status));
    const struct rendezvous_place place = {settings->job, (uint32_t)settings->epoch, context->placement.rank,
                                           0};
    return rendezvous_enter(context->rendezvous, &place, NULL, status);
}

hvd_code fault_publish(struct hvd_context *context, hvd_fault *fault, int64_t deadline, hvd_status *status)
{
    char key[32];
    struct wire_writer value = {0};
    hvd_code code = HVD_OK;
    if (!*context->settings.rendezvous)
        return HVD_OK;
    if (pthread_mutex_trylock(&context->rendezvous_lock))
        return status_set(status, HVD_IN_PROGRESS, "another thread uses the connection to the rendezvous");
    /* This rank stops because of it. That its engine loses others until it has ended is no news. */
    if (context->has_raised && !*fault->exception)
        goto unlock;
    context->has_raised = context->has_raised || *fault->exception;
    fault->rank = context->placement.rank;
    fault_put(&value, fault);
    snprintf(key, sizeof key, FAULT_PREFIX "%d", (int)fault->rank);
    if (value.failed) {
        code = status_no_memory(status);
        goto unlock;
    }
    if (!context->rendezvous)
        code = connect_alone(context, deadline, status);
    if (code)
        goto unlock;
    code = rendezvous_publish(context->rendezvous, key, value.bytes, value.length, deadline, status);
unlock:
    pthread_mutex_unlock(&context->rendezvous_lock);
    wire_writer_free(&value);
    return code;
}
