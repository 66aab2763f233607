/* hash.c - see hash.h. */
#include "bind/hash.h"

#include "bind/tensor.h"

#include <xxhash.h>

#define LONG_BYTES ((size_t)64 << 10)

/* Returns a new integer, or NULL with an exception set. */
static PyObject *hash_of(PyObject *object, int index)
{
    struct tensor_view view;
    unsigned long long hash;
    if (tensor_view_init(&view, object, &(struct tensor_role){.operation = "hashes", .index = index}))
        return NULL;
    if (view.tensor.device_type != HVD_CPU) {
        tensor_view_release(&view);
        return PyErr_Format(PyExc_ValueError, "hashes: tensor %d is not in host memory", index);
    }
    size_t bytes = tensor_view_bytes(&view);
    if (bytes < LONG_BYTES) {
        hash = XXH3_64bits(view.tensor.data, bytes);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        hash = XXH3_64bits(view.tensor.data, bytes);
        Py_END_ALLOW_THREADS;
    }
    tensor_view_release(&view);
    return PyLong_FromUnsignedLongLong(hash);
}

PyObject *hash_tensors(PyObject *Py_UNUSED(module), PyObject *tensors)
{
    Py_ssize_t count = PySequence_Size(tensors);
    PyObject *list = count < 0 ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *tensor = PySequence_GetItem(tensors, i);
        PyObject *hash = tensor ? hash_of(tensor, (int)i) : NULL;
        if (!hash || PyList_Append(list, hash))
            Py_CLEAR(list);
        Py_XDECREF(hash);
        Py_XDECREF(tensor);
    }
    return list;
}
