/* collectives.h - the kernels of the collectives. Registered once, by the thread that loads this library. */
#ifndef HVD_TENSORFLOW_COLLECTIVES_H
#define HVD_TENSORFLOW_COLLECTIVES_H

#include <stdbool.h>

/* Registers the kernels: asynchronous ones, or ones that keep TensorFlow's thread until they are done. */
void collectives_register(bool asynchronous);

#endif
