/* foreign.c - options of Horovod's that are no setting of ours, by the rows of foreign.def. */
#include "options.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct foreign foreign_table[] = {
#define FOREIGN(shorter, name, argument, kind, minimum, maximum, config_key, environment, effect, setting,   \
                text)                                                                                        \
    {shorter,    name,        argument,         FOREIGN_##kind, minimum, maximum,                            \
     config_key, environment, FOREIGN_##effect, setting,        text},
#include "foreign.def"
#undef FOREIGN
};

const int foreign_count = sizeof foreign_table / sizeof *foreign_table;

const struct foreign *foreign_by_flag(const char *flag)
{
    for (int i = 0; *flag && i < foreign_count; i++) {
        if (strcmp(foreign_table[i].name, flag) == 0 || strcmp(foreign_table[i].shorter, flag) == 0)
            return &foreign_table[i];
    }
    return NULL;
}

const struct foreign *foreign_by_config_key(const char *key)
{
    for (int i = 0; *key && i < foreign_count; i++) {
        if (strcmp(foreign_table[i].config_key, key) == 0)
            return &foreign_table[i];
    }
    return NULL;
}

/* Takes one number from *text, and the blanks after it. */
static bool take_number(const char **text, double *number)
{
    char *end;
    *number = strtod(*text, &end);
    bool found = end != *text && (*end == '\0' || *end == ' ');
    *text = end + strspn(end, " ");
    return found;
}

static hvd_code check_numbers(const struct foreign *foreign, const char *value, const char *source,
                              hvd_status *status)
{
    const char *rest = value;
    for (int left = foreign->kind == FOREIGN_PAIR ? 2 : 1; left > 0; left--) {
        double number;
        if (!take_number(&rest, &number))
            return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is not %s", source, value,
                              foreign->kind == FOREIGN_PAIR ? "two numbers" : "a number");
        if (number >= foreign->minimum && number <= foreign->maximum)
            continue;
        if (foreign->maximum <= 1)
            return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be in [%g, %g]", source, value,
                              foreign->minimum, foreign->maximum);
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be %s %.15g", source, value,
                          number > foreign->maximum ? "<=" : ">=",
                          number > foreign->maximum ? foreign->maximum : foreign->minimum);
    }
    return *rest ? status_set(status, HVD_INVALID_ARGUMENT, "%s=%s: there is more than one value", source,
                              value)
                 : HVD_OK;
}

static bool is_switch(const struct foreign *foreign)
{
    return foreign->kind == FOREIGN_SWITCH || foreign->kind == FOREIGN_CHOICE;
}

/* Parsed as a boolean setting is; any row of them serves. */
static hvd_code read_switch(const char *value, const char *source, bool *yes, hvd_status *status)
{
    char text[2];
    hvd_code code =
        setting_value_from_flag(setting_by_key("log_hide_time"), value, source, text, sizeof text, status);
    *yes = !code && text[0] == '1';
    return code;
}

static hvd_code give_setting(struct options *options, const struct foreign *foreign, const char *value,
                             const char *source, hvd_status *status)
{
    const struct setting *setting = setting_by_key(foreign->setting);
    /* The setting's own name has been used: it wins over this one. */
    return options->values[setting - setting_table] ? HVD_OK
                                                    : options_give(options, setting, value, source, status);
}

hvd_code foreign_take(struct options *options, const struct foreign *foreign, const char *value,
                      const char *source, hvd_status *status)
{
    bool yes = true;
    hvd_code code = HVD_OK;
    if (is_switch(foreign))
        code = read_switch(value, source, &yes, status);
    else if (foreign->kind != FOREIGN_WORD)
        code = check_numbers(foreign, value, source, status);
    if (code)
        return code;
    options->foreign[foreign - foreign_table] = yes ? FOREIGN_YES : FOREIGN_NO;
    switch (foreign->effect) {
    case FOREIGN_REFUSED:
        return status_set(status, HVD_UNSUPPORTED, "%s: %s", source, foreign->text);
    case FOREIGN_SAME:
        return give_setting(options, foreign, value, source, status);
    case FOREIGN_OPPOSITE:
        return give_setting(options, foreign, yes ? "0" : "1", source, status);
    default:
        return HVD_OK;
    }
}

/* The setting's own variable takes precedence over another name for it. */
static bool is_overridden(const struct foreign *foreign)
{
    const struct setting *setting = setting_by_key(foreign->setting);
    const char *value = setting ? getenv(setting->environment) : NULL;
    return value && *value;
}

hvd_code foreign_take_environment(struct options *options, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < foreign_count; i++) {
        const struct foreign *foreign = &foreign_table[i];
        const char *value = *foreign->environment ? getenv(foreign->environment) : NULL;
        if (value && *value && options->foreign[i] == FOREIGN_OPEN && !is_overridden(foreign))
            code = foreign_take(options, foreign, value, foreign->environment, status);
    }
    return code;
}

void foreign_report(const struct options *options)
{
    for (int i = 0; options->verbose && i < foreign_count; i++) {
        const struct foreign *foreign = &foreign_table[i];
        if (options->foreign[i] != FOREIGN_YES || foreign->effect != FOREIGN_NEEDLESS)
            continue;
        bool is_option = *foreign->name, has_key = *foreign->config_key;
        fprintf(stderr, "horovodrun: %s%s: %s\n", is_option ? "--" : "",
                is_option ? foreign->name
                : has_key ? foreign->config_key
                          : foreign->environment,
                foreign->text);
    }
}
