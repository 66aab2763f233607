/* config_file.h - settings from a YAML file. */
#ifndef HVD_LAUNCH_CONFIG_FILE_H
#define HVD_LAUNCH_CONFIG_FILE_H

#include "options.h"

/* Gives `options` what the file says of settings that the command line left open. */
hvd_code config_file_read(struct options *options, const char *path, hvd_status *status);

#endif
