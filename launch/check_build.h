/* check_build.h - the text of --check-build. */
#ifndef HVD_LAUNCH_CHECK_BUILD_H
#define HVD_LAUNCH_CHECK_BUILD_H

void check_build_print(void); /* on stdout */

#endif
