/* result.c - exports a Result through the buffer protocol and DLPack. Any Python thread calls these functions
 * with the GIL held, except for the deleters of DLPack, which run on any thread. The memory exists as long as
 * the Result or any array that was made from it. */
#include "bind/result.h"

#include "bind/errors.h"
#include "bind/tensor.h"
#include <stdlib.h>

typedef struct {
    PyObject_HEAD hvd_tensor tensor;
    void (*release)(void *data);
    int64_t length;                              /* the shape, if it is shared memory */
    int64_t strides[HVD_MAX_DIMENSIONS];         /* in elements */
    Py_ssize_t byte_strides[HVD_MAX_DIMENSIONS]; /* the same in bytes, for the buffer protocol */
} Result;

static PyTypeObject *result_type;

static void result_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((Result *)self)->release(((Result *)self)->tensor.data);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- the buffer protocol --------------------------------------------------------------------------- */

static int result_get(PyObject *self, Py_buffer *view, int flags)
{
    Result *result = (Result *)self;
    const hvd_tensor *tensor = &result->tensor;
    if (tensor->device_type != HVD_CPU) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError, "the result is not in the memory of the host; read it by DLPack");
        return -1;
    }
    *view = (Py_buffer){.buf = tensor->data,
                        .obj = self,
                        .itemsize = (Py_ssize_t)hvd_dtype_size(tensor->dtype),
                        .ndim = tensor->ndim,
                        .shape = flags & PyBUF_ND ? (Py_ssize_t *)tensor->shape : NULL};
    if (flags & PyBUF_FORMAT)
        view->format = element_to_format(tensor->dtype);
    if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
        view->strides = result->byte_strides;
    view->len = view->itemsize;
    for (int d = 0; d < tensor->ndim; d++)
        view->len *= (Py_ssize_t)tensor->shape[d];
    Py_INCREF(self);
    return 0;
}

/* ---- DLPack ---------------------------------------------------------------------------------------- */

static DLTensor describe(const Result *result)
{
    const hvd_tensor *tensor = &result->tensor;
    return (DLTensor){
        .data = tensor->data,
        .device = {tensor->device_type, tensor->device_id},
        .ndim = tensor->ndim,
        .dtype = element_to_dlpack(tensor->dtype),
        .shape = (int64_t *)tensor->shape,
        .strides = (int64_t *)result->strides,
    };
}

/* Consumers call deleters on any thread, with or without the GIL, even while the interpreter ends. */
static void drop_owner(void *owner)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)owner);
    PyGILState_Release(state);
}

static void delete_legacy(DLManagedTensor *managed)
{
    drop_owner(managed->context);
    free(managed);
}

static void delete_versioned(DLManagedTensorVersioned *managed)
{
    drop_owner(managed->context);
    free(managed);
}

/* A consumer renames the capsule. If none did, this function releases the reference to the Result. */
static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_legacy(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static PyObject *make_capsule(void *managed, const char *name, PyObject *owner)
{
    /* The capsule holds the Result until the deleter that its consumer calls, or destroy_capsule, releases
     * the reference. */
    PyObject *capsule = managed ? PyCapsule_New(managed, name, destroy_capsule) : PyErr_NoMemory();
    if (capsule)
        Py_INCREF(owner);
    else
        free(managed);
    return capsule;
}

static PyObject *make_legacy(PyObject *self)
{
    DLManagedTensor *managed = calloc(1, sizeof *managed);
    if (managed)
        *managed = (DLManagedTensor){describe((Result *)self), self, delete_legacy};
    return make_capsule(managed, "dltensor", self);
}

static PyObject *make_versioned(PyObject *self)
{
    DLManagedTensorVersioned *managed = calloc(1, sizeof *managed);
    if (managed)
        *managed = (DLManagedTensorVersioned){.version = {1, 0},
                                              .context = self,
                                              .deleter = delete_versioned,
                                              .tensor = describe((Result *)self)};
    return make_capsule(managed, "dltensor_versioned", self);
}

/* __dlpack__(*, stream=None, max_version=None, ...). Results are visible to all streams, so only the version
 * matters. */
static PyObject *result_dlpack(PyObject *self, PyObject *Py_UNUSED(arguments), PyObject *keywords)
{
    PyObject *version = keywords ? PyDict_GetItemString(keywords, "max_version") : NULL;
    long major = 0;
    if (version && version != Py_None) {
        PyObject *first = PySequence_GetItem(version, 0);
        major = first ? PyLong_AsLong(first) : -1;
        Py_XDECREF(first);
        if (PyErr_Occurred())
            return NULL;
    }
    /* Consumers older than DLPack 1.0 pass no version and accept only the legacy struct. */
    return major >= 1 ? make_versioned(self) : make_legacy(self);
}

static PyObject *result_dlpack_device(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const hvd_tensor *tensor = &((Result *)self)->tensor;
    return Py_BuildValue("(ii)", (int)tensor->device_type, (int)tensor->device_id);
}

/* ---- the type -------------------------------------------------------------------------------------- */

static PyObject *result_dtype(PyObject *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(hvd_dtype_name(((Result *)self)->tensor.dtype));
}

static PyGetSetDef result_fields[] = {
    {"dtype", result_dtype, NULL, "the element type by name, such as \"float32\"", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef result_methods[] = {
    {"__dlpack__", METHOD(result_dlpack), METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack_device__", result_dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int result_init_module(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(result_dealloc)},
                           {Py_tp_methods, result_methods},
                           {Py_tp_getset, result_fields},
                           {Py_bf_getbuffer, SLOT(result_get)},
                           {0, NULL}};
    PyType_Spec spec = {"horovod._core.Result", sizeof(Result), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    result_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return result_type ? PyModule_AddType(module, result_type) : -1;
}

/* Takes ownership of the memory of the tensor, even if it fails. Returns NULL with an exception set on
 * failure. */
static PyObject *result_new(const hvd_tensor *tensor, void (*release)(void *data))
{
    Result *result = (Result *)PyType_GenericAlloc(result_type, 0);
    if (!result) {
        release(tensor->data);
        return NULL;
    }
    result->tensor = *tensor;
    result->release = release;
    int64_t stride = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        result->strides[d] = stride;
        result->byte_strides[d] = (Py_ssize_t)(stride * (int64_t)hvd_dtype_size(tensor->dtype));
        stride *= tensor->shape[d];
    }
    return (PyObject *)result;
}

PyObject *result_list(hvd_handle *handle, int32_t first, int32_t end)
{
    PyObject *list = PyList_New(end - first);
    for (int32_t i = first; list && i < end; i++) {
        hvd_tensor tensor;
        hvd_status status;
        PyObject *result = hvd_output_take(handle, i, &tensor, &status) ? raise_status(&status)
                                                                        : result_new(&tensor, hvd_free);
        if (!result || PyList_SetItem(list, i - first, result)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

PyObject *result_shared(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    size_t length = PyLong_AsSize_t(bytes);
    hvd_tensor tensor = {.ndim = 1, .dtype = HVD_UINT8, .device_type = HVD_CPU};
    int64_t shape = (int64_t)length;
    hvd_status status;
    if (PyErr_Occurred())
        return NULL;
    tensor.shape = &shape;
    if (hvd_shared_alloc(length, &tensor.data, &status))
        return raise_status(&status);
    Result *result = (Result *)result_new(&tensor, hvd_shared_free);
    if (result) {
        result->length = shape;
        result->tensor.shape = &result->length;
    }
    return (PyObject *)result;
}
