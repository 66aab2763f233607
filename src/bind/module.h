/* module.h - the process's default context, for the module's functions. */
#ifndef HVD_BIND_MODULE_H
#define HVD_BIND_MODULE_H

#include "bind/python.h"
#include "horovod.h"

/* NULL with an exception set: hvd.init() has not been called. */
hvd_context *module_context(void);

#endif
