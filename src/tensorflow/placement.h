/* placement.h - the kernels of the operations that say where this process stands. */
#ifndef HVD_TENSORFLOW_PLACEMENT_H
#define HVD_TENSORFLOW_PLACEMENT_H

void placement_register(void);

#endif
