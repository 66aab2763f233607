/* config.c - the public interface of the settings, and the version that CMakeLists.txt states. */
#include "engine/config.h"

#include "base/status.h"

#include <stdlib.h>

hvd_config *hvd_config_create(void)
{
    hvd_config *config = calloc(1, sizeof *config);
    if (config && settings_init(&config->settings, NULL)) {
        free(config);
        return NULL;
    }
    return config;
}

void hvd_config_free(hvd_config *config)
{
    if (config)
        settings_free(&config->settings);
    free(config);
}

hvd_code hvd_config_set(hvd_config *config, const char *key, const char *value, hvd_status *status)
{
    const struct setting *setting = key ? setting_by_key(key) : NULL;
    if (!config || !setting || !value)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "there is no setting '%s'; docs/settings.md lists them", key ? key : "(null)");
    hvd_code code = settings_set(&config->settings, setting, value, key, status);
    return code ? code : status_ok(status);
}

void hvd_config_set_interrupt(hvd_config *config, hvd_interrupt_fn ask, void *argument)
{
    config->interrupt = (struct interrupt){ask, argument};
}

hvd_code hvd_config_load_environment(hvd_config *config, hvd_status *status)
{
    hvd_code code = settings_load_environment(&config->settings, status);
    return code ? code : status_ok(status);
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}
