/* tensor.c - finds the memory of a tensor by the cheapest way that its type offers: the DLPack exchange table
 * of the type (30 ns), the buffer protocol (75 ns), or a DLPack capsule (2 us and more). Any Python thread
 * calls these functions with the GIL held, which protects the table of known types. Any call into Python may
 * change an object or that table, so no pointer into them is kept across one. */
#include "bind/tensor.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN_TYPES = 8 };

static PyObject *name_exchange, *name_dlpack, *name_storage, *name_conj, *name_neg, *name_dtype, *name_name,
    *name_array, *name_flags, *name_writeable, *no_arguments, *version_1;

int tensor_init_module(void)
{
    name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    name_dlpack = PyUnicode_InternFromString("__dlpack__");
    name_storage = PyUnicode_InternFromString("untyped_storage");
    name_conj = PyUnicode_InternFromString("is_conj");
    name_neg = PyUnicode_InternFromString("is_neg");
    name_dtype = PyUnicode_InternFromString("dtype");
    name_name = PyUnicode_InternFromString("name");
    name_array = PyUnicode_InternFromString("__array__");
    name_flags = PyUnicode_InternFromString("flags");
    name_writeable = PyUnicode_InternFromString("writeable");
    no_arguments = PyTuple_New(0);
    version_1 = Py_BuildValue("(ii)", 1, 0);
    bool named = name_exchange && name_dlpack && name_storage && name_conj && name_neg;
    named = named && name_dtype && name_name && name_array && name_flags && name_writeable;
    return named && no_arguments && version_1 ? 0 : -1;
}

/* ---- element types --------------------------------------------------------------------------------- */

/* If two rows have the same letter, the item size of the buffer decides. */
static const struct element {
    hvd_dtype dtype;
    uint8_t code, bits;  /* of DLPack */
    uint8_t alignment;   /* in bytes */
    char *format;        /* of the buffer protocol; "2x" (bytes) if it has no letter */
    const char *letters; /* other letters that may mean it */
} elements[] = {
#define DTYPE(name, text, storage, compute, family, format, letters, dlpack, ...)                            \
    {HVD_##name, dlpack, 8 * sizeof(storage), _Alignof(storage), format, letters},
#include "base/dtypes.def"
#undef DTYPE
};

enum { ELEMENTS = sizeof elements / sizeof *elements };

static const struct element *find_element(hvd_dtype dtype)
{
    int i = 0;
    while (elements[i].dtype != dtype)
        i++;
    return &elements[i];
}

/* Returns false if the engine has no such type; then `text` names the type. */
static bool element_from_dlpack(DLDataType type, hvd_dtype *dtype, char *text, size_t size)
{
    static const char *const families[] = {[DL_INT] = "int",
                                           [DL_UINT] = "uint",
                                           [DL_FLOAT] = "float",
                                           [DL_BFLOAT] = "bfloat",
                                           [DL_COMPLEX] = "complex"};
    static const char *const small_floats[] = {"float8_e3m4",     "float8_e4m3",     "float8_e4m3b11fnuz",
                                               "float8_e4m3fn",   "float8_e4m3fnuz", "float8_e5m2",
                                               "float8_e5m2fnuz", "float8_e8m0fnu",  "float6_e2m3fn",
                                               "float6_e3m2fn",   "float4_e2m1fn"};
    size_t small = type.code - (size_t)DL_SMALL_FLOATS; /* a huge number for the codes before them */
    for (int i = 0; i < ELEMENTS; i++) {
        if (type.lanes == 1 && elements[i].code == type.code && elements[i].bits == type.bits) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    if (type.code < sizeof families / sizeof *families && families[type.code])
        snprintf(text, size, "%s%d", families[type.code], type.bits);
    else if (small < sizeof small_floats / sizeof *small_floats)
        snprintf(text, size, "%s", small_floats[small]);
    else
        snprintf(text, size, "number %d of DLPack, %d bits", type.code, type.bits);
    return false;
}

/* Returns true for a format that several types share. */
static bool is_opaque(const struct element *element)
{
    return strchr(element->format, 'x') != NULL;
}

static bool matches(const char *format, const struct element *element)
{
    if (!strcmp(element->format, format))
        return !is_opaque(element);
    return format[0] && !format[1] && strchr(element->letters, format[0]);
}

static bool element_from_buffer(const Py_buffer *buffer, hvd_dtype *dtype, char *text, size_t size)
{
    const char *format = buffer->format ? buffer->format : "B";
    /* These marks stand for the byte order of this machine or for none. A format with another mark matches no
     * row. */
    const char *letters = *format && strchr("@=<|", *format) ? format + 1 : format;
    for (int i = 0; i < ELEMENTS; i++) {
        if (matches(letters, &elements[i]) && elements[i].bits == 8 * buffer->itemsize) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    snprintf(text, size, "'%s' (in the struct module's letters), %zd bytes", format, buffer->itemsize);
    return false;
}

/* NumPy exports an array of a type for which the buffer protocol has no letters (bfloat16 of ml_dtypes) only
 * without its format. Then the name of its dtype identifies the type. */
static bool element_by_name(PyObject *object, hvd_dtype *dtype)
{
    PyObject *type = PyObject_GetAttr(object, name_dtype);
    PyObject *name = type ? PyObject_GetAttr(type, name_name) : NULL;
    const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    bool found = false;
    for (int i = 0; text && i < ELEMENTS && !found; i++) {
        found = is_opaque(&elements[i]) && strcmp(text, hvd_dtype_name(elements[i].dtype)) == 0;
        *dtype = elements[i].dtype;
    }
    Py_XDECREF(type);
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}

DLDataType element_to_dlpack(hvd_dtype dtype)
{
    const struct element *element = find_element(dtype);
    return (DLDataType){element->code, element->bits, 1};
}

char *element_to_format(hvd_dtype dtype)
{
    return find_element(dtype)->format;
}

/* ---- refusals ------------------------------------------------------------------------------------- */

static int refuse(PyObject *object, const struct tensor_role *role, const char *why)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
    if (type)
        PyErr_Format(PyExc_ValueError, "%s: tensor %d (%S) %s", role->operation, role->index, type, why);
    Py_XDECREF(type);
    return -1;
}

/* Replaces the exception that the framework has set by one that also names the operation and the tensor. */
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

/* Returns true if the tensor is dense and row-major. The strides of a tensor without elements do not matter.
 */
static bool is_dense(const DLTensor *tensor)
{
    int64_t expected = 1;
    if (!tensor->strides)
        return true;
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 0)
            return true;
    }
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        /* The stride of an extent of 1 is never used, and frameworks store any value in it. */
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected)
            return false;
        expected *= tensor->shape[d];
    }
    return true;
}

/* The engine needs aligned elements. Replaces a misaligned tensor that is only read by an aligned copy. */
static int align(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    hvd_tensor *tensor = &view->tensor;
    if (tensor->device_type != HVD_CPU ||
        (uintptr_t)tensor->data % find_element(tensor->dtype)->alignment == 0)
        return 0;
    size_t bytes = tensor_view_bytes(view);
    if (role->written && bytes)
        return refuse(object, role, "is not aligned to the size of its elements; pass a copy that is");
    PyObject *copy = PyBytes_FromStringAndSize(tensor->data, (Py_ssize_t)bytes);
    if (!copy)
        return -1;
    tensor_view_release(view);
    view->owner = copy;
    tensor->data = PyBytes_AsString(copy);
    return 0;
}

/* Copies the description of a tensor. Every way calls it before it runs Python code that could change the
 * object. */
static int describe(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                    const hvd_tensor *tensor)
{
    if (tensor->ndim > HVD_MAX_DIMENSIONS)
        return refuse(object, role, "has more than 32 dimensions");
    view->tensor = *tensor;
    view->tensor.shape = view->shape;
    for (int d = 0; d < tensor->ndim; d++)
        view->shape[d] = tensor->shape[d];
    return align(view, object, role);
}

/* ---- types of tensors ------------------------------------------------------------------------------ */

/* The ways that a type offers. The row owns references to the type and its methods. */
struct known_type {
    PyTypeObject *type;
    const DLExchangeTable *table;            /* NULL if it has none */
    PyObject *storage_of, *is_neg, *is_conj; /* PyTorch's methods, or NULL */
};

static struct known_type known_types[8];
static unsigned next_known_type;

static const DLExchangeTable *read_exchange_table(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttr((PyObject *)type, name_exchange);
    DLExchangeHeader *header = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    PyErr_Clear();
    /* The newest table is the first; it links to those of older major versions. */
    while (header && header->version.major != 1)
        header = header->previous;
    const DLExchangeTable *table = (const DLExchangeTable *)header;
    return table && table->tensor_from_object ? table : NULL;
}

static PyObject *read_method(PyTypeObject *type, PyObject *name)
{
    PyObject *method = PyObject_GetAttr((PyObject *)type, name);
    PyErr_Clear();
    return method;
}

static struct known_type learn_type(PyTypeObject *type)
{
    struct known_type known = {.type = type,
                               .table = read_exchange_table(type),
                               .storage_of = read_method(type, name_storage),
                               .is_neg = read_method(type, name_neg),
                               .is_conj = read_method(type, name_conj)};
    /* The lines above ran Python code, which may have called this function as well. So the row is replaced as
     * a whole before Python code runs again. */
    struct known_type *row = &known_types[next_known_type++ % KNOWN_TYPES];
    struct known_type before = *row;
    Py_INCREF(type);
    *row = known;
    Py_XDECREF(before.type);
    Py_XDECREF(before.storage_of);
    Py_XDECREF(before.is_neg);
    Py_XDECREF(before.is_conj);
    return known;
}

static const struct known_type *find_type(PyTypeObject *type)
{
    for (int i = 0; i < KNOWN_TYPES; i++) {
        if (known_types[i].type == type)
            return &known_types[i];
    }
    return NULL;
}

static struct known_type known_type_of(PyTypeObject *type)
{
    const struct known_type *known = find_type(type);
    return known ? *known : learn_type(type);
}

/* Returns NULL without an exception if there is no such method or if it failed. */
static PyObject *call(PyObject *method, PyObject *object)
{
    if (!method)
        return NULL;
    Py_INCREF(method); /* its row may be replaced meanwhile */
    PyObject *answer = PyObject_CallFunctionObjArgs(method, object, NULL);
    Py_DECREF(method);
    if (!answer)
        PyErr_Clear();
    return answer;
}

static bool returns_true(PyObject *method, PyObject *object)
{
    PyObject *answer = call(method, object);
    bool yes = answer && PyObject_IsTrue(answer) > 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

/* Returns true if PyTorch has yet to conjugate or negate the tensor: its memory holds other values, which
 * DLPack does not report. */
static bool is_lazy(const struct known_type *known, const struct tensor_view *view, PyObject *object,
                    DLDataType type)
{
    /* A real tensor that PyTorch negates lazily is the imaginary part of a complex one, so its storage is
     * larger than itself. Reading the size of the storage costs a quarter of the time of is_neg, which
     * releases the GIL. */
    if (known->storage_of && view->owner != object && type.code != DL_COMPLEX) {
        Py_ssize_t size = PyObject_Size(view->owner);
        PyErr_Clear();
        if (size >= 0 && (size_t)size <= tensor_view_bytes(view))
            return false;
    }
    return returns_true(known->is_neg, object) ||
           (type.code == DL_COMPLEX && returns_true(known->is_conj, object));
}

/* ---- the three ways -------------------------------------------------------------------------------- */

static bool is_in_host_memory(int device_type)
{
    return device_type == DL_CPU || device_type == DL_CUDA_HOST || device_type == DL_ROCM_HOST;
}

static int view_dlpack(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                       const struct known_type *known, const DLTensor *source)
{
    DLDataType type = source->dtype; /* the source may be freed after describe */
    DLDevice device = source->device;
    if (is_in_host_memory(device.device_type))
        device = (DLDevice){HVD_CPU, 0};
    hvd_dtype dtype;
    char text[64];
    if (!element_from_dlpack(type, &dtype, text, sizeof text))
        return refuse_type(object, role, text);
    hvd_tensor tensor = {.data = source->data ? (char *)source->data + source->byte_offset : NULL,
                         .shape = source->shape,
                         .ndim = source->ndim,
                         .dtype = dtype,
                         .device_type = device.device_type,
                         .device_id = device.device_id};
    bool dense = is_dense(source);
    if (dense && describe(view, object, role, &tensor))
        return -1;
    if (is_lazy(known, view, object, type))
        return refuse(object, role, "is lazily conjugated or negated; pass x.resolve_conj().resolve_neg()");
    return dense ? 0 : refuse(object, role, "is not contiguous (dense and row-major); pass a copy that is");
}

/* Sets *stream to the stream on which this thread works, on a device. Returns 0, or not 0 with an exception
 * set. */
static int stream_of(const DLExchangeTable *table, DLDevice device, void **stream)
{
    if (is_in_host_memory(device.device_type) || !table->current_stream)
        return 0;
    return table->current_stream(device.device_type, device.device_id, stream);
}

static int view_by_table(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                         const struct known_type *known)
{
    const DLExchangeTable *table = known->table;
    DLTensor borrowed;
    /* The owner of the memory is the storage if there is one, because `t.data = x`, `set_` and `half` give a
     * tensor other memory, so the tensor itself does not keep its present memory. */
    view->owner = call(known->storage_of, object);
    if (!view->owner)
        Py_INCREF(view->owner = object);
    if (table->tensor_from_object(object, &borrowed))
        return refuse_with_cause(object, role); /* sparse, quantised, meta */
    if (stream_of(table, borrowed.device, &view->stream))
        return refuse_with_cause(object, role);
    return view_dlpack(view, object, role, known, &borrowed);
}

static int view_buffer(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                       hvd_dtype dtype)
{
    const Py_buffer *buffer = &view->buffer;
    if (role->written && buffer->readonly)
        return refuse(object, role, "is read-only, but the operation writes to it");
    hvd_tensor tensor = {.data = buffer->buf,
                         .shape = (const int64_t *)buffer->shape,
                         .ndim = buffer->ndim,
                         .dtype = dtype,
                         .device_type = HVD_CPU};
    return describe(view, object, role, &tensor);
}

/* Calls __dlpack__. `stream`: the number of a stream that the producer makes wait for its work; -1: none. */
static PyObject *request_capsule(PyObject *object, int stream)
{
    PyObject *method = PyObject_GetAttr(object, name_dlpack);
    PyObject *options = !method      ? NULL
                        : stream < 0 ? Py_BuildValue("{s:O}", "max_version", version_1)
                                     : Py_BuildValue("{s:O,s:i}", "max_version", version_1, "stream", stream);
    PyObject *capsule = options ? PyObject_Call(method, no_arguments, options) : NULL;
    if (options && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) { /* older than DLPack 1.0 */
        PyErr_Clear();
        if (!PyDict_DelItemString(options, "max_version"))
            capsule = PyObject_Call(method, no_arguments, options);
    }
    Py_XDECREF(options);
    Py_XDECREF(method);
    return capsule;
}

/* Returns NULL if it has an unknown version, and NULL with an exception set if it is no capsule. */
static const DLTensor *tensor_in(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        return managed->version.major == 1 ? &managed->tensor : NULL;
    }
    DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? &managed->tensor : NULL;
}

/* Returns a capsule of the object. On a device the producer is asked a second time, with the default stream,
 * which is that of the view, NULL: producers older than DLPack 1.0 make only a stream that they get wait for
 * their work. On the CPU one call is enough. */
static PyObject *capsule_of(PyObject *object)
{
    PyObject *capsule = request_capsule(object, -1);
    const DLTensor *tensor = capsule ? tensor_in(capsule) : NULL;
    if (capsule && !tensor)
        PyErr_Clear(); /* its caller looks again */
    if (!tensor || is_in_host_memory(tensor->device.device_type))
        return capsule;
    int type = tensor->device.device_type;
    Py_DECREF(capsule);
    return request_capsule(object, type == DL_CUDA || type == DL_CUDA_MANAGED ? DL_CUDA_DEFAULT_STREAM
                                                                              : DL_DEFAULT_STREAM);
}

/* A capsule without a version does not report that its memory is read-only, as that of JAX's arrays is.
 * NumPy's view of the object does, if NumPy can make one. */
static bool shows_read_only(PyObject *object)
{
    PyObject *array = PyObject_CallMethodObjArgs(object, name_array, NULL);
    PyObject *flags = array ? PyObject_GetAttr(array, name_flags) : NULL;
    PyObject *writeable = flags ? PyObject_GetAttr(flags, name_writeable) : NULL;
    bool read_only = writeable == Py_False;
    Py_XDECREF(array);
    Py_XDECREF(flags);
    Py_XDECREF(writeable);
    PyErr_Clear();
    return read_only;
}

static bool is_read_only(PyObject *object, PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned"))
        return shows_read_only(object);
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    return managed->flags & DL_FLAG_READ_ONLY;
}

static int view_by_capsule(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                           const struct known_type *known)
{
    PyObject *capsule = capsule_of(object);
    if (!capsule)
        return refuse_with_cause(object, role);
    view->owner = capsule; /* it is not consumed, so its destructor frees the memory */
    const DLTensor *tensor = tensor_in(capsule);
    if (!tensor && PyErr_Occurred())
        return refuse_with_cause(object, role);
    if (!tensor)
        return refuse(object, role, "speaks a version of DLPack that is not known here");
    if (role->written && is_read_only(object, capsule))
        return refuse(object, role, "is read-only, but the operation writes to it");
    return view_dlpack(view, object, role, known, tensor);
}

static int view_object(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    struct known_type known = known_type_of(Py_TYPE(object));
    hvd_dtype dtype;
    char text[64];
    if (known.table)
        return view_by_table(view, object, role, &known);
    if (!PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        return element_from_buffer(&view->buffer, &dtype, text, sizeof text)
                   ? view_buffer(view, object, role, dtype)
                   : refuse_type(object, role, text);
    PyErr_Clear();
    if (element_by_name(object, &dtype) && !PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS))
        return view_buffer(view, object, role, dtype);
    PyErr_Clear();
    if (PyObject_HasAttr(object, name_dlpack))
        return view_by_capsule(view, object, role, &known);
    return refuse(object, role, "is no tensor: it offers neither DLPack nor a contiguous buffer");
}

int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    memset(view, 0, offsetof(struct tensor_view, shape));
    if (!view_object(view, object, role))
        return 0;
    tensor_view_release(view);
    return -1;
}

int tensor_stream(PyObject *object, void **stream)
{
    struct known_type known = known_type_of(Py_TYPE(object));
    DLTensor now;
    *stream = NULL;
    if (!known.table || !known.table->current_stream)
        return 0;
    bool found = !known.table->tensor_from_object(object, &now) &&
                 !is_in_host_memory(now.device.device_type) && !stream_of(known.table, now.device, stream);
    if (!found)
        PyErr_Clear();
    return found;
}

size_t tensor_view_bytes(const struct tensor_view *view)
{
    size_t bytes = hvd_dtype_size(view->tensor.dtype);
    for (int d = 0; d < view->tensor.ndim; d++)
        bytes *= (size_t)view->shape[d];
    return bytes;
}

bool tensor_view_is_stale(const struct tensor_view *view, PyObject *object)
{
    const struct known_type *known = find_type(Py_TYPE(object));
    DLTensor now;
    if (!known || !known->table)
        return false;
    if (known->table->tensor_from_object(object, &now)) {
        PyErr_Clear();
        now.data = NULL;
    } else if (now.data && (char *)now.data + now.byte_offset == view->tensor.data) {
        return false;
    }
    return tensor_view_bytes(view) > 0;
}

void tensor_view_release(struct tensor_view *view)
{
    Py_CLEAR(view->owner);
    if (view->buffer.obj)
        PyBuffer_Release(&view->buffer); /* sets obj to NULL */
}

int tensor_view_traverse(const struct tensor_view *view, visitproc visit, void *arg)
{
    Py_VISIT(view->owner);
    Py_VISIT(view->buffer.obj);
    return 0;
}
