/* operation.c - see operation.h. An Operation keeps the Python tensors until it is done, since the engine
 * works on their memory; one that is dropped before is put aside and swept at a later call. Waits release the
 * GIL. */
#include "operation.h"

#include "errors.h"
#include "result.h"
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

/* Ctrl-C is looked for this often, in seconds, while a thread waits. */
#define WAIT_SLICE 0.2

/* The tensors of one request: inputs, then outputs where they are given. */
struct tensors {
    int32_t inputs, outputs;
    struct tensor_view *views;
    hvd_tensor *list;
    int64_t *splits; /* alltoall, or NULL */
    int32_t results; /* outputs of the engine's */
};

typedef struct Operation {
    PyObject_HEAD hvd_handle *handle;
    struct tensors tensors;
} Operation;

struct abandoned {
    hvd_handle *handle;
    struct tensors tensors;
    struct abandoned *next;
};

static PyTypeObject *operation_type;
static struct abandoned *abandoned_operations;

/* ---- tensors ------------------------------------------------------------------------------------- */

static void tensors_free(struct tensors *tensors)
{
    for (int i = 0; tensors->views && i < tensors->inputs + tensors->outputs; i++)
        tensor_view_fini(&tensors->views[i]);
    free(tensors->views);
    free(tensors->list);
    free(tensors->splits);
    *tensors = (struct tensors){0};
}

static int take_sequence(struct tensors *tensors, int first, int32_t count, PyObject *sequence, int writable)
{
    for (int32_t i = 0; i < count; i++) {
        PyObject *object = PySequence_GetItem(sequence, i);
        int failed = object ? tensor_view_init(&tensors->views[first + i], object, writable) : -1;
        Py_XDECREF(object); /* the view keeps it */
        if (failed)
            return -1;
        tensors->list[first + i] = tensors->views[first + i].tensor;
    }
    return 0;
}

static int tensors_init(struct tensors *tensors, PyObject *inputs, PyObject *outputs, int writes_inputs)
{
    Py_ssize_t in = PySequence_Size(inputs);
    Py_ssize_t out = outputs == Py_None ? 0 : PySequence_Size(outputs);
    if (in < 0 || out < 0)
        return -1;
    if (out && out != in) {
        PyErr_Format(PyExc_ValueError, "%zd inputs but %zd outputs", in, out);
        return -1;
    }
    tensors->inputs = (int32_t)in;
    tensors->outputs = (int32_t)out;
    tensors->views = calloc((size_t)(in + out) + 1, sizeof *tensors->views);
    tensors->list = calloc((size_t)(in + out) + 1, sizeof *tensors->list);
    if (!tensors->views || !tensors->list) {
        PyErr_NoMemory();
        tensors_free(tensors);
        return -1;
    }
    if (take_sequence(tensors, 0, tensors->inputs, inputs, writes_inputs && !out) ||
        take_sequence(tensors, tensors->inputs, tensors->outputs, outputs, 1)) {
        tensors_free(tensors);
        return -1;
    }
    return 0;
}

/* How many outputs are the engine's. */
static int32_t count_results(const hvd_request *request)
{
    if (request->operation == HVD_ALLTOALL)
        return 2;
    int makes_results = request->operation == HVD_ALLGATHER || request->operation == HVD_REDUCESCATTER;
    return makes_results ? request->count : 0;
}

/* One number for each rank. */
static int splits_init(struct tensors *tensors, PyObject *sequence, int32_t size)
{
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0)
        return -1;
    if (count != size) {
        PyErr_Format(PyExc_ValueError, "%zd splits for %d ranks; there must be one for each", count,
                     (int)size);
        return -1;
    }
    tensors->splits = calloc((size_t)size, sizeof *tensors->splits);
    if (!tensors->splits) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PySequence_GetItem(sequence, i);
        tensors->splits[i] = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ---- requests ------------------------------------------------------------------------------------ */

enum { ARGUMENTS = 11 }; /* and the splits, if there are any */

static int request_init(const hvd_context *context, hvd_request *request, struct tensors *tensors,
                        PyObject *const *arguments, Py_ssize_t count)
{
    if (count != ARGUMENTS && count != ARGUMENTS + 1) {
        PyErr_Format(PyExc_TypeError, "%d or %d arguments are needed", ARGUMENTS, ARGUMENTS + 1);
        return -1;
    }
    *request = (hvd_request){.struct_size = sizeof *request};
    request->operation = (hvd_operation)PyLong_AsLong(arguments[0]);
    request->name = arguments[1] == Py_None ? NULL : PyUnicode_AsUTF8AndSize(arguments[1], NULL);
    request->reduction = (hvd_reduction)PyLong_AsLong(arguments[4]);
    request->prescale = PyFloat_AsDouble(arguments[5]);
    request->postscale = PyFloat_AsDouble(arguments[6]);
    request->root = (int32_t)PyLong_AsLong(arguments[7]);
    request->process_set = (int32_t)PyLong_AsLong(arguments[8]);
    request->priority = (int32_t)PyLong_AsLong(arguments[9]);
    request->grouped = PyObject_IsTrue(arguments[10]);
    if (PyErr_Occurred())
        return -1;
    request->count = (int32_t)PySequence_Size(arguments[2]);
    int32_t results = count_results(request);
    if (tensors_init(tensors, arguments[2], arguments[3], !results))
        return -1;
    if (count > ARGUMENTS && arguments[ARGUMENTS] != Py_None &&
        splits_init(tensors, arguments[ARGUMENTS], hvd_get_placement(context).size)) {
        tensors_free(tensors);
        return -1;
    }
    tensors->results = results;
    request->splits = tensors->splits;
    request->inputs = tensors->list;
    request->outputs = tensors->outputs ? tensors->list + tensors->inputs : NULL;
    return 0;
}

static PyObject *take_results(hvd_handle *handle, int32_t count)
{
    PyObject *list = PyList_New(count);
    for (int32_t i = 0; list && i < count; i++) {
        hvd_tensor output;
        hvd_status status;
        PyObject *result =
            hvd_output_take(handle, i, &output, &status) ? raise_status(&status) : result_new(&output);
        if (!result || PyList_SetItem(list, i, result)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Waits in slices, so that Ctrl-C is heard: 1 done, 0 time is over, -1 an exception is set. */
static int wait_for(hvd_handle *handle, double seconds)
{
    hvd_status status;
    hvd_code code;
    do {
        double slice = seconds < 0 || seconds > WAIT_SLICE ? WAIT_SLICE : seconds;
        Py_BEGIN_ALLOW_THREADS;
        code = hvd_wait(handle, slice, &status);
        Py_END_ALLOW_THREADS;
        if (PyErr_CheckSignals())
            return -1;
        if (seconds >= 0)
            seconds -= slice;
    } while (code == HVD_IN_PROGRESS && (seconds < 0 || seconds > 0));
    if (code == HVD_IN_PROGRESS)
        return 0;
    if (code)
        raise_status(&status);
    return code ? -1 : 1;
}

/* ---- operations nobody waits for ----------------------------------------------------------------- */

void operation_sweep(int all)
{
    struct abandoned **at = &abandoned_operations;
    while (*at) {
        struct abandoned *one = *at;
        if (!all && hvd_test(one->handle, NULL) == HVD_IN_PROGRESS) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        hvd_release(one->handle);
        tensors_free(&one->tensors);
        free(one);
    }
}

static void let_go(hvd_handle *handle, struct tensors *tensors)
{
    struct abandoned *one = hvd_test(handle, NULL) == HVD_IN_PROGRESS ? malloc(sizeof *one) : NULL;
    if (one) {
        *one = (struct abandoned){handle, *tensors, abandoned_operations};
        abandoned_operations = one;
        return;
    }
    hvd_release(handle);
    tensors_free(tensors);
}

/* ---- the type ------------------------------------------------------------------------------------ */

static void operation_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Operation *operation = (Operation *)self;
    if (operation->handle)
        let_go(operation->handle, &operation->tensors);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    wait_doc,
    "wait(seconds=-1) -> bool\n\nWaits until the operation is done, at most so long (negative: for ever); "
    "whether it is. Raises what went wrong.");

static PyObject *operation_wait(PyObject *self, PyObject *args)
{
    double seconds = -1;
    if (!PyArg_ParseTuple(args, "|d:wait", &seconds))
        return NULL;
    int done = wait_for(((Operation *)self)->handle, seconds);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

PyDoc_STRVAR(done_doc, "done() -> bool\n\nWhether it is done, well or not; never blocks.");

static PyObject *operation_done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(hvd_test(((Operation *)self)->handle, NULL) != HVD_IN_PROGRESS);
}

PyDoc_STRVAR(results_doc,
             "results() -> list[Result]\n\nThe outputs of an operation that makes its own; once only.");

static PyObject *operation_results(PyObject *self, PyObject *unused)
{
    (void)unused;
    const Operation *operation = (Operation *)self;
    return take_results(operation->handle, operation->tensors.results);
}

static PyMethodDef operation_methods[] = {
    {"wait", operation_wait, METH_VARARGS, wait_doc},
    {"done", operation_done, METH_NOARGS, done_doc},
    {"results", operation_results, METH_NOARGS, results_doc},
    {NULL, NULL, 0, NULL},
};

int operation_init_module(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, operation_dealloc}, {Py_tp_methods, operation_methods}, {0, NULL}};
    PyType_Spec spec = {"horovod._core.Operation", sizeof(Operation), 0, Py_TPFLAGS_DEFAULT, slots};
    operation_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!operation_type)
        return -1;
    Py_INCREF(operation_type);
    return PyModule_AddObject(module, "Operation", (PyObject *)operation_type);
}

PyObject *operation_submit(hvd_context *context, PyObject *const *arguments, Py_ssize_t count)
{
    hvd_request request;
    hvd_status status;
    operation_sweep(0);
    allocfunc allocate = (allocfunc)PyType_GetSlot(operation_type, Py_tp_alloc);
    Operation *operation = (Operation *)allocate(operation_type, 0);
    if (!operation)
        return NULL;
    if (request_init(context, &request, &operation->tensors, arguments, count)) {
        Py_DECREF(operation);
        return NULL;
    }
    if (hvd_submit(context, &request, &operation->handle, &status)) {
        tensors_free(&operation->tensors);
        Py_DECREF(operation);
        return raise_status(&status);
    }
    return (PyObject *)operation;
}

/* The caller drives the engine from the submission on: hvd_run's way, but with an ear for Ctrl-C. */
PyObject *operation_run(hvd_context *context, PyObject *const *arguments, Py_ssize_t count)
{
    hvd_request request;
    hvd_status status;
    hvd_handle *handle;
    struct tensors tensors = {0};
    operation_sweep(0);
    if (request_init(context, &request, &tensors, arguments, count))
        return NULL;
    request.waits = 1;
    if (hvd_submit(context, &request, &handle, &status)) {
        tensors_free(&tensors);
        return raise_status(&status);
    }
    int done = wait_for(handle, -1);
    PyObject *answer = NULL;
    if (done > 0 && tensors.results) {
        answer = take_results(handle, tensors.results);
    } else if (done > 0) {
        Py_INCREF(Py_None);
        answer = Py_None;
    }
    let_go(handle, &tensors);
    return answer;
}
