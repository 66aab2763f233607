/* operation.c - submits operations, waits for them, and calls their callbacks. Any Python thread calls these
 * functions with the GIL held, except for call_all_back, which the engine calls on any thread. A Handle keeps
 * the memory of its tensors until the operation has finished; in_flight_drop keeps it if the Handle is freed
 * earlier. */
#include "bind/operation.h"

#include "bind/arguments.h"
#include "bind/blocking.h"
#include "bind/context.h"
#include "bind/errors.h"
#include "bind/in_flight.h"
#include "bind/request.h"
#include "bind/result.h"
#include "horovod.h"

#include <math.h>
#include <stdlib.h>

/* ---- submitting ------------------------------------------------------------------------------------- */

/* How often a waiting thread checks for signals and for a shutdown, in seconds. */
#define WAIT_SLICE 0.2

typedef struct {
    PyObject_HEAD struct in_flight operation;
    PyObject *finish;    /* makes the outcome from a list of tensors; NULL if it was made or is None */
    PyObject *written;   /* that list; NULL if it is that of the engine's results, not fetched yet */
    PyObject *outcome;   /* the return value of wait; NULL if it is not made yet or None */
    PyObject *callbacks; /* a list; NULL before the first one is added and after they are called */
} Handle;

static PyTypeObject *handle_type;

/* These are the parameters of submit; run has those before FINISH. */
enum { REQUEST, NAME, INPUTS, OUTPUTS, SPLITS, STREAMS, FINISH, WAITS };

/* Returns 0, or -1 with an exception set. */
static int submit(PyObject *const *values, int waits, struct in_flight *operation)
{
    struct submission submission = {values[REQUEST],
                                    values[NAME],
                                    values[INPUTS],
                                    argument_or_null(values[OUTPUTS]),
                                    argument_or_null(values[SPLITS]),
                                    argument_or_null(values[STREAMS])};
    hvd_request request;
    in_flight_reclaim();
    if (!context_current() || request_read(&request, &operation->held, &operation->made, &submission))
        return -1;
    request.waits = waits;
    /* Reading ran Python code, which may have shut Horovod down. From here on the context stays valid. */
    hvd_context *context = context_current();
    if (!context) {
        held_tensors_release(&operation->held);
        return -1;
    }
    if (request_submit(context, &request, &operation->held, &operation->handle))
        return -1;
    in_flight_enter(operation);
    return 0;
}

PyObject *operation_in_flight(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    unsigned long long address = 0;
    Py_ssize_t bytes = 0;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "Kn:in_flight", &address, &bytes))
        return NULL;
    const struct in_flight *operation = in_flight_find((const void *)(uintptr_t)address, (size_t)bytes);
    if (!operation || hvd_test(operation->handle, &status) != HVD_IN_PROGRESS)
        Py_RETURN_NONE;
    return PyUnicode_FromString(status.text);
}

/* ---- waiting --------------------------------------------------------------------------------------- */

static hvd_code wait_slice(hvd_handle *handle, double seconds, hvd_status *status)
{
    if (hvd_test(handle, NULL) != HVD_IN_PROGRESS) /* this call makes no text */
        return hvd_test(handle, status);
    if (blocking_begin()) {
        hvd_code code = hvd_wait(handle, seconds, status);
        blocking_end();
        return code;
    }
    blocking_pause(); /* the shutdown in another thread ends the operation */
    return hvd_test(handle, status);
}

/* Returns 0 with `status` set if the operation has finished, or -1 with an exception set if the handler of a
 * signal has raised or `seconds` (negative: no limit) have passed. */
static int wait_until_over(hvd_handle *handle, double seconds, hvd_status *status)
{
    bool limited = seconds >= 0;
    double left = seconds;
    while (wait_slice(handle, limited && left < WAIT_SLICE ? left : WAIT_SLICE, status) == HVD_IN_PROGRESS) {
        if (PyErr_CheckSignals())
            return -1;
        left -= WAIT_SLICE;
        if (limited && left <= 0) {
            PyErr_Format(PyExc_TimeoutError, "%s after %d ms", status->text, (int)(seconds * 1000));
            return -1;
        }
    }
    return 0;
}

/* Returns 0, or -1 with an exception set. */
static int wait_for(hvd_handle *handle, double seconds)
{
    hvd_status status;
    if (hvd_test(handle, NULL) == HVD_OK) /* true of most operations when a program waits for many */
        return 0;
    if (wait_until_over(handle, seconds, &status))
        return -1;
    if (status.code)
        raise_status(&status);
    return status.code ? -1 : 0;
}

/* ---- the type -------------------------------------------------------------------------------------- */

/* A tensor may refer to the Handle of its own operation. The garbage collector must not see the owners of
 * memory that the engine still works on, because it would clear them, which frees the memory. */
static int handle_traverse(PyObject *self, visitproc visit, void *arg)
{
    Handle *handle = (Handle *)self;
    Py_VISIT(Py_TYPE(self));
    if (in_flight_is_over(&handle->operation)) {
        int stop = held_tensors_traverse(&handle->operation.held, visit, arg);
        if (stop)
            return stop;
    }
    Py_VISIT(handle->finish);
    Py_VISIT(handle->written);
    Py_VISIT(handle->outcome);
    Py_VISIT(handle->callbacks);
    return 0;
}

static int handle_clear(PyObject *self)
{
    Handle *handle = (Handle *)self;
    if (in_flight_is_over(&handle->operation))
        held_tensors_release(&handle->operation.held);
    Py_CLEAR(handle->finish);
    Py_CLEAR(handle->written);
    Py_CLEAR(handle->outcome);
    Py_CLEAR(handle->callbacks);
    return 0;
}

static void handle_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Handle *handle = (Handle *)self;
    PyObject_GC_UnTrack(self);
    if (handle->operation.handle)
        in_flight_drop(&handle->operation);
    handle->operation = (struct in_flight){0};
    handle_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Returns 0, or -1 with an exception set. */
static int make_outcome(Handle *self)
{
    if (!self->written) /* the engine returns its results once, but this call may fail and be repeated */
        self->written =
            result_list(self->operation.handle, self->operation.made.first, self->operation.made.end);
    if (!self->written)
        return -1;
    PyObject *tensors = self->written, *finish = self->finish;
    Py_INCREF(tensors); /* the call runs Python code, in which another thread may finish first */
    Py_INCREF(finish);
    PyObject *outcome = PyObject_CallFunctionObjArgs(finish, tensors, NULL);
    Py_DECREF(finish);
    Py_DECREF(tensors);
    if (!outcome)
        return -1;
    Py_CLEAR(self->finish);
    Py_CLEAR(self->written);
    Py_XDECREF(self->outcome);
    self->outcome = outcome;
    return 0;
}

/* An operation in place writes its result to the memory that the tensor had when it was submitted. Returns -1
 * with an exception set if a tensor has other memory now and therefore does not contain the result. */
static int check_written(const Handle *self)
{
    const struct held_tensors *held = &self->operation.held;
    if (!self->written || PySequence_Size(self->written) != held->count)
        return 0; /* the outputs are new, so no program has seen them; or this was checked before */
    for (int32_t i = 0; i < held->count; i++) {
        PyObject *tensor = PySequence_GetItem(self->written, i);
        bool stale = tensor && tensor_view_is_stale(&held->views[i], tensor);
        Py_XDECREF(tensor);
        if (stale)
            PyErr_Format(
                PyExc_RuntimeError,
                "tensor %d does not have the result: it was given other memory (x.data = y, x.set_(y), "
                "model.half()) while an operation in place was in flight on it; synchronize its "
                "handle first",
                (int)i);
        if (!tensor || stale)
            return -1;
    }
    return 0;
}

static PyObject *handle_wait(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    Handle *self = (Handle *)object;
    double seconds = count ? PyFloat_AsDouble(arguments[0]) : -1;
    if (count > 1)
        return PyErr_Format(PyExc_TypeError, "wait() takes one argument at most, not %zd", count);
    if (isnan(seconds))
        return PyErr_Format(PyExc_ValueError, "wait() takes a number of seconds, not NaN");
    if ((count && PyErr_Occurred()) || wait_for(self->operation.handle, seconds))
        return NULL;
    if (check_written(self))
        return NULL;
    held_tensors_release(&self->operation.held);
    if (self->finish && make_outcome(self))
        return NULL;
    if (!self->outcome)
        Py_RETURN_NONE;
    Py_INCREF(self->outcome);
    return self->outcome;
}

static PyObject *handle_done(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(hvd_test(((Handle *)self)->operation.handle, NULL) != HVD_IN_PROGRESS);
}

/* Prints an exception that the function raises, because no caller could catch it. */
static void call_back(PyObject *function, PyObject *handle)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(function, handle, NULL);
    if (!answer)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(answer);
}

/* Is the function for hvd_on_done, which the engine calls on any thread, with or without the GIL. Releases
 * the engine's reference to the Handle. */
static void call_all_back(void *argument, const hvd_status *Py_UNUSED(status))
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Handle *self = argument;
    PyObject *callbacks = self->callbacks;
    self->callbacks = NULL; /* callbacks that are added later are called at once */
    for (Py_ssize_t i = 0; i < PyList_Size(callbacks); i++)
        call_back(PyList_GetItem(callbacks, i), argument);
    Py_DECREF(callbacks);
    Py_DECREF((PyObject *)self);
    PyGILState_Release(state);
}

static PyObject *handle_add_done_callback(PyObject *object, PyObject *function)
{
    Handle *self = (Handle *)object;
    hvd_status status;
    if (self->callbacks)
        return PyList_Append(self->callbacks, function) ? NULL : Py_BuildValue("");
    if (in_flight_is_over(&self->operation)) {
        call_back(function, object);
        Py_RETURN_NONE;
    }
    self->callbacks = PyList_New(0);
    if (!self->callbacks || PyList_Append(self->callbacks, function)) {
        Py_CLEAR(self->callbacks);
        return NULL;
    }
    Py_INCREF(object); /* the engine's reference */
    if (!hvd_on_done(self->operation.handle, call_all_back, self, &status))
        Py_RETURN_NONE;
    Py_DECREF(object);
    Py_CLEAR(self->callbacks);
    return raise_status(&status);
}

static PyObject *handle_joined_last(PyObject *self, PyObject *Py_UNUSED(unused))
{
    hvd_status status;
    int32_t rank;
    if (hvd_joined_last(((Handle *)self)->operation.handle, &rank, &status))
        return raise_status(&status);
    return PyLong_FromLong(rank);
}

static PyMethodDef handle_methods[] = {
    {"wait", METHOD(handle_wait), METH_FASTCALL,
     "wait($self, seconds=-1.0, /)\n--\n\n"
     "Wait for the operation and return its result; raise its error, or TimeoutError if it is still in "
     "progress after this many seconds (negative: no limit)."},
    {"done", handle_done, METH_NOARGS,
     "done($self, /)\n--\n\n"
     "Whether ``wait`` would return at once. Never blocks."},
    {"add_done_callback", handle_add_done_callback, METH_O,
     "add_done_callback($self, function, /)\n--\n\n"
     "Call function(handle) once when the operation has finished or failed. If it already has, this thread "
     "calls it at once; otherwise the thread that finishes it does, which waits for any operation or is the "
     "engine's own. The function may submit operations but must not wait for any. An exception that it "
     "raises is printed."},
    {"joined_last", handle_joined_last, METH_NOARGS,
     "joined_last($self, /)\n--\n\n"
     "The rank that joined last. The operation must be a join that has finished."},
    {NULL, NULL, 0, NULL},
};

int operation_init_module(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, SLOT(handle_dealloc)},
                           {Py_tp_traverse, SLOT(handle_traverse)},
                           {Py_tp_clear, SLOT(handle_clear)},
                           {Py_tp_methods, handle_methods},
                           {Py_tp_doc, "An operation in flight; see ``poll`` and ``synchronize``."},
                           {0, NULL}};
    PyType_Spec spec = {"horovod._core.Handle", sizeof(Handle), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    handle_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return handle_type ? PyModule_AddType(module, handle_type) : -1;
}

/* The operation that was submitted last mostly ends last, so the tests of the others return at once. Because
 * the loop runs backwards, the last failure that it stores is that of the first operation that failed. */
static int wait_backwards(PyObject *all, hvd_status *failure)
{
    for (Py_ssize_t i = PyTuple_Size(all) - 1; i >= 0; i--) {
        struct in_flight *operation = &((Handle *)PyTuple_GetItem(all, i))->operation;
        hvd_status status;
        if (wait_until_over(operation->handle, -1, &status))
            return -1;
        held_tensors_release(&operation->held);
        if (status.code)
            *failure = status;
    }
    return 0;
}

PyObject *operation_wait_all(PyObject *Py_UNUSED(module), PyObject *operations)
{
    hvd_status failure = {0};
    PyObject *all = PySequence_Tuple(operations); /* a tuple, which no other thread can change */
    int failed = !all;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_Size(all); i++) {
        failed = Py_TYPE(PyTuple_GetItem(all, i)) != handle_type;
        if (failed)
            PyErr_SetString(PyExc_TypeError, "wait takes a sequence of Handle");
    }
    failed = failed || wait_backwards(all, &failure);
    Py_XDECREF(all);
    if (failed)
        return NULL;
    return failure.code ? raise_status(&failure) : Py_BuildValue("");
}

PyObject *operation_submit(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords)
{
    static struct parameters parameters = {
        .function = "submit",
        .required = 3,
        .positional = 3,
        .names = {"request", "name", "inputs", "outputs", "splits", "streams", "finish", "waits"}};
    PyObject *values[PARAMETERS_MOST];
    if (arguments_sort(&parameters, arguments, count, keywords, values))
        return NULL;
    Handle *self = (Handle *)PyType_GenericAlloc(handle_type, 0);
    if (!self || submit(values, values[WAITS] == Py_True, &self->operation)) {
        Py_XDECREF(self);
        return NULL;
    }
    self->finish = argument_or_null(values[FINISH]);
    Py_XINCREF(self->finish);
    /* The operation writes to its outputs, or to its inputs if it runs in place. */
    if (self->finish && self->operation.made.first == self->operation.made.end) {
        self->written = argument_or_null(values[OUTPUTS]);
        self->written = self->written ? self->written : values[INPUTS];
        Py_INCREF(self->written);
    }
    return (PyObject *)self;
}

PyObject *operation_run(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count,
                        PyObject *keywords)
{
    static struct parameters parameters = {
        .function = "run",
        .required = 3,
        .positional = 3,
        .names = {"request", "name", "inputs", "outputs", "splits", "streams"}};
    PyObject *values[PARAMETERS_MOST];
    struct in_flight operation = {0};
    PyObject *answer = NULL;
    if (arguments_sort(&parameters, arguments, count, keywords, values) || submit(values, 1, &operation))
        return NULL;
    /* A signal may end the wait but not the operation. Then in_flight_drop keeps its tensors. */
    if (!wait_for(operation.handle, -1))
        answer = operation.made.end > operation.made.first
                     ? result_list(operation.handle, operation.made.first, operation.made.end)
                     : Py_BuildValue("");
    in_flight_drop(&operation);
    return answer;
}
