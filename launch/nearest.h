/* nearest.h - guesses what a misspelt option, or key of the config file, was meant to be. No state; any
 * thread. */
#ifndef HVD_LAUNCH_NEAREST_H
#define HVD_LAUNCH_NEAREST_H

/* Each returns the most similar name, or NULL if none is similar. Options are without dashes. */
const char *nearest_option(const char *name);
const char *nearest_config_key(const char *key);

#endif
