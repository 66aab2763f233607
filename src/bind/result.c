/* result.c - see result.h. The memory lives as long as the Result or any array made from it. */
#include "result.h"

#include "dlpack.h"

#include <stdlib.h>

typedef struct {
    PyObject_HEAD hvd_tensor tensor;
} Result;

static PyTypeObject *result_type;

static void result_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    hvd_free(((Result *)self)->tensor.data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static DLDataType dlpack_type(hvd_dtype dtype)
{
    static const uint8_t codes[] = {
        [HVD_UINT8] = DL_UINT,    [HVD_INT8] = DL_INT,       [HVD_INT32] = DL_INT,
        [HVD_INT64] = DL_INT,     [HVD_FLOAT16] = DL_FLOAT,  [HVD_FLOAT32] = DL_FLOAT,
        [HVD_FLOAT64] = DL_FLOAT, [HVD_BFLOAT16] = DL_BFLOAT};
    return (DLDataType){codes[dtype], (uint8_t)(8 * hvd_dtype_size(dtype)), 1};
}

static DLTensor dlpack_tensor(const hvd_tensor *tensor)
{
    return (DLTensor){.data = tensor->data,
                      .device = {tensor->device_type, tensor->device_id},
                      .ndim = tensor->ndim,
                      .dtype = dlpack_type(tensor->dtype),
                      .shape = (int64_t *)tensor->shape};
}

/* Deleters may be called on any thread, with or without the GIL. */
static void drop_owner(void *owner)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void delete_managed(DLManagedTensor *managed)
{
    drop_owner(managed->context);
    free(managed);
}

static void delete_versioned(DLManagedTensorVersioned *managed)
{
    drop_owner(managed->context);
    free(managed);
}

/* A consumer renames the capsule; one that was never consumed gives its reference back here. */
static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    }
}

static PyObject *versioned_capsule(PyObject *self)
{
    DLManagedTensorVersioned *managed = calloc(1, sizeof *managed);
    if (!managed)
        return PyErr_NoMemory();
    *managed = (DLManagedTensorVersioned){.version = {1, 0},
                                          .context = self,
                                          .deleter = delete_versioned,
                                          .tensor = dlpack_tensor(&((Result *)self)->tensor)};
    Py_INCREF(self);
    return PyCapsule_New(managed, "dltensor_versioned", destroy_capsule);
}

static PyObject *legacy_capsule(PyObject *self)
{
    DLManagedTensor *managed = calloc(1, sizeof *managed);
    if (!managed)
        return PyErr_NoMemory();
    *managed = (DLManagedTensor){dlpack_tensor(&((Result *)self)->tensor), self, delete_managed};
    Py_INCREF(self);
    return PyCapsule_New(managed, "dltensor", destroy_capsule);
}

static PyObject *result_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    (void)args;
    PyObject *version = keywords ? PyDict_GetItemString(keywords, "max_version") : NULL;
    long major = 0;
    if (version && version != Py_None) {
        PyObject *first = PySequence_GetItem(version, 0);
        major = first ? PyLong_AsLong(first) : -1;
        Py_XDECREF(first);
        if (PyErr_Occurred())
            return NULL;
    }
    return major >= 1 ? versioned_capsule(self) : legacy_capsule(self);
}

static PyObject *result_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    const hvd_tensor *tensor = &((Result *)self)->tensor;
    return Py_BuildValue("(ii)", tensor->device_type, tensor->device_id);
}

PyDoc_STRVAR(tobytes_doc, "tobytes() -> bytes\n\nA copy of the memory.");

static PyObject *result_tobytes(PyObject *self, PyObject *unused)
{
    (void)unused;
    const hvd_tensor *tensor = &((Result *)self)->tensor;
    Py_ssize_t bytes = (Py_ssize_t)hvd_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++)
        bytes *= (Py_ssize_t)tensor->shape[d];
    return PyBytes_FromStringAndSize(tensor->data, bytes);
}

static PyMethodDef result_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))result_dlpack, METH_VARARGS | METH_KEYWORDS, NULL},
    {"tobytes", result_tobytes, METH_NOARGS, tobytes_doc},
    {"__dlpack_device__", result_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int result_init_module(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, result_dealloc}, {Py_tp_methods, result_methods}, {0, NULL}};
    PyType_Spec spec = {"horovod._core.Result", sizeof(Result), 0, Py_TPFLAGS_DEFAULT, slots};
    result_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!result_type)
        return -1;
    Py_INCREF(result_type);
    return PyModule_AddObject(module, "Result", (PyObject *)result_type);
}

PyObject *result_new(const hvd_tensor *tensor)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(result_type, Py_tp_alloc);
    Result *result = (Result *)allocate(result_type, 0);
    if (!result) {
        hvd_free(tensor->data);
        return NULL;
    }
    result->tensor = *tensor;
    return (PyObject *)result;
}
