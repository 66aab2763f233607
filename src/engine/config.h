/* config.h - what a context is opened with: the settings, and what is none. One thread at a time. */
#ifndef HVD_ENGINE_CONFIG_H
#define HVD_ENGINE_CONFIG_H

#include "base/clock.h"
#include "base/settings.h"

struct backend;

struct hvd_config {
    struct settings settings;
    struct interrupt interrupt;
    const struct backend *const *backends; /* NULL: backend_table; tests give others */
};

#endif
