/* settings.h - every setting as a field, the table that describes them, and the locale of their texts. The
 * table is constant; a struct settings belongs to one thread until it is complete, and is constant
 * afterwards. */
#ifndef HVD_BASE_SETTINGS_H
#define HVD_BASE_SETTINGS_H

#include "horovod.h"

#include <locale.h>
#include <stdbool.h>

enum setting_kind { SETTING_INTEGER, SETTING_REAL, SETTING_BOOLEAN, SETTING_TEXT, SETTING_LIST };

struct setting {
    const char *key; /* the field's name, as hvd_config_set takes it */
    enum setting_kind kind;
    const char *initial;
    double minimum, maximum;
    const char *environment;
    const char *flag; /* without the dashes; "" when there is none */
    double flag_unit;
    const char *config_key; /* "section.name"; "" when there is none */
    const char *help;
    size_t offset; /* of the field in struct settings */
};

#define SETTINGS_TYPE_INTEGER int64_t
#define SETTINGS_TYPE_REAL    double
#define SETTINGS_TYPE_BOOLEAN bool
#define SETTINGS_TYPE_TEXT    const char *
#define SETTINGS_TYPE_LIST    const char *

enum {
#define SETTING(field, ...) SETTING_INDEX_##field,
#include "base/settings.def"
#undef SETTING
    SETTINGS_COUNT
};

/* The values. Text fields are never NULL and belong to the struct: see settings_free. */
struct settings {
    bool given[SETTINGS_COUNT]; /* it was set; otherwise the field has the default */
    bool from_environment;      /* settings_load_environment was called */
#define SETTING(field, kind, initial, minimum, maximum, environment, flag, unit, config_key, help)           \
    SETTINGS_TYPE_##kind field;
#include "base/settings.def"
#undef SETTING
};

extern const struct setting setting_table[];
extern const int setting_count;

const struct setting *setting_by_key(const char *key);        /* NULL when there is none */
const struct setting *setting_by_flag(const char *flag);      /* without dashes; NULL when there is none */
const struct setting *setting_by_config_key(const char *key); /* NULL when there is none */

hvd_code settings_init(struct settings *settings, hvd_status *status); /* the defaults */
void settings_free(struct settings *settings);
hvd_code settings_copy(struct settings *to, const struct settings *from, hvd_status *status);

/* Parses and range-checks `value`; the text of an error names `source`, e.g. "HOROVOD_CYCLE_TIME" or
 * "--cycle-time-ms". */
hvd_code settings_set(struct settings *settings, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status);

/* Writes the value as it would be given, as much of it as fits, and returns its length. */
int setting_write(const struct settings *settings, const struct setting *setting, char *text,
                  size_t capacity);

/* The "C" locale, whatever the program has chosen: in other locales numbers may have a decimal comma, and
 * lower case may map letters differently ("INFO" to "info"). */
static inline locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", NULL); /* the library's own constant: nothing to free */
}

/* Sets rank and size, and drops local and cross numbers, which a starter has given for its own rank. */
static inline void settings_place(struct settings *settings, int64_t rank, int64_t size)
{
    settings->rank = rank;
    settings->size = size;
    settings->local_rank = settings->local_size = settings->cross_rank = settings->cross_size = -1;
}

static inline bool setting_is_given(const struct settings *settings, const struct setting *setting)
{
    return settings->given[setting - setting_table];
}

/* The share of the stall shutdown time after which a peer counts as silent, so that it is named before the
 * stall ends the job. */
#define SILENCE_SHARE_OF_STALL 0.75

/* How long a peer may be silent, in seconds; 0: forever. */
static inline double settings_silence_limit(const struct settings *settings)
{
    double limit = settings->timeout_seconds;
    double end = settings->stall_shutdown_seconds * SILENCE_SHARE_OF_STALL;
    return limit == 0 || (end > 0 && end < limit) ? end : limit;
}

/* Reads every variable that is set and not empty. Only starters.c reads variables of other programs. */
hvd_code settings_load_environment(struct settings *settings, hvd_status *status);

/* Checks a flag's or config file's value, and turns it into the environment's: multiplied by the unit. */
hvd_code setting_value_from_flag(const struct setting *setting, const char *value, const char *source,
                                 char *text, size_t capacity, hvd_status *status);

#endif
