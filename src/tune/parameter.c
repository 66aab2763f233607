/* parameter.c - see parameter.h. */
#include "tune/parameter.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

const struct parameter parameter_table[PARAMETERS] = {
#define PARAMETER(setting, column, least, most, levels) {#setting, column, least, most, levels},
#include "tune/parameters.def"
#undef PARAMETER
};

struct values values_of(const struct settings *settings)
{
    struct values values;
    for (int i = 0; i < PARAMETERS; i++) {
        const struct setting *setting = setting_by_key(parameter_table[i].setting);
        const char *field = (const char *)settings + setting->offset;
        values.of[i] =
            setting->kind == SETTING_REAL ? *(const double *)field : (double)*(const int64_t *)field;
    }
    return values;
}

double parameter_value(const struct parameter *parameter, int level)
{
    return level > 0 ? ldexp(parameter->most, level + 1 - parameter->levels) : parameter->least;
}

int parameter_level(const struct parameter *parameter, double value)
{
    int level = 0;
    while (level < parameter->levels - 1 && parameter_value(parameter, level) < value)
        level++;
    return level;
}

/* ---- which ones ---------------------------------------------------------------------------------------- */

static int parameter_named(const char *name, size_t length)
{
    for (int i = 0; i < PARAMETERS; i++) {
        if (strlen(parameter_table[i].setting) == length &&
            memcmp(parameter_table[i].setting, name, length) == 0)
            return i;
    }
    return -1;
}

static hvd_code refuse(const char *list, hvd_status *status)
{
    char names[256] = "";
    for (int i = 0; i < PARAMETERS; i++)
        append_text(names, sizeof names, ", %s", parameter_table[i].setting);
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "HOROVOD_AUTOTUNE_PARAMETERS=%s: it is 'auto' (whatever was given no value), or some of%s", list,
        names + 1);
}

hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status)
{
    const char *list = settings->autotune_parameters;
    if (strcmp(list, "auto") == 0) {
        for (int i = 0; i < PARAMETERS; i++)
            chosen[i] = !setting_is_given(settings, setting_by_key(parameter_table[i].setting));
        if (strcmp(settings->allreduce_algorithm, "auto") != 0)
            chosen[PARAMETER_latency_threshold] = false; /* there is no choice to be made */
        return HVD_OK;
    }
    memset(chosen, 0, PARAMETERS * sizeof *chosen);
    for (const char *rest = list; *rest; rest += *rest == ',') {
        size_t length = strcspn(rest, ",");
        int found = parameter_named(rest, length);
        if (found < 0)
            return refuse(list, status);
        chosen[found] = true;
        rest += length;
    }
    return HVD_OK;
}
