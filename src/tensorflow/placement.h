/* placement.h - the kernels of the operations that return rank, size and membership of this process.
 * Registered once, by the thread that loads this library. */
#ifndef HVD_TENSORFLOW_PLACEMENT_H
#define HVD_TENSORFLOW_PLACEMENT_H

void placement_register(void);

#endif
