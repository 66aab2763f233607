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

const struct setting *setting_by_key(const char *key)
{
    for (int i = 0; i < setting_count; i++) {
        if (strcmp(setting_table[i].key, key) == 0)
            return &setting_table[i];
    }
    return NULL;
}

const struct setting *setting_by_flag(const char *flag)
{
    for (int i = 0; i < setting_count; i++) {
        if (*flag && strcmp(setting_table[i].flag, flag) == 0)
            return &setting_table[i];
    }
    return NULL;
}

const struct setting *setting_by_config_key(const char *key)
{
    for (int i = 0; i < setting_count; i++) {
        if (*key && strcmp(setting_table[i].config_key, key) == 0)
            return &setting_table[i];
    }
    return NULL;
}

static hvd_code parse_number(const struct setting *setting, const char *value, const char *source,
                             double *number, hvd_status *status)
{
    char *end;
    errno = 0;
    *number = strtod(value, &end);
    if (end == value || *end || errno || isnan(*number))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is not a number (%s)", source, value,
                          setting->help);
    return HVD_OK;
}

static hvd_code check_range(const struct setting *setting, double number, const char *value,
                            const char *source, hvd_status *status)
{
    if (number < setting->minimum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be >= %.15g", source, value,
                          setting->minimum);
    if (number > setting->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be <= %.15g", source, value,
                          setting->maximum);
    if (setting->kind == SETTING_INTEGER && number != floor(number))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a whole number", source, value);
    return HVD_OK;
}

static hvd_code parse_boolean(const struct setting *setting, const char *value, const char *source,
                              bool *result, hvd_status *status)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        if (strcasecmp(value, yes[i]) == 0 || strcasecmp(value, no[i]) == 0) {
            *result = strcasecmp(value, yes[i]) == 0;
            return HVD_OK;
        }
    }
    double number;
    if (parse_number(setting, value, source, &number, status))
        return HVD_INVALID_ARGUMENT;
    *result = number > 0;
    return HVD_OK;
}

static hvd_code set_text(const char **field, const char *value, hvd_status *status)
{
    char *copy = strdup(value);
    if (!copy)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading the settings");
    free((char *)*field);
    *field = copy;
    return HVD_OK;
}

hvd_code settings_set(struct settings *settings, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status)
{
    void *field = (char *)settings + setting->offset;
    settings->given[setting - setting_table] = true;
    if (setting->kind == SETTING_TEXT)
        return set_text(field, value, status);
    if (setting->kind == SETTING_BOOLEAN)
        return parse_boolean(setting, value, source, field, status);
    double number;
    if (parse_number(setting, value, source, &number, status) ||
        check_range(setting, number, value, source, status))
        return HVD_INVALID_ARGUMENT;
    if (setting->kind == SETTING_INTEGER)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return HVD_OK;
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
    memset(settings->given, 0, sizeof settings->given);
    return HVD_OK;
}

void settings_free(struct settings *settings)
{
    for (int i = 0; i < setting_count; i++) {
        if (setting_table[i].kind == SETTING_TEXT) {
            char **field = (char **)((char *)settings + setting_table[i].offset);
            free(*field);
            *field = NULL;
        }
    }
}

hvd_code settings_copy(struct settings *to, const struct settings *from, hvd_status *status)
{
    *to = *from;
    for (int i = 0; i < setting_count; i++) {
        if (setting_table[i].kind == SETTING_TEXT)
            *(const char **)((char *)to + setting_table[i].offset) = NULL;
    }
    for (int i = 0; i < setting_count; i++) {
        if (setting_table[i].kind != SETTING_TEXT)
            continue;
        const char *text = *(const char *const *)((const char *)from + setting_table[i].offset);
        hvd_code code = set_text((const char **)((char *)to + setting_table[i].offset), text, status);
        if (code) {
            settings_free(to);
            return code;
        }
    }
    return HVD_OK;
}

hvd_code settings_load_environment(struct settings *settings, hvd_status *status)
{
    for (int i = 0; i < setting_count; i++) {
        const char *value = getenv(setting_table[i].environment);
        if (!value || !*value)
            continue;
        hvd_code code =
            settings_set(settings, &setting_table[i], value, setting_table[i].environment, status);
        if (code)
            return code;
    }
    return HVD_OK;
}

hvd_code setting_value_from_flag(const struct setting *setting, const char *value, const char *source,
                                 char *text, size_t capacity, hvd_status *status)
{
    if (setting->kind == SETTING_BOOLEAN) { /* programs that read the variable expect a number */
        bool yes;
        hvd_code code = parse_boolean(setting, value, source, &yes, status);
        if (!code)
            snprintf(text, capacity, "%d", yes == (setting->flag_unit > 0));
        return code;
    }
    if (setting->kind == SETTING_TEXT) {
        snprintf(text, capacity, "%s", value);
        return HVD_OK;
    }
    double number;
    if (parse_number(setting, value, source, &number, status))
        return HVD_INVALID_ARGUMENT;
    if (number * setting->flag_unit < setting->minimum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be >= %.15g", source, value,
                          setting->minimum / setting->flag_unit);
    if (number * setting->flag_unit > setting->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be <= %.15g", source, value,
                          setting->maximum / setting->flag_unit);
    if (setting->kind == SETTING_INTEGER)
        number = floor(number * setting->flag_unit);
    else
        number *= setting->flag_unit;
    snprintf(text, capacity, "%.15g", number);
    return HVD_OK;
}
