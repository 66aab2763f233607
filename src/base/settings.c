/* settings.c - parse, check and keep the settings of settings.def. One thread per struct. */
#include "base/settings.h"

#include "base/status.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct setting setting_table[] = {
#define SETTING(field, kind, initial, minimum, maximum, environment, flag, unit, config_key, help)           \
    {#field,                                                                                                 \
     SETTING_##kind,                                                                                         \
     initial,                                                                                                \
     minimum,                                                                                                \
     maximum,                                                                                                \
     environment,                                                                                            \
     flag,                                                                                                   \
     unit,                                                                                                   \
     config_key,                                                                                             \
     help,                                                                                                   \
     offsetof(struct settings, field)},
#include "base/settings.def"
#undef SETTING
};

const int setting_count = SETTINGS_COUNT;

/* The row whose text at `column`, an offset into struct setting, is this one; NULL when there is none. */
static const struct setting *find_setting(size_t column, const char *text)
{
    for (int i = 0; *text && i < setting_count; i++) {
        const char *const *name = (const void *)((const char *)&setting_table[i] + column);
        if (strcmp(*name, text) == 0)
            return &setting_table[i];
    }
    return NULL;
}

const struct setting *setting_by_key(const char *key)
{
    return find_setting(offsetof(struct setting, key), key);
}

const struct setting *setting_by_flag(const char *flag)
{
    return find_setting(offsetof(struct setting, flag), flag);
}

const struct setting *setting_by_config_key(const char *key)
{
    return find_setting(offsetof(struct setting, config_key), key);
}

static hvd_code parse_number(const struct setting *setting, const char *value, const char *source,
                             double *number, hvd_status *status)
{
    char *end;
    errno = 0;
    *number = strtod_l(value, &end, c_locale());
    if (end == value || *end || errno || isnan(*number))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is not a number (%s)", source, value,
                          setting->help);
    return HVD_OK;
}

/* `unit`: what the value was multiplied by before it became `number`; the text gives the limits in it. */
static hvd_code check_range(const struct setting *setting, double number, double unit, const char *value,
                            const char *source, hvd_status *status)
{
    bool less = number < setting->minimum;
    if (!less && number <= setting->maximum)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be %s %.15g", source, value,
                      less ? ">=" : "<=", (less ? setting->minimum : setting->maximum) / unit);
}

static hvd_code parse_boolean(const struct setting *setting, const char *value, const char *source,
                              bool *result, hvd_status *status)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        *result = strcasecmp_l(value, yes[i], c_locale()) == 0;
        if (*result || strcasecmp_l(value, no[i], c_locale()) == 0)
            return HVD_OK;
    }
    double number;
    if (parse_number(setting, value, source, &number, status))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is neither yes nor no: write 1 or 0 (%s)",
                          source, value, setting->help);
    *result = number > 0;
    return HVD_OK;
}

static bool is_text(const struct setting *setting)
{
    return setting->kind == SETTING_TEXT || setting->kind == SETTING_LIST;
}

/* People write "eth0, eth1" and "20000 - 20099". */
static void close_up(const struct setting *setting, char *value)
{
    if (setting->kind == SETTING_LIST)
        text_close_up(value, ",-");
}

static hvd_code set_text(const struct setting *setting, const char **field, const char *value,
                         hvd_status *status)
{
    char *copy = strdup(value);
    if (!copy)
        return status_no_memory(status);
    close_up(setting, copy);
    free((char *)*field);
    *field = copy;
    return HVD_OK;
}

hvd_code settings_set(struct settings *settings, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status)
{
    void *field = (char *)settings + setting->offset;
    settings->given[setting - setting_table] = true;
    if (is_text(setting))
        return set_text(setting, field, value, status);
    if (setting->kind == SETTING_BOOLEAN)
        return parse_boolean(setting, value, source, field, status);
    double number;
    if (parse_number(setting, value, source, &number, status) ||
        check_range(setting, number, 1, value, source, status))
        return HVD_INVALID_ARGUMENT;
    if (setting->kind == SETTING_INTEGER && number != floor(number))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a whole number", source, value);
    if (setting->kind == SETTING_INTEGER)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return HVD_OK;
}

int setting_write(const struct settings *settings, const struct setting *setting, char *text, size_t capacity)
{
    const void *field = (const char *)settings + setting->offset;
    if (is_text(setting))
        return snprintf(text, capacity, "%s", *(const char *const *)field);
    if (setting->kind == SETTING_BOOLEAN)
        return snprintf(text, capacity, "%d", *(const bool *)field);
    if (setting->kind == SETTING_INTEGER)
        return snprintf(text, capacity, "%lld", (long long)*(const int64_t *)field);
    return snprintf(text, capacity, "%.17g", *(const double *)field);
}

hvd_code settings_init(struct settings *settings, hvd_status *status)
{
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < setting_count; i++) {
        hvd_code code =
            settings_set(settings, &setting_table[i], setting_table[i].initial, setting_table[i].key, status);
        if (code) {
            settings_free(settings);
            return code;
        }
    }
    /* Defaults are not given values, though they went the same way. */
    memset(settings->given, 0, sizeof settings->given);
    return HVD_OK;
}

/* The field of a row; NULL: it holds no text. */
static char **text_field(struct settings *settings, int row)
{
    return is_text(&setting_table[row]) ? (char **)((char *)settings + setting_table[row].offset) : NULL;
}

void settings_free(struct settings *settings)
{
    for (int i = 0; i < setting_count; i++) {
        char **text = text_field(settings, i);
        if (!text)
            continue;
        free(*text);
        *text = NULL;
    }
}

hvd_code settings_copy(struct settings *to, const struct settings *from, hvd_status *status)
{
    bool whole = true;
    *to = *from;
    for (int i = 0; i < setting_count; i++) {
        char **text = text_field(to, i);
        if (text)
            whole &= (*text = strdup(*text)) != NULL;
    }
    if (whole)
        return HVD_OK;
    settings_free(to);
    return status_no_memory(status);
}

hvd_code settings_load_environment(struct settings *settings, hvd_status *status)
{
    settings->from_environment = true;
    for (int i = 0; i < setting_count; i++) {
        const char *value = getenv(setting_table[i].environment);
        if (!value || !*value)
            continue;
        TRY(settings_set(settings, &setting_table[i], value, setting_table[i].environment, status));
    }
    return HVD_OK;
}

hvd_code setting_value_from_flag(const struct setting *setting, const char *value, const char *source,
                                 char *text, size_t capacity, hvd_status *status)
{
    if (setting->kind == SETTING_BOOLEAN) { /* programs that read the variable expect a number */
        bool yes;
        /* A flag of unit -1 means the opposite of its variable (settings.def). */
        hvd_code code = parse_boolean(setting, value, source, &yes, status);
        if (!code)
            snprintf(text, capacity, "%d", yes == (setting->flag_unit > 0));
        return code;
    }
    if (is_text(setting)) {
        snprintf(text, capacity, "%s", value);
        close_up(setting, text);
        return HVD_OK;
    }
    double number, unit = setting->flag_unit;
    if (parse_number(setting, value, source, &number, status) ||
        check_range(setting, number * unit, unit, value, source, status))
        return HVD_INVALID_ARGUMENT;
    number *= unit;
    snprintf(text, capacity, "%.15g", setting->kind == SETTING_INTEGER ? floor(number) : number);
    return HVD_OK;
}
