/* request.c - see request.h. */
#include "bind/request.h"

#include "bind/errors.h"

#include <stdlib.h>
#include <string.h>

/* ---- tensors --------------------------------------------------------------------------------------- */

void held_tensors_release(struct held_tensors *held)
{
    struct held_tensors own = *held;
    *held = (struct held_tensors){0}; /* the end of a tensor may run Python, and come back here */
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

bool held_tensors_touch(const struct held_tensors *held, const void *memory, size_t bytes)
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
        Py_XDECREF(object); /* the view keeps what it needs */
        if (failed)
            return -1;
        held->count++;
    }
    return 0;
}

/* As the column `results` of operations.def, which is the engine's own; horovod.h says it in words. */
static bool makes_results(hvd_operation operation)
{
    return operation == HVD_ALLGATHER || operation == HVD_REDUCESCATTER || operation == HVD_ALLTOALL;
}

int32_t request_results(const hvd_request *request)
{
    if (request->operation == HVD_ALLTOALL)
        return 2; /* the rows, and how many came from each rank */
    return makes_results(request->operation) ? request->count : 0;
}

/* Holds inputs, then outputs; outputs None: the operation writes to its inputs, unless it makes its results.
 */
static int hold_tensors(struct held_tensors *held, hvd_operation operation, PyObject *inputs,
                        PyObject *outputs)
{
    Py_ssize_t in = PySequence_Size(inputs);
    Py_ssize_t out = outputs == Py_None ? 0 : PySequence_Size(outputs);
    if (in < 0 || out < 0)
        return -1;
    if (outputs != Py_None && out != in) {
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
    role.written = outputs == Py_None && !makes_results(operation);
    int failed = hold_sequence(held, inputs, in, role);
    role.written = 1;
    if (failed || hold_sequence(held, outputs, out, role)) {
        held_tensors_release(held);
        return -1;
    }
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------------- */

int read_int32(PyObject *object, int32_t *value)
{
    int overflow;
    long number = PyLong_AsLongAndOverflow(object, &overflow);
    if (number == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (overflow || number < INT32_MIN || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%S is neither a rank nor the id of a process set nor an operation",
                     object);
        return -1;
    }
    *value = (int32_t)number;
    return 0;
}

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

/* Whatever float() takes. */
static int read_factor(PyObject *object, const char *what, double *value)
{
    *value = PyFloat_AsDouble(object);
    if (*value != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_TypeError, "%s must be a number, not %R", what, Py_TYPE(object));
    return -1;
}

static int read_arguments(hvd_request *request, PyObject *const *arguments, Py_ssize_t count)
{
    if (count < REQUEST_ARGUMENTS || count > REQUEST_END) {
        PyErr_Format(PyExc_TypeError, "%d to %d arguments are needed, not %zd", REQUEST_ARGUMENTS,
                     REQUEST_END, count);
        return -1;
    }
    *request = (hvd_request){.struct_size = sizeof *request};
    /* In the order that request.h gives; 2 and 3 are inputs and outputs. */
    int32_t operation, reduction;
    if (read_int32(arguments[0], &operation) || read_name(arguments[1], &request->name) ||
        read_int32(arguments[4], &reduction) ||
        read_factor(arguments[5], "prescale_factor", &request->prescale) ||
        read_factor(arguments[6], "postscale_factor", &request->postscale) ||
        read_int32(arguments[7], &request->root) || read_int32(arguments[8], &request->process_set) ||
        read_int32(arguments[9], &request->priority))
        return -1;
    request->operation = (hvd_operation)operation;
    request->reduction = (hvd_reduction)reduction;
    request->grouped = PyObject_IsTrue(arguments[10]);
    return request->grouped < 0 ? -1 : 0;
}

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

/* One for each rank. */
static int check_splits(hvd_context *context, const hvd_request *request, const struct held_tensors *held)
{
    int32_t size = held->splits ? hvd_process_set_ranks(context, request->process_set, NULL, 0) : -1;
    if (size < 0 || held->split_count == size) /* the engine says that there is no such set */
        return 0;
    PyErr_Format(PyExc_ValueError, "alltoall: %zd splits for %d ranks; there must be one for each",
                 held->split_count, (int)size);
    return -1;
}

int request_read(hvd_request *request, struct held_tensors *held, PyObject *const *arguments,
                 Py_ssize_t count)
{
    if (read_arguments(request, arguments, count) ||
        hold_tensors(held, request->operation, arguments[2], arguments[3]))
        return -1;
    /* With outputs there are as many of them as inputs. */
    request->count = arguments[3] == Py_None ? held->count : held->count / 2;
    if (count > REQUEST_SPLITS && arguments[REQUEST_SPLITS] != Py_None &&
        read_splits(held, arguments[REQUEST_SPLITS])) {
        held_tensors_release(held);
        return -1;
    }
    request->splits = held->splits;
    return 0;
}

/* The engine copies the list of tensors, so it lives for this call only. */
int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held, hvd_handle **handle)
{
    hvd_tensor few[8];
    hvd_status status = {HVD_OUT_OF_MEMORY, "out of memory for the list of tensors"};
    hvd_code code = HVD_OUT_OF_MEMORY;
    if (check_splits(context, request, held)) {
        held_tensors_release(held);
        return -1;
    }
    bool fits = (size_t)held->count <= sizeof few / sizeof *few;
    hvd_tensor *list = fits ? few : malloc((size_t)held->count * sizeof *list);
    if (list) {
        for (int32_t i = 0; i < held->count; i++)
            list[i] = held->views[i].tensor;
        request->inputs = list;
        request->outputs = held->count > request->count ? list + request->count : NULL;
        code = hvd_submit(context, request, handle, &status);
    }
    if (!fits)
        free(list);
    if (!code)
        return 0;
    held_tensors_release(held);
    raise_status(&status);
    return -1;
}
