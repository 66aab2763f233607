/* version.c - the version that CMakeLists.txt states. */
#include "horovod.h"

const char *hvd_version(void)
{
    return HVD_VERSION;
}
