/* tensor.c - see tensor.h. The cheapest way that a type offers comes first: the DLPack exchange table of its
 * type (30 ns), the buffer protocol (75 ns), a DLPack capsule (2 us and more). */
#include "bind/tensor.h"

#include "bind/dlpack.h"
#include "bind/elements.h"

#include <stdio.h>
#include <string.h>

static PyObject *name_exchange, *name_dlpack, *name_conj, *name_neg, *no_arguments, *ask_for_version_1;

int tensor_init_module(void)
{
    name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    name_conj = PyUnicode_InternFromString("is_conj");
    name_neg = PyUnicode_InternFromString("is_neg");
    no_arguments = PyTuple_New(0);
    ask_for_version_1 = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    bool named = name_exchange && name_dlpack && name_conj && name_neg;
    return named && no_arguments && ask_for_version_1 ? 0 : -1;
}

/* ---- saying no ------------------------------------------------------------------------------------- */

static int refuse(PyObject *object, const struct tensor_role *role, const char *why)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_ValueError, "%s: tensor %d (%S) %s", role->operation, role->index, type, why);
    Py_XDECREF(type);
    return -1;
}

/* The framework has set an exception that knows neither the operation nor us: its text goes into ours. */
static int refuse_with_cause(PyObject *object, const struct tensor_role *role)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *cause = value ? PyObject_Str(value) : NULL;
    const char *text = cause ? PyUnicode_AsUTF8AndSize(cause, NULL) : NULL;
    PyErr_Clear();
    char why[512];
    text = text ? text : "no reason was given";
    snprintf(why, sizeof why, "can't be reached as dense memory: %.*s", (int)strcspn(text, "\n"), text);
    Py_XDECREF(cause);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return refuse(object, role, why);
}

static int refuse_type(PyObject *object, const struct tensor_role *role, const char *type)
{
    char why[512];
    int length = snprintf(why, sizeof why, "holds elements of type %s; this version takes", type);
    for (int dtype = 0; dtype < 256 && (size_t)length < sizeof why; dtype++) {
        if (hvd_dtype_size((hvd_dtype)dtype))
            length +=
                snprintf(why + length, sizeof why - (size_t)length, " %s", hvd_dtype_name((hvd_dtype)dtype));
    }
    return refuse(object, role, why);
}

static bool has_no_elements(const DLTensor *tensor)
{
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 0)
            return true;
    }
    return false;
}

/* Without elements strides mean nothing. */
static int check_dense(PyObject *object, const struct tensor_role *role, const DLTensor *tensor)
{
    int64_t expected = 1;
    if (!tensor->strides || has_no_elements(tensor))
        return 0;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        /* The stride of an extent of 1 is never used, and frameworks write anything there. */
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected)
            return refuse(object, role, "is not contiguous (dense and row-major); pass a copy that is");
        expected *= tensor->shape[d];
    }
    return 0;
}

/* ---- the three ways -------------------------------------------------------------------------------- */

static bool says(PyObject *object, PyObject *method)
{
    PyObject *answer = PyObject_CallMethodObjArgs(object, method, NULL);
    bool yes = answer && PyObject_IsTrue(answer) > 0;
    Py_XDECREF(answer);
    PyErr_Clear(); /* it has no such method */
    return yes;
}

/* PyTorch puts conjugations and negations off, and DLPack does not tell: the memory holds another value. */
static bool is_lazy(PyObject *object, DLDataType type)
{
    return says(object, name_neg) || (type.code == DL_COMPLEX && says(object, name_conj));
}

static int take_dlpack(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                       const DLTensor *source)
{
    hvd_dtype dtype;
    char text[64];
    if (!element_from_dlpack(source->dtype, &dtype, text, sizeof text))
        return refuse_type(object, role, text);
    if (is_lazy(object, source->dtype))
        return refuse(object, role, "is lazily conjugated or negated; pass x.resolve_conj().resolve_neg()");
    if (check_dense(object, role, source))
        return -1;
    view->tensor = (hvd_tensor){.data = source->data ? (char *)source->data + source->byte_offset : NULL,
                                .shape = source->shape,
                                .ndim = source->ndim,
                                .dtype = dtype,
                                .device_type = source->device.device_type,
                                .device_id = source->device.device_id};
    return 0;
}

/* Programs use few tensor types. A reference keeps each that is listed alive; table NULL: it has none. */
static struct {
    PyTypeObject *type;
    const DLExchangeTable *table;
} known_types[8];
static unsigned next_known_type;

static const DLExchangeTable *read_exchange_table(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, name_exchange);
    DLExchangeHeader *header = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    /* Newest first: an older major version hangs behind it. */
    while (header && header->version.major != 1)
        header = header->previous;
    const DLExchangeTable *table = (const DLExchangeTable *)header;
    return table && table->tensor_from_object ? table : NULL;
}

static const DLExchangeTable *exchange_table_of(PyTypeObject *type)
{
    enum { COUNT = sizeof known_types / sizeof *known_types };
    for (int i = 0; i < COUNT; i++) {
        if (known_types[i].type == type)
            return known_types[i].table;
    }
    /* Asking runs Python, which may come back here: the row changes at once, afterwards. */
    const DLExchangeTable *table = read_exchange_table(type);
    unsigned place = next_known_type++ % COUNT;
    PyTypeObject *before = known_types[place].type;
    Py_INCREF(type);
    known_types[place].type = type;
    known_types[place].table = table;
    Py_XDECREF(before);
    return table;
}

static int take_by_table(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                         const DLExchangeTable *table)
{
    DLTensor borrowed;
    if (table->tensor_from_object(object, &borrowed))
        return refuse_with_cause(object, role); /* sparse, quantised, meta */
    /* The description is only lent: it lasts as long as the object does. */
    Py_INCREF(object);
    view->kept = object;
    return take_dlpack(view, object, role, &borrowed);
}

static int take_by_buffer(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    const Py_buffer *buffer = &view->buffer;
    hvd_dtype dtype;
    char text[64];
    if (!element_from_buffer(buffer, &dtype, text, sizeof text))
        return refuse_type(object, role, text);
    if (role->written && buffer->readonly)
        return refuse(object, role, "is read-only, but the operation writes to it");
    view->tensor = (hvd_tensor){.data = buffer->buf,
                                .shape = (const int64_t *)buffer->shape,
                                .ndim = buffer->ndim,
                                .dtype = dtype,
                                .device_type = HVD_CPU};
    return 0;
}

static PyObject *ask_for_capsule(PyObject *object)
{
    PyObject *method = PyObject_GetAttr(object, name_dlpack);
    PyObject *capsule = method ? PyObject_Call(method, no_arguments, ask_for_version_1) : NULL;
    if (method && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* older than DLPack 1.0 */
        PyErr_Clear();
        capsule = PyObject_Call(method, no_arguments, NULL);
    }
    Py_XDECREF(method);
    return capsule;
}

static int take_by_capsule(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    PyObject *capsule = ask_for_capsule(object);
    if (!capsule)
        return refuse_with_cause(object, role);
    view->kept = capsule; /* not consumed, so its destructor gives the memory back */
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major != 1)
            return refuse(object, role, "speaks a version of DLPack that is not known here");
        if (role->written && managed->flags & DL_FLAG_READ_ONLY)
            return refuse(object, role, "is read-only, but the operation writes to it");
        return take_dlpack(view, object, role, &managed->tensor);
    }
    DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? take_dlpack(view, object, role, &managed->tensor) : refuse_with_cause(object, role);
}

static int take(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    const DLExchangeTable *table = exchange_table_of(Py_TYPE(object));
    if (table)
        return take_by_table(view, object, role, table);
    if (!PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        return take_by_buffer(view, object, role);
    PyErr_Clear();
    if (PyObject_HasAttr(object, name_dlpack))
        return take_by_capsule(view, object, role);
    return refuse(object, role, "is no tensor: it offers neither DLPack nor a contiguous buffer");
}

int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    memset(view, 0, sizeof *view);
    if (!take(view, object, role))
        return 0;
    tensor_view_release(view);
    return -1;
}

void tensor_view_release(struct tensor_view *view)
{
    Py_CLEAR(view->kept);
    if (view->buffer.obj)
        PyBuffer_Release(&view->buffer); /* sets obj to NULL */
}
