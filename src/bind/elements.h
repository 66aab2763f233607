/* elements.h - the engine's element types in the words of DLPack and of the buffer protocol. */
#ifndef HVD_BIND_ELEMENTS_H
#define HVD_BIND_ELEMENTS_H

#include "bind/dlpack.h"
#include "bind/python.h"
#include "horovod.h"

#include <stddef.h>

/* False when the engine has no such type; then `text` says which one it was. */
bool element_from_dlpack(DLDataType type, hvd_dtype *dtype, char *text, size_t size);
bool element_from_buffer(const Py_buffer *buffer, hvd_dtype *dtype, char *text, size_t size);

/* In bytes. */
size_t element_alignment(hvd_dtype dtype);

DLDataType element_to_dlpack(hvd_dtype dtype);

/* In the words of the buffer protocol; NULL: it has none. */
char *element_to_format(hvd_dtype dtype);

#endif
