/* request.c - reads the tensors, splits and streams of a call, and submits it. Any Python thread calls
 * these functions with the GIL held. They are on the path of every operation: describe returns the same
 * Request for the same arguments, and nothing is allocated for the engine's lists of up to 8 tensors. */
#include "bind/request.h"

#include "bind/arguments.h"
#include "bind/errors.h"
#include "bind/tables.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

/* ---- tensors --------------------------------------------------------------------------------------- */

void held_tensors_release(struct held_tensors *held)
{
    struct held_tensors own = *held;
    *held = (struct held_tensors){0}; /* freeing a tensor may run Python code, which may call this again */
    for (int32_t i = 0; i < own.count; i++)
        tensor_view_release(&own.views[i]);
    free(own.views);
    free(own.splits);
}

int held_tensors_traverse(const struct held_tensors *held, visitproc visit, void *arg)
{
    int stop = 0;
    for (int32_t i = 0; i < held->count && !stop; i++)
        stop = tensor_view_traverse(&held->views[i], visit, arg);
    return stop;
}

bool held_tensors_overlap(const struct held_tensors *held, const void *memory, size_t bytes)
{
    uintptr_t start = (uintptr_t)memory;
    for (int32_t i = 0; i < held->count; i++) {
        uintptr_t first = (uintptr_t)held->views[i].tensor.data;
        if (first < start + bytes && start < first + tensor_view_bytes(&held->views[i]))
            return true;
    }
    return false;
}

static int hold_sequence(struct held_tensors *held, PyObject *sequence, Py_ssize_t count,
                         struct tensor_role role)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        role.index = (int)i;
        PyObject *object = PySequence_GetItem(sequence, i);
        int failed = object ? tensor_view_init(&held->views[held->count], object, &role) : -1;
        Py_XDECREF(object); /* the view has its own reference */
        if (failed)
            return -1;
        held->count++;
    }
    return 0;
}

/* Holds the inputs, then the outputs. Without outputs the operation writes to its inputs, unless the engine
 * makes its results. */
static int hold_tensors(struct held_tensors *held, hvd_operation operation, bool makes_results,
                        PyObject *inputs, PyObject *outputs)
{
    Py_ssize_t in = PySequence_Size(inputs);
    Py_ssize_t out = outputs ? PySequence_Size(outputs) : 0;
    if (in < 0 || out < 0)
        return -1;
    if (outputs && out != in) {
        PyErr_Format(PyExc_ValueError, "%s: %zd inputs but %zd outputs", hvd_operation_name(operation), in,
                     out);
        return -1;
    }
    size_t count = (size_t)(in + out ? in + out : 1);
    *held = (struct held_tensors){.views = reallocarray(NULL, count, sizeof *held->views)};
    if (!held->views) {
        PyErr_NoMemory();
        return -1;
    }
    struct tensor_role role = {.operation = hvd_operation_name(operation)};
    role.written = !outputs && !makes_results;
    int failed = hold_sequence(held, inputs, in, role);
    role.written = 1;
    if (failed || hold_sequence(held, outputs, out, role)) {
        held_tensors_release(held);
        return -1;
    }
    return 0;
}

/* ---- described requests ---------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD hvd_request request;
    double prescale, postscale; /* the request points to both */
    int results;                /* how many the engine makes for a tensor of the caller */
    PyObject *operation;        /* a row of the module's table */
} Request;

static PyTypeObject *request_type;

/* These are the parameters of describe. */
enum { OPERATION, REDUCTION, PRESCALE, POSTSCALE, ROOT, PROCESS_SET, PRIORITY, GROUPED, GENERATED };

static int read_name(PyObject *object, const char **name)
{
    Py_ssize_t length;
    *name = NULL;
    if (object == Py_None)
        return 0;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "name must be a str or None, not %R", Py_TYPE(object));
        return -1;
    }
    *name = PyUnicode_AsUTF8AndSize(object, &length);
    if (!*name)
        return -1;
    if (strlen(*name) == (size_t)length)
        return 0;
    PyErr_Format(PyExc_ValueError, "the name %R contains a null character", object);
    return -1;
}

/* Reads any object that float() accepts. */
static int read_factor(PyObject *object, const char *what, double *value)
{
    *value = PyFloat_AsDouble(object);
    if (*value != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_TypeError, "%s must be a number, not %R", what, Py_TYPE(object));
    return -1;
}

static PyObject *make_request(PyObject *const *values)
{
    int results;
    int32_t reduction = HVD_SUM;
    hvd_request request = {.struct_size = sizeof request};
    double prescale = 1, postscale = 1;
    assert(values[OPERATION]); /* arguments_sort refuses a call without it */
    if (tables_read_operation(values[OPERATION], &request.operation, &results) ||
        (values[REDUCTION] && read_int32(values[REDUCTION], &reduction)) ||
        (values[PRESCALE] && read_factor(values[PRESCALE], "prescale_factor", &prescale)) ||
        (values[POSTSCALE] && read_factor(values[POSTSCALE], "postscale_factor", &postscale)) ||
        (values[ROOT] && read_int32(values[ROOT], &request.root)) ||
        (values[PROCESS_SET] && read_int32(values[PROCESS_SET], &request.process_set)) ||
        (values[PRIORITY] && read_int32(values[PRIORITY], &request.priority)))
        return NULL;
    request.reduction = (hvd_reduction)reduction;
    request.grouped = values[GROUPED] ? PyObject_IsTrue(values[GROUPED]) : 0;
    request.generated = values[GENERATED] ? PyObject_IsTrue(values[GENERATED]) : 0;
    Request *self =
        request.grouped < 0 || request.generated < 0 ? NULL : (Request *)PyType_GenericAlloc(request_type, 0);
    if (self) {
        self->request = request;
        self->prescale = prescale;
        self->postscale = postscale;
        self->request.prescale = &self->prescale;
        self->request.postscale = &self->postscale;
        self->results = results;
        Py_INCREF(self->operation = values[OPERATION]);
    }
    return (PyObject *)self;
}

/* The arguments and the result of the last describe: programs mostly describe the same request again, with
 * identical objects. */
static struct {
    PyObject *values[PARAMETERS_MOST], *request;
} last;

static void remember(PyObject *const *values, PyObject *request)
{
    for (int i = OPERATION + 1; i < PARAMETERS_MOST; i++) { /* objects of other types may change */
        if (values[i] && !PyLong_CheckExact(values[i]) && !PyFloat_CheckExact(values[i]) &&
            !PyBool_Check(values[i]))
            return;
    }
    for (int i = 0; i < PARAMETERS_MOST; i++) {
        Py_XINCREF(values[i]);
        Py_XDECREF(last.values[i]);
        last.values[i] = values[i];
    }
    Py_INCREF(request);
    Py_XDECREF(last.request);
    last.request = request;
}

PyObject *request_describe(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords)
{
    static struct parameters parameters = {.function = "describe",
                                           .required = 1,
                                           .positional = 1,
                                           .names = {"operation", "reduction", "prescale", "postscale",
                                                     "root", "process_set", "priority", "grouped",
                                                     "generated"}};
    PyObject *values[PARAMETERS_MOST];
    if (arguments_sort(&parameters, arguments, count, keywords, values))
        return NULL;
    if (last.request && !memcmp(values, last.values, sizeof values)) {
        Py_INCREF(last.request);
        return last.request;
    }
    PyObject *request = make_request(values);
    if (request)
        remember(values, request);
    return request;
}

static void request_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((Request *)self)->operation);
    PyObject_Free(self);
    Py_DECREF(type);
}

int request_init_module(PyObject *module)
{
    static PyMemberDef members[] = {
        {"operation", T_OBJECT_EX, offsetof(Request, operation), READONLY, NULL},
        {"reduction", T_INT, offsetof(Request, request.reduction), READONLY, NULL},
        {"prescale", T_DOUBLE, offsetof(Request, prescale), READONLY, NULL},
        {"postscale", T_DOUBLE, offsetof(Request, postscale), READONLY, NULL},
        {"root", T_INT, offsetof(Request, request.root), READONLY, NULL},
        {"process_set", T_INT, offsetof(Request, request.process_set), READONLY, NULL},
        {"priority", T_INT, offsetof(Request, request.priority), READONLY, NULL},
        {"grouped", T_INT, offsetof(Request, request.grouped), READONLY, NULL},
        {NULL, 0, 0, 0, NULL}};
    PyType_Slot slots[] = {
        {Py_tp_dealloc, SLOT(request_dealloc)},
        {Py_tp_members, members},
        {Py_tp_doc, "What an operation is to do, the same for every name and tensor; see ``describe``."},
        {0, NULL}};
    PyType_Spec spec = {"horovod._core.Request", sizeof(Request), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    request_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return request_type ? PyModule_AddType(module, request_type) : -1;
}

/* ---- submissions ----------------------------------------------------------------------------------- */

static int read_splits(struct held_tensors *held, PyObject *sequence)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return -1;
    held->splits = calloc((size_t)count + 1, sizeof *held->splits);
    held->split_count = count;
    if (!held->splits) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PySequence_GetItem(sequence, i);
        held->splits[i] = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Replaces the streams of the submitting thread by those that were noted when the values were computed. */
static int read_streams(struct held_tensors *held, PyObject *sequence, int32_t inputs)
{
    if (PySequence_Size(sequence) != inputs) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "there must be one stream for each of the %d inputs", (int)inputs);
        return -1;
    }
    for (int32_t i = 0; i < inputs; i++) {
        PyObject *number = PySequence_GetItem(sequence, i);
        void *stream = number && number != Py_None ? PyLong_AsVoidPtr(number) : held->views[i].stream;
        Py_XDECREF(number);
        if (PyErr_Occurred())
            return -1;
        held->views[i].stream = stream;
    }
    return 0;
}

int request_read(hvd_request *request, struct held_tensors *held, struct made_results *made,
                 const struct submission *submission)
{
    if (Py_TYPE(submission->request) != request_type) {
        PyErr_Format(PyExc_TypeError, "the request must be made by _core.describe, not %R",
                     Py_TYPE(submission->request));
        return -1;
    }
    const Request *described = (Request *)submission->request;
    *request = described->request;
    if (read_name(submission->name, &request->name) ||
        hold_tensors(held, request->operation, described->results > 0, submission->inputs,
                     submission->outputs))
        return -1;
    /* There are either no outputs, or as many as inputs. */
    request->count = submission->outputs ? held->count / 2 : held->count;
    made->end = described->results * request->count;
    made->first = submission->outputs && made->end ? request->count : 0;
    if ((submission->splits && read_splits(held, submission->splits)) ||
        (submission->streams && read_streams(held, submission->streams, request->count))) {
        held_tensors_release(held);
        return -1;
    }
    request->splits = held->splits;
    return 0;
}

/* The lists of a request. The engine copies them, so they are needed only during the call. */
struct lists {
    hvd_tensor *tensors;
    void **streams;
};

/* Returns false if memory ran out. */
static bool make_lists(struct lists *lists, const struct held_tensors *held)
{
    const struct tensor_view *views = held->views;
    size_t count = (size_t)held->count, same = 1;
    while (same < count && views[same].stream == views[0].stream &&
           views[same].tensor.device_id == views[0].tensor.device_id)
        same++;
    bool one_stream = same >= count; /* of one device, as always on the CPU */
    if (!lists->tensors)
        lists->tensors = reallocarray(NULL, count, sizeof *lists->tensors);
    if (!one_stream)
        lists->streams = reallocarray(NULL, count, sizeof *lists->streams);
    if (!lists->tensors || (!one_stream && !lists->streams))
        return false;
    for (size_t i = 0; i < count; i++) {
        lists->tensors[i] = views[i].tensor;
        if (!one_stream)
            lists->streams[i] = views[i].stream;
    }
    return true;
}

int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held, hvd_handle **handle)
{
    hvd_tensor few[8];
    hvd_status status = {.code = HVD_OUT_OF_MEMORY, .text = "out of memory for the list of tensors"};
    hvd_code code = HVD_OUT_OF_MEMORY;
    int32_t size = held->splits ? hvd_process_set_ranks(context, request->process_set, NULL, 0) : -1;
    if (size >= 0 &&
        held->split_count != size) { /* if there is no such set, the engine refuses the request */
        PyErr_Format(PyExc_ValueError, "alltoall: %zd splits for %d ranks; there must be one for each",
                     held->split_count, (int)size);
        held_tensors_release(held);
        return -1;
    }
    struct lists lists = {.tensors = (size_t)held->count <= sizeof few / sizeof *few ? few : NULL};
    if (make_lists(&lists, held)) {
        request->inputs = lists.tensors;
        request->outputs = held->count > request->count ? lists.tensors + request->count : NULL;
        request->stream = held->count ? held->views[0].stream : NULL;
        request->streams = lists.streams;
        code = hvd_submit(context, request, handle, &status);
    }
    if (lists.tensors != few)
        free(lists.tensors);
    free(lists.streams);
    if (!code)
        return 0;
    held_tensors_release(held);
    raise_status(&status);
    return -1;
}
