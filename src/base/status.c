/* status.c - error texts, texts that are cut between characters, the log, and the version. Any thread. */
#include "base/status.h"

#include "base/settings.h"
#include "base/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#undef status_set /* the macros are for callers in the analyzer */
#undef status_set_errno
#undef status_no_memory

size_t text_whole(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t first = length; /* the first byte of the last character */
    while (first > 0 && length - first < 3 && (bytes[first - 1] & 0xc0) == 0x80)
        first--;
    unsigned char lead = first > 0 ? bytes[--first] : 0;
    size_t size = lead >= 0xf8 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    return size > length - first ? first : length;
}

void format_text(char *text, size_t capacity, const char *format, va_list arguments)
{
    int length = vsnprintf(text, capacity, format, arguments);
    if (length >= 0 && (size_t)length >= capacity && capacity > 0)
        text[text_whole(text, capacity - 1)] = '\0';
}

void append_text(char *text, size_t capacity, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    format_text(text + used, capacity - used, format, arguments);
    va_end(arguments);
}

void text_close_up(char *text, const char *characters)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        size_t blanks = strspn(from, " \t\r\n");
        char next = from[blanks];
        bool beside = to == text || !next || strchr(characters, to[-1]) || strchr(characters, next);
        if (blanks && !beside) {
            memmove(to, from, blanks);
            to += blanks;
        }
        from += blanks;
        if (!next)
            break;
        *to++ = next;
    }
    *to = '\0';
}

static void write_text(hvd_status *status, hvd_code code, const char *format, va_list arguments)
{
    if (!status)
        return;
    status->code = code;
    status->host[0] = '\0';
    status->lost_rank = -1;
    status->cause = HVD_CAUSE_NONE;
    format_text(status->text, sizeof status->text, format, arguments);
}

hvd_code status_set(hvd_status *status, hvd_code code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_text(status, code, format, arguments);
    va_end(arguments);
    return code;
}

/* Says which limit on descriptors was reached, and how to raise it. */
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
    append_text(status->text, sizeof status->text, ": %s", strerror(error));
    append_limit(status, error);
    return code;
}

hvd_code status_no_memory(hvd_status *status)
{
    if (!status)
        return HVD_OUT_OF_MEMORY;
    char host[256] = "?";
    struct rusage usage = {0};
    struct rlimit limit;
    gethostname(host, sizeof host - 1);
    getrusage(RUSAGE_SELF, &usage);
    status_set(status, HVD_OUT_OF_MEMORY, "out of memory in process %d on host %s, which has used %ld MiB",
               (int)getpid(), host, usage.ru_maxrss / 1024);
    if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
        append_text(status->text, sizeof status->text,
                    " and may have %llu MiB of addresses (raise the limit with ulimit -v before it starts)",
                    (unsigned long long)(limit.rlim_cur >> 20));
    return HVD_OUT_OF_MEMORY;
}

void status_blame(hvd_status *status, hvd_cause cause, int lost_rank, const char *host)
{
    if (!status)
        return;
    status->cause = cause;
    status->lost_rank = lost_rank;
    status->host[0] = '\0';
    append_text(status->host, sizeof status->host, "%s", host ? host : "");
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
        if (from->cause)
            memcpy(status->host, from->host, strlen(from->host) + 1);
        else
            status->host[0] = '\0';
        status->lost_rank = from->cause ? from->lost_rank : -1;
        status->cause = from->cause;
    }
    return from->code;
}

const char *hvd_version(void)
{
    return HVD_VERSION;
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

const char *hvd_cause_name(hvd_cause cause)
{
    static const char *const names[] = {
        [HVD_CAUSE_NONE] = "none", [HVD_CAUSE_CONNECTION] = "connection", [HVD_CAUSE_SILENCE] = "silence",
        [HVD_CAUSE_HOST] = "host", [HVD_CAUSE_NETWORK] = "network",       [HVD_CAUSE_STALL] = "stall",
        [HVD_CAUSE_LEFT] = "left", [HVD_CAUSE_EXCEPTION] = "exception",
    };
    return (size_t)cause < sizeof names / sizeof *names ? names[cause] : "unknown";
}

/* ---- log -------------------------------------------------------------------------------------------------
 * `[2026-01-31 12:00:00.123456: W engine/batch.c:88] [3]: text`, one write() per line so that
 * lines of several processes stay whole. Any thread. */

static const char *const level_names[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
static atomic_int lowest_level = LOG_WARNING;
static atomic_bool hide_time;

hvd_code log_configure(const struct settings *settings, hvd_status *status)
{
    for (int level = 0; level <= LOG_FATAL; level++) {
        if (strcasecmp_l(settings->log_level, level_names[level], c_locale()) == 0) {
            atomic_store(&lowest_level, level);
            atomic_store(&hide_time, settings->log_hide_time);
            return HVD_OK;
        }
    }
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "log level '%s' is unknown; use TRACE, DEBUG, INFO, WARNING, ERROR or FATAL",
                      settings->log_level);
}

static void append_time(char *line, size_t capacity)
{
    struct timespec now;
    struct tm parts;
    size_t used = strlen(line);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    strftime(line + used, capacity - used, "%Y-%m-%d %H:%M:%S", &parts);
    append_text(line, capacity, ".%06ld: ", now.tv_nsec / 1000);
}

void log_write(enum log_level level, int rank, const char *file, int line, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    char text[4096] = "[";          /* a pipe accepts as many bytes in one piece */
    size_t limit = sizeof text - 1; /* without the newline */
    if (!atomic_load_explicit(&hide_time, memory_order_relaxed))
        append_time(text, limit);
    const char *source = strstr(file, "src/"); /* in /any/build/folder/src/engine/api.c */
    append_text(text, limit, "%c %s:%d]", level_names[level][0], source ? source + strlen("src/") : file,
                line);
    if (rank >= 0)
        append_text(text, limit, " [%d]", rank);
    append_text(text, limit, ": ");
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    format_text(text + used, limit - used, format, arguments);
    va_end(arguments);
    used = strlen(text);
    text[used++] = '\n';
    struct held_signals held = signals_hold();
    ssize_t ignored = write(STDERR_FILENO, text, used);
    (void)ignored; /* a closed or full stderr is no reason to stop */
    signals_release(&held);
}
