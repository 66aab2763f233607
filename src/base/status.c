/* status.c - codes and texts of errors. No state; any thread. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#undef status_set /* what the analyzer sees instead */
#undef status_set_errno

static void write_text(hvd_status *status, hvd_code code, const char *format, va_list arguments)
{
    if (!status)
        return;
    status->code = code;
    vsnprintf(status->text, sizeof status->text, format, arguments);
}

hvd_code status_set(hvd_status *status, hvd_code code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_text(status, code, format, arguments);
    va_end(arguments);
    return code;
}

hvd_code status_set_errno(hvd_status *status, int error, const char *format, ...)
{
    hvd_code code = error == ENOMEM ? HVD_OUT_OF_MEMORY : HVD_SYSTEM;
    if (!status)
        return code;
    va_list arguments;
    va_start(arguments, format);
    write_text(status, code, format, arguments);
    va_end(arguments);
    size_t used = strlen(status->text);
    char reason[128];
    /* The GNU variant of strerror_r returns the text; it need not use our buffer. */
    snprintf(status->text + used, sizeof status->text - used, ": %s",
             strerror_r(error, reason, sizeof reason));
    return code;
}

hvd_code status_ok(hvd_status *status)
{
    if (status) {
        status->code = HVD_OK;
        status->text[0] = '\0';
    }
    return HVD_OK;
}

hvd_code status_copy(hvd_status *status, const hvd_status *from)
{
    if (status && status != from) {
        status->code = from->code;
        memcpy(status->text, from->text, strlen(from->text) + 1);
    }
    return from->code;
}

const char *hvd_code_name(hvd_code code)
{
    switch (code) {
    case HVD_OK:
        return "HVD_OK";
    case HVD_IN_PROGRESS:
        return "HVD_IN_PROGRESS";
    case HVD_INVALID_ARGUMENT:
        return "HVD_INVALID_ARGUMENT";
    case HVD_DUPLICATE_NAME:
        return "HVD_DUPLICATE_NAME";
    case HVD_MISMATCH:
        return "HVD_MISMATCH";
    case HVD_PEER_LOST:
        return "HVD_PEER_LOST";
    case HVD_SHUT_DOWN:
        return "HVD_SHUT_DOWN";
    case HVD_OUT_OF_MEMORY:
        return "HVD_OUT_OF_MEMORY";
    case HVD_SYSTEM:
        return "HVD_SYSTEM";
    case HVD_TIMED_OUT:
        return "HVD_TIMED_OUT";
    case HVD_REFUSED:
        return "HVD_REFUSED";
    case HVD_UNSUPPORTED:
        return "HVD_UNSUPPORTED";
    case HVD_FORKED:
        return "HVD_FORKED";
    case HVD_INTERRUPTED:
        return "HVD_INTERRUPTED";
    }
    return "unknown";
}
