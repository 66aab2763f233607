/* parameter.h - what is tuned, as rows of parameters.def, and its values as levels. Pure; any thread. */
#ifndef HVD_TUNE_PARAMETER_H
#define HVD_TUNE_PARAMETER_H

#include "base/settings.h"

enum {
#define PARAMETER(setting, column, least, most, levels) PARAMETER_##setting,
#include "tune/parameters.def"
#undef PARAMETER
    PARAMETERS
};

struct parameter {
    const char *setting, *column;
    double least, most;
    int levels;
};

extern const struct parameter parameter_table[PARAMETERS];

/* One value for each parameter. */
struct values {
    double of[PARAMETERS];
};

struct values values_of(const struct settings *settings);

/* The value of a level in [0, levels), and the lowest level whose value is not below `value`. */
double parameter_value(const struct parameter *parameter, int level);
int parameter_level(const struct parameter *parameter, double value);

/* HVD_INVALID_ARGUMENT when the setting autotune_parameters is not understood. chosen[i]: tune it. */
hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status);

#endif
