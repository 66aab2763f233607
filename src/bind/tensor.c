/* tensor.c - see tensor.h. The cheapest way that a type offers is tried first: the DLPack exchange table of
 * its type (30 ns), the buffer protocol (75 ns), a DLPack capsule (2 us). The table of a type is looked up
 * once. */
#include "tensor.h"

#include "dlpack.h"

#include <string.h>

static PyObject *name_exchange, *name_dlpack;

int tensor_init_module(void)
{
    name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    return name_exchange && name_dlpack ? 0 : -1;
}

static const char *type_name_of(PyObject *object, PyObject **holder)
{
    *holder = PyObject_Repr((PyObject *)Py_TYPE(object));
    const char *name = *holder ? PyUnicode_AsUTF8AndSize(*holder, NULL) : NULL;
    PyErr_Clear();
    return name ? name : "this object";
}

/* ---- element types ------------------------------------------------------------------------------- */

static hvd_dtype dtype_of(DLDataType type)
{
    static const struct {
        uint8_t code, bits;
        hvd_dtype dtype;
    } known[] = {{DL_UINT, 8, HVD_UINT8},     {DL_INT, 8, HVD_INT8},        {DL_INT, 32, HVD_INT32},
                 {DL_INT, 64, HVD_INT64},     {DL_FLOAT, 16, HVD_FLOAT16},  {DL_FLOAT, 32, HVD_FLOAT32},
                 {DL_FLOAT, 64, HVD_FLOAT64}, {DL_BFLOAT, 16, HVD_BFLOAT16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (type.lanes == 1 && known[i].code == type.code && known[i].bits == type.bits)
            return known[i].dtype;
    }
    return (hvd_dtype)-1;
}

/* struct-module formats of the native sizes; 'l' and 'q' are both 64 bits where long has 8 bytes. */
static hvd_dtype dtype_of_format(const char *format, Py_ssize_t size)
{
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    if (format[0] && format[1])
        return (hvd_dtype)-1;
    switch (*format) {
    case 'B':
        return HVD_UINT8;
    case 'b':
        return HVD_INT8;
    case 'i':
    case 'l':
    case 'q':
        return size == 4 ? HVD_INT32 : HVD_INT64;
    case 'e':
        return HVD_FLOAT16;
    case 'f':
        return HVD_FLOAT32;
    case 'd':
        return HVD_FLOAT64;
    }
    return (hvd_dtype)-1;
}

static int refuse(PyObject *object, const char *why)
{
    PyObject *holder;
    PyErr_Format(PyExc_ValueError, "%s %s", type_name_of(object, &holder), why);
    Py_XDECREF(holder);
    return -1;
}

/* ---- layout -------------------------------------------------------------------------------------- */

static int is_dense(const DLTensor *tensor)
{
    int64_t expected = 1;
    int dense = !tensor->strides;
    int d = tensor->ndim;
    while (!dense && --d >= 0) {
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected)
            break;
        expected *= tensor->shape[d];
    }
    for (int e = 0; e < tensor->ndim; e++)
        dense |= tensor->shape[e] == 0; /* without elements strides mean nothing */
    return dense || d < 0;
}

static int take_dlpack(struct tensor_view *view, PyObject *object, const DLTensor *source)
{
    hvd_dtype dtype = dtype_of(source->dtype);
    if ((int)dtype < 0)
        return refuse(object,
                      "holds elements of a type that collectives can't take; use (u)int8, int32, int64, "
                      "float16, bfloat16, float32 or float64");
    if (source->ndim > HVD_MAX_DIMENSIONS)
        return refuse(object, "has too many dimensions");
    if (!is_dense(source))
        return refuse(object, "is not contiguous; pass x.contiguous() (or numpy.ascontiguousarray(x))");
    if (source->ndim)
        memcpy(view->shape, source->shape, (size_t)source->ndim * sizeof *view->shape);
    view->tensor = (hvd_tensor){.data = source->data ? (char *)source->data + source->byte_offset : NULL,
                                .ndim = source->ndim,
                                .dtype = dtype,
                                .device_type = source->device.device_type,
                                .device_id = source->device.device_id};
    return 0;
}

/* ---- the three ways ------------------------------------------------------------------------------ */

/* One entry is enough: a program's tensors are nearly all of one type. The reference keeps the type alive. */
static PyTypeObject *cached_type;
static const DLExchangeTable *cached_table;

static const DLExchangeTable *exchange_table_of(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    if (type == cached_type)
        return cached_table;
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, name_exchange);
    DLExchangeHeader *header = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    while (header && header->version.major != 1)
        header = header->previous;
    const DLExchangeTable *table = (const DLExchangeTable *)header;
    if (!table || !table->tensor_from_object)
        return NULL;
    Py_INCREF(type);
    Py_XDECREF(cached_type);
    cached_type = type;
    return cached_table = table;
}

static int take_by_table(struct tensor_view *view, PyObject *object, const DLExchangeTable *table)
{
    DLTensor borrowed;
    if (table->tensor_from_object(object, &borrowed))
        return -1; /* it has set the error: a sparse, quantised or meta tensor */
    Py_INCREF(object);
    view->keep = object;
    return take_dlpack(view, object, &borrowed);
}

static int take_by_buffer(struct tensor_view *view, PyObject *object, int writable)
{
    Py_buffer *buffer = &view->buffer;
    view->has_buffer = 1;
    hvd_dtype dtype = dtype_of_format(buffer->format ? buffer->format : "B", buffer->itemsize);
    if ((int)dtype < 0)
        return refuse(object,
                      "holds elements of a type that collectives can't take; use (u)int8, int32, int64, "
                      "float16, float32 or float64");
    if (writable && buffer->readonly)
        return refuse(object, "is read-only, but the operation writes to it");
    if (buffer->ndim > HVD_MAX_DIMENSIONS)
        return refuse(object, "has too many dimensions");
    for (int d = 0; d < buffer->ndim; d++)
        view->shape[d] = buffer->shape[d];
    view->tensor =
        (hvd_tensor){.data = buffer->buf, .ndim = buffer->ndim, .dtype = dtype, .device_type = HVD_CPU};
    return 0;
}

static int take_by_capsule(struct tensor_view *view, PyObject *object, int writable)
{
    PyObject *capsule = PyObject_CallMethodObjArgs(object, name_dlpack, NULL);
    if (!capsule)
        return -1;
    view->keep = capsule; /* unconsumed: its destructor gives the memory back */
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (writable && managed->flags & DL_FLAG_READ_ONLY)
            return refuse(object, "is read-only, but the operation writes to it");
        return take_dlpack(view, object, &managed->tensor);
    }
    DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? take_dlpack(view, object, &managed->tensor) : -1;
}

static int take(struct tensor_view *view, PyObject *object, int writable)
{
    const DLExchangeTable *table = exchange_table_of(object);
    if (table)
        return take_by_table(view, object, table);
    if (PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0)
        return take_by_buffer(view, object, writable);
    PyErr_Clear();
    if (PyObject_HasAttr(object, name_dlpack))
        return take_by_capsule(view, object, writable);
    return refuse(object, "is no tensor: it must offer DLPack or a contiguous buffer");
}

int tensor_view_init(struct tensor_view *view, PyObject *object, int writable)
{
    memset(view, 0, offsetof(struct tensor_view, shape));
    if (take(view, object, writable)) {
        tensor_view_fini(view);
        return -1;
    }
    view->tensor.shape = view->shape;
    return 0;
}

void tensor_view_fini(struct tensor_view *view)
{
    Py_XDECREF(view->keep);
    view->keep = NULL;
    if (view->has_buffer)
        PyBuffer_Release(&view->buffer);
    view->has_buffer = 0;
}
