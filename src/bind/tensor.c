/* tensor.c - see tensor.h. The cheapest way that a type offers comes first: the DLPack exchange table of its
 * type (30 ns), the buffer protocol (75 ns), a DLPack capsule (2 us and more). */
#include "bind/tensor.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN_TYPES = 8 };

static PyObject *name_exchange, *name_dlpack, *name_storage, *name_conj, *name_neg, *name_dtype, *name_name,
    *name_array, *name_flags, *name_writeable, *no_arguments, *ask_for_version_1;

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
    ask_for_version_1 = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    bool named = name_exchange && name_dlpack && name_storage && name_conj && name_neg;
    named = named && name_dtype && name_name && name_array && name_flags && name_writeable;
    return named && no_arguments && ask_for_version_1 ? 0 : -1;
}

/* ---- element types --------------------------------------------------------------------------------- */

/* Of two rows with one letter the one of the buffer's item size counts. */
static const struct element {
    hvd_dtype dtype;
    uint8_t code, bits;  /* of DLPack */
    uint8_t alignment;   /* in bytes */
    char *format;        /* of the buffer protocol; "2x": bytes, there is none */
    const char *letters; /* that may mean it, too */
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

/* False when the engine has no such type; then `text` says which one it was. */
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

/* A format that many types may have. */
static bool is_opaque(const struct element *element)
{
    return strchr(element->format, 'x') != NULL;
}

static bool means(const char *format, const struct element *element)
{
    if (!strcmp(element->format, format))
        return !is_opaque(element);
    return format[0] && !format[1] && strchr(element->letters, format[0]);
}

static bool element_from_buffer(const Py_buffer *buffer, hvd_dtype *dtype, char *text, size_t size)
{
    const char *format = buffer->format ? buffer->format : "B";
    /* Marks of the byte order that is this machine's, or of none; with another one the format matches
     * nothing. */
    const char *letters = *format && strchr("@=<|", *format) ? format + 1 : format;
    for (int i = 0; i < ELEMENTS; i++) {
        if (means(letters, &elements[i]) && elements[i].bits == 8 * buffer->itemsize) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    snprintf(text, size, "'%s' (in the struct module's letters), %zd bytes", format, buffer->itemsize);
    return false;
}

/* NumPy can't export an array of a type that the buffer protocol has no letters for (bfloat16 of ml_dtypes)
 * with its format, only without: then the name of its dtype says what it is. */
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

/* The framework has set an exception that names neither the operation nor us: its text goes into ours. */
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
static bool is_dense(const DLTensor *tensor)
{
    int64_t expected = 1;
    if (!tensor->strides || has_no_elements(tensor))
        return true;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        /* The stride of an extent of 1 is never used, and frameworks write anything there. */
        if (tensor->shape[d] != 1 && tensor->strides[d] != expected)
            return false;
        expected *= tensor->shape[d];
    }
    return true;
}

/* The engine computes with whole elements. What is only read may be read from an aligned copy. */
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

/* All ways end here, before Python runs that could change the object. */
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

/* What a type offers. Programs use few types: a reference keeps each that is listed alive. */
struct known_type {
    PyTypeObject *type;
    const DLExchangeTable *table;            /* NULL: it has none */
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
    /* Newest first: an older major version hangs behind it. */
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
    /* That ran Python, which may have come here, too: the row changes at once, afterwards. */
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

/* NULL without an exception: it has no such method, or that failed. */
static PyObject *call(PyObject *method, PyObject *object)
{
    if (!method)
        return NULL;
    Py_INCREF(method); /* its row may go meanwhile */
    PyObject *answer = PyObject_CallFunctionObjArgs(method, object, NULL);
    Py_DECREF(method);
    if (!answer)
        PyErr_Clear();
    return answer;
}

static bool says(PyObject *method, PyObject *object)
{
    PyObject *answer = call(method, object);
    bool yes = answer && PyObject_IsTrue(answer) > 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

/* A real tensor that PyTorch negates lazily is the imaginary part of a complex one: it has a storage larger
 * than itself. Its size takes a quarter of the time of is_neg, which gives up the GIL. */
static bool fills_storage(const struct tensor_view *view, DLDataType type)
{
    Py_ssize_t size = type.code == DL_COMPLEX ? -1 : PyObject_Size(view->owner);
    PyErr_Clear();
    return size >= 0 && (size_t)size <= tensor_view_bytes(view);
}

/* PyTorch's conjugations and negations are lazy, which DLPack does not show: the memory holds another value.
 */
static bool is_lazy(const struct known_type *known, const struct tensor_view *view, PyObject *object,
                    DLDataType type)
{
    if (known->storage_of && view->owner != object && fills_storage(view, type))
        return false;
    return says(known->is_neg, object) || (type.code == DL_COMPLEX && says(known->is_conj, object));
}

/* `t.data = x`, `set_` and `half` give a tensor other memory, so the object does not keep what it has now. */
static PyObject *owner_of(const struct known_type *known, PyObject *object)
{
    PyObject *storage = call(known->storage_of, object);
    if (!storage)
        Py_INCREF(object);
    return storage ? storage : object;
}

/* ---- the three ways -------------------------------------------------------------------------------- */

static int take_dlpack(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                       const struct known_type *known, const DLTensor *source)
{
    DLDataType type = source->dtype; /* the source may go once it is described */
    DLDevice device = source->device;
    if (device.device_type == DL_CUDA_HOST || device.device_type == DL_ROCM_HOST)
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

/* Asks for the stream that this thread works on. 0, or not 0 with an exception set. */
static int stream_of(const DLExchangeTable *table, DLDevice device, void **stream)
{
    if (device.device_type == HVD_CPU || !table->current_stream)
        return 0;
    return table->current_stream(device.device_type, device.device_id, stream);
}

static int take_by_table(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                         const struct known_type *known)
{
    const DLExchangeTable *table = known->table;
    DLTensor borrowed;
    view->owner = owner_of(known, object);
    if (table->tensor_from_object(object, &borrowed))
        return refuse_with_cause(object, role); /* sparse, quantised, meta */
    if (stream_of(table, borrowed.device, &view->stream))
        return refuse_with_cause(object, role);
    return take_dlpack(view, object, role, known, &borrowed);
}

static int take_buffer(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
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

static int take_by_format(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    hvd_dtype dtype;
    char text[64];
    if (!element_from_buffer(&view->buffer, &dtype, text, sizeof text))
        return refuse_type(object, role, text);
    return take_buffer(view, object, role, dtype);
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

/* The producer of a capsule that is not told a stream has made the device's default one wait for its work,
 * and that is the stream of the view, NULL.
 *
 * A capsule without a version can't say that its memory is read-only, as that of JAX's arrays is: NumPy's
 * view of the object does, where it can be had. */
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

static int take_by_capsule(struct tensor_view *view, PyObject *object, const struct tensor_role *role,
                           const struct known_type *known)
{
    PyObject *capsule = ask_for_capsule(object);
    if (!capsule)
        return refuse_with_cause(object, role);
    view->owner = capsule; /* not consumed, so its destructor gives the memory back */
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (managed->version.major != 1)
            return refuse(object, role, "speaks a version of DLPack that is not known here");
        if (role->written && managed->flags & DL_FLAG_READ_ONLY)
            return refuse(object, role, "is read-only, but the operation writes to it");
        return take_dlpack(view, object, role, known, &managed->tensor);
    }
    if (role->written && shows_read_only(object))
        return refuse(object, role, "is read-only, but the operation writes to it");
    DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    return managed ? take_dlpack(view, object, role, known, &managed->tensor)
                   : refuse_with_cause(object, role);
}

static int take(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    struct known_type known = known_type_of(Py_TYPE(object));
    if (known.table)
        return take_by_table(view, object, role, &known);
    if (!PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
        return take_by_format(view, object, role);
    PyErr_Clear();
    hvd_dtype dtype;
    if (element_by_name(object, &dtype) && !PyObject_GetBuffer(object, &view->buffer, PyBUF_C_CONTIGUOUS))
        return take_buffer(view, object, role, dtype);
    PyErr_Clear();
    if (PyObject_HasAttr(object, name_dlpack))
        return take_by_capsule(view, object, role, &known);
    return refuse(object, role, "is no tensor: it offers neither DLPack nor a contiguous buffer");
}

int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role)
{
    memset(view, 0, offsetof(struct tensor_view, shape));
    if (!take(view, object, role))
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
    bool found = !known.table->tensor_from_object(object, &now) && now.device.device_type != HVD_CPU &&
                 !stream_of(known.table, now.device, stream);
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
