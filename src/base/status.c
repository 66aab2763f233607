/* status.c - see status.h. */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#undef status_set /* what the analyzer sees instead */
#undef status_set_errno

void append_text(char *text, size_t capacity, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

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

/* Which limit on descriptors was hit, and how to raise it. */
static void append_limit(hvd_status *status, int error)
{
    struct rlimit limit;
    if (error == EMFILE && !getrlimit(RLIMIT_NOFILE, &limit))
        append_text(status->text, sizeof status->text,
                    " (this process may have %llu; raise the limit with ulimit -n before it starts)",
                    (unsigned long long)limit.rlim_cur);
    else if (error == ENFILE)
        append_text(status->text, sizeof status->text,
                    " (the limit of the whole host; raise it with sysctl fs.file-max)");
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
    char reason[128];
    /* The GNU variant of strerror_r returns the text; it need not use our buffer. */
    append_text(status->text, sizeof status->text, ": %s", strerror_r(error, reason, sizeof reason));
    append_limit(status, error);
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
        /* Texts are mostly short, the room for them is not. */
        memcpy(status->text, from->text, strlen(from->text) + 1);
    }
    return from->code;
}

const char *hvd_code_name(hvd_code code)
{
#define NAME(code) [code] = #code
    static const char *const names[] = {
        NAME(HVD_OK),       NAME(HVD_IN_PROGRESS), NAME(HVD_INVALID_ARGUMENT), NAME(HVD_DUPLICATE_NAME),
        NAME(HVD_MISMATCH), NAME(HVD_PEER_LOST),   NAME(HVD_SHUT_DOWN),        NAME(HVD_OUT_OF_MEMORY),
        NAME(HVD_SYSTEM),   NAME(HVD_TIMED_OUT),   NAME(HVD_REFUSED),          NAME(HVD_UNSUPPORTED),
        NAME(HVD_FORKED),   NAME(HVD_INTERRUPTED),
    };
#undef NAME
    bool known = (size_t)code < sizeof names / sizeof *names && names[code];
    return known ? names[code] : "unknown";
}
