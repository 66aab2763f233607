/* check_build.h - prints the text of --check-build. One thread. */
#ifndef HVD_LAUNCH_CHECK_BUILD_H
#define HVD_LAUNCH_CHECK_BUILD_H

void check_build_print(void); /* on stdout */

#endif
