/* parameter.h - what is tuned, as rows of parameters.def, and its values as points of the unit box. Pure; any
 * thread. */
#ifndef HVD_TUNE_PARAMETER_H
#define HVD_TUNE_PARAMETER_H

#include "base/settings.h"

enum {
#define PARAMETER(setting, column, scale, least, most) PARAMETER_##setting,
#include "tune/parameters.def"
#undef PARAMETER
    PARAMETERS
};

struct parameter {
    const char *setting, *column;
    enum { PARAMETER_POWER, PARAMETER_SQUARE } scale;
    double least, most;
};

extern const struct parameter parameter_table[PARAMETERS];

/* One value for each parameter. */
struct values {
    double of[PARAMETERS];
};

struct values values_of(const struct settings *settings);

/* From a place in [0, 1] to the nearest value that makes sense, and back. */
double parameter_value(const struct parameter *parameter, double place);
double parameter_place(const struct parameter *parameter, double value);

/* HVD_INVALID_ARGUMENT when the setting autotune_parameters is not understood. chosen[i]: tune it. */
hvd_code parameters_choose(const struct settings *settings, bool *chosen, hvd_status *status);

#endif
