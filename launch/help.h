/* help.h - the text of --help. */
#ifndef HVD_LAUNCH_HELP_H
#define HVD_LAUNCH_HELP_H

void help_print(void); /* on stdout */

#endif
