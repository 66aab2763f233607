/* collectives.h - the kernels of the collectives. */
#ifndef HVD_TENSORFLOW_COLLECTIVES_H
#define HVD_TENSORFLOW_COLLECTIVES_H

#include <stdbool.h>

/* Asynchronous, or holding TensorFlow's thread until they are done. */
void collectives_register(bool asynchronous);

#endif
