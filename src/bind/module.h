/* module.h - the entry of the module horovod._core. The interpreter calls it once, with the GIL held. */
#ifndef HVD_BIND_MODULE_H
#define HVD_BIND_MODULE_H

#include "bind/python.h"

PyMODINIT_FUNC PyInit__core(void);

#endif
