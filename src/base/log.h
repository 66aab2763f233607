/* log.h - one line per event, to stderr. The level and the layout of lines are process-wide, as stderr is. */
#ifndef HVD_BASE_LOG_H
#define HVD_BASE_LOG_H

#include "base/settings.h"

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
