/* status.h - the one error type, hvd_status, how it is passed on, and putting texts together. Any thread.
 *
 * Rule: a function that can fail returns hvd_code and takes `hvd_status *status` last; the one that
 * finds the fault writes the text, callers pass the code on. status may be NULL everywhere. Only the code
 * says whether it failed: after HVD_OK *status may still be that of an attempt that was repeated. */
#ifndef HVD_BASE_STATUS_H
#define HVD_BASE_STATUS_H

#include "horovod.h"

#include <stdarg.h>
#include <stddef.h>

struct settings;

/* Writes code and text, and returns the code. */
hvd_code status_set(hvd_status *status, hvd_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As status_set, with ": " and the text of `error` (an errno value) appended. */
hvd_code status_set_errno(hvd_status *status, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For memory of the engine's own whose size no user chose. The text names the process, its host, what it has
 * used and its limit, from which a reader can act; a failed allocation that a user sized says its own size.
 */
hvd_code status_no_memory(hvd_status *status);

/* Adds to a status that was set who is at fault. `host` may be NULL; `lost_rank`, of the job, -1. */
void status_blame(hvd_status *status, hvd_cause cause, int lost_rank, const char *host);

hvd_code status_ok(hvd_status *status);

/* Evaluates `call` once; unless it returned HVD_OK, the calling function returns its code. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        hvd_code tried_ = (call);                                                                            \
        if (tried_)                                                                                          \
            return tried_;                                                                                   \
    } while (0)

/* Copies `from`; returns its code. */
hvd_code status_copy(hvd_status *status, const hvd_status *from);

/* Returns the length of the text without an incomplete UTF-8 character at its end, so that it can be cut
 * there. Bytes that are no UTF-8 count as whole characters. */
size_t text_whole(const char *text, size_t length);

/* As vsnprintf, but what does not fit is cut between characters. */
void format_text(char *text, size_t capacity, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* Removes blanks, tabs and ends of lines at both ends of the text, and next to each of these characters. */
void text_close_up(char *text, const char *characters);

/* Appends to the text in `text`, which has room for `capacity` bytes, as much as fits. */
void append_text(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* It can't see through the variable arguments that an error's code is returned, and takes it for HVD_OK. */
#define status_set(status, code, ...)        (status_set(status, code, __VA_ARGS__), (code))
#define status_set_errno(status, error, ...) (status_set_errno(status, error, __VA_ARGS__), HVD_SYSTEM)
#define status_no_memory(status)             (status_no_memory(status), HVD_OUT_OF_MEMORY)
#endif

/* ---- log -------------------------------------------------------------------------------------------------
 * One line per event, to stderr. The level and the layout of lines are process-wide, as stderr is. */

enum log_level { LOG_TRACE, LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR, LOG_FATAL };

/* Takes level and layout from the settings; HVD_INVALID_ARGUMENT names an unknown level. */
hvd_code log_configure(const struct settings *settings, hvd_status *status);

/* rank < 0: no rank yet. */
void log_write(enum log_level level, int rank, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#define log_debug(rank, ...)   log_write(LOG_DEBUG, rank, __FILE__, __LINE__, __VA_ARGS__)
#define log_info(rank, ...)    log_write(LOG_INFO, rank, __FILE__, __LINE__, __VA_ARGS__)
#define log_warning(rank, ...) log_write(LOG_WARNING, rank, __FILE__, __LINE__, __VA_ARGS__)
#define log_error(rank, ...)   log_write(LOG_ERROR, rank, __FILE__, __LINE__, __VA_ARGS__)

#endif
