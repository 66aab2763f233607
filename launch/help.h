/* help.h - prints the text of --help. One thread. */
#ifndef HVD_LAUNCH_HELP_H
#define HVD_LAUNCH_HELP_H

void help_print(void); /* on stdout */

#endif
