/* python.h - includes CPython's stable interface of 3.10 and declares the buffer protocol, which the headers
 * hide for that version, so that one module serves every later CPython. Every file of bind/ includes it
 * instead of Python.h. All functions of bind/ run with the GIL held, on any Python thread, unless their
 * comment says otherwise. */
#ifndef HVD_BIND_PYTHON_H
#define HVD_BIND_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>

/* The buffer protocol is part of the stable interface since 3.11. Symbols, layout and slot numbers are the
 * same in 3.10. */
#if Py_LIMITED_API + 0 < 0x030b0000
typedef struct bufferinfo {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#define PyBUF_FORMAT       0x0004
#define PyBUF_ND           0x0008
#define PyBUF_STRIDES      (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define Py_bf_getbuffer    1
#endif

/* Slots and method tables hold functions of several types as one pointer type. */
#define SLOT(function)   ((void *)(uintptr_t)(function))
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

#endif
