/* log.c - `[2026-01-31 12:00:00.123456: W engine/batch.c:88] [3]: text`, one write() per line so that
 * lines of several processes stay whole. Any thread. */
#include "base/log.h"

#include "base/settings.h"
#include "base/status.h"
#include "base/thread.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

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

/* "/any/build/folder/src/engine/init.c" -> "engine/init.c" */
static const char *short_path(const char *file)
{
    const char *source = strstr(file, "src/");
    return source ? source + 4 : file;
}

void log_write(enum log_level level, int rank, const char *file, int line, const char *format, ...)
{
    if ((int)level < atomic_load_explicit(&lowest_level, memory_order_relaxed))
        return;
    char text[4096] = "[";          /* what a pipe takes as a whole */
    size_t limit = sizeof text - 1; /* room for the line's end */
    if (!atomic_load_explicit(&hide_time, memory_order_relaxed))
        append_time(text, limit);
    append_text(text, limit, "%c %s:%d]", level_names[level][0], short_path(file), line);
    if (rank >= 0)
        append_text(text, limit, " [%d]", rank);
    append_text(text, limit, ": ");
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, limit - used, format, arguments);
    va_end(arguments);
    used = strlen(text);
    text[used++] = '\n';
    struct held_signals held = signals_hold();
    ssize_t ignored = write(STDERR_FILENO, text, used);
    (void)ignored; /* a closed or full stderr is no reason to stop */
    signals_release(&held);
}
