/* hash.h - hashes of tensors, by which the ranks compare their parameters. With the GIL held; long tensors
 * are hashed without it. */
#ifndef HVD_BIND_HASH_H
#define HVD_BIND_HASH_H

#include "bind/python.h"

/* Is a function of the module: returns a list with the 64-bit hash of the bytes of each tensor in a sequence.
 */
PyObject *hash_tensors(PyObject *module, PyObject *tensors);

#endif
