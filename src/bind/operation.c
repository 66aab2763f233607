/* operation.c - see operation.h. An Operation keeps the Python tensors until the engine is done with their
 * memory; one that is dropped earlier is set aside and let go at a later call from Python. Waits run without
 * the GIL. */
#include "bind/operation.h"

#include "bind/errors.h"
#include "bind/request.h"
#include "bind/result.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* How often a waiting thread looks for Ctrl-C and for a shutdown, in seconds. */
#define WAIT_SLICE 0.2

/* How often a thread looks whether a shutdown in another thread is over, in nanoseconds. */
#define SHUTDOWN_POLL 2000000

struct in_flight {
    hvd_handle *handle;
    struct held_tensors held;
    int32_t results; /* how many outputs are the engine's */
};

typedef struct {
    PyObject_HEAD struct in_flight operation;
} Operation;

static PyTypeObject *operation_type;

/* ---- operations that nobody waits for any more ------------------------------------------------------ */

struct dropped {
    struct in_flight operation;
    struct dropped *next;
};

static struct dropped *dropped_operations;

static void in_flight_release(struct in_flight *operation)
{
    hvd_release(operation->handle);
    held_tensors_release(&operation->held);
}

static void sweep(void)
{
    struct dropped **at = &dropped_operations;
    while (*at) {
        struct dropped *dropped = *at;
        if (hvd_test(dropped->operation.handle, NULL) == HVD_IN_PROGRESS) {
            at = &dropped->next;
            continue;
        }
        *at = dropped->next;
        in_flight_release(&dropped->operation);
        free(dropped);
    }
}

/* Without memory to set it aside the tensors stay for good, which harms nobody. */
static void let_go(struct in_flight *operation)
{
    if (hvd_test(operation->handle, NULL) != HVD_IN_PROGRESS) {
        in_flight_release(operation);
        return;
    }
    struct dropped *dropped = malloc(sizeof *dropped);
    if (dropped) {
        *dropped = (struct dropped){*operation, dropped_operations};
        dropped_operations = dropped;
    }
}

static int begin(hvd_context *context, PyObject *const *arguments, Py_ssize_t count, int waits,
                 struct in_flight *operation)
{
    hvd_request request;
    if (request_read(context, &request, &operation->held, arguments, count))
        return -1;
    request.waits = waits;
    operation->results = request_results(&request);
    return request_submit(context, &request, &operation->held, &operation->handle);
}

/* ---- waiting and shutting down ---------------------------------------------------------------------- */

/* No thread may be inside the engine when its context goes. Both change only with the GIL held, except that
 * a waiter leaves without it. */
static bool shutting_down;
static atomic_int threads_in_wait;

static void pause_thread(void)
{
    nanosleep(&(struct timespec){.tv_nsec = SHUTDOWN_POLL}, NULL);
}

int operation_enter(void)
{
    if (shutting_down) {
        PyErr_SetString(PyExc_ValueError, "Horovod is being shut down by another thread");
        return -1;
    }
    atomic_fetch_add(&threads_in_wait, 1);
    return 0;
}

void operation_leave(void)
{
    atomic_fetch_sub(&threads_in_wait, 1);
}

static hvd_code wait_slice(hvd_handle *handle, double seconds, hvd_status *status)
{
    hvd_code code = hvd_test(handle, status);
    if (code != HVD_IN_PROGRESS)
        return code;
    bool enter = !shutting_down;
    if (enter)
        atomic_fetch_add(&threads_in_wait, 1);
    PyThreadState *thread = PyEval_SaveThread();
    if (enter) {
        code = hvd_wait(handle, seconds, status);
        atomic_fetch_sub(&threads_in_wait, 1);
    } else {
        pause_thread();
        code = hvd_test(handle, status);
    }
    PyEval_RestoreThread(thread);
    return code;
}

/* 1: it is over, as `status` says. 0: time is over. -1: a signal's handler has raised. seconds < 0: for ever.
 */
static int wait_until_over(hvd_handle *handle, double seconds, hvd_status *status)
{
    hvd_code code;
    do {
        double slice = seconds < 0 || seconds > WAIT_SLICE ? WAIT_SLICE : seconds;
        code = wait_slice(handle, slice, status);
        if (PyErr_CheckSignals())
            return -1;
        if (seconds >= 0)
            seconds -= slice;
    } while (code == HVD_IN_PROGRESS && (seconds < 0 || seconds > 0));
    return code != HVD_IN_PROGRESS;
}

/* 1: done. 0: time is over. -1: an exception is set. */
static int wait_for(hvd_handle *handle, double seconds)
{
    hvd_status status;
    int over = wait_until_over(handle, seconds, &status);
    if (over <= 0 || !status.code)
        return over;
    raise_status(&status);
    return -1;
}

void operation_shut_down(hvd_context *context)
{
    shutting_down = true;
    Py_BEGIN_ALLOW_THREADS;
    while (atomic_load(&threads_in_wait) > 0)
        pause_thread();
    hvd_shutdown(context);
    Py_END_ALLOW_THREADS;
    shutting_down = false;
    sweep();
}

void operation_forget_threads(void)
{
    shutting_down = false;
    atomic_store(&threads_in_wait, 0);
}

/* ---- the type -------------------------------------------------------------------------------------- */

static void operation_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct in_flight *operation = &((Operation *)self)->operation;
    if (operation->handle)
        let_go(operation);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(wait_doc, "wait($self, seconds=-1.0, /)\n--\n\n"
                       "Wait until the operation is done, at most so long (negative: for ever), and return "
                       "whether it is. Raises what went wrong.");

static PyObject *operation_wait(PyObject *self, PyObject *arguments)
{
    double seconds = -1;
    if (!PyArg_ParseTuple(arguments, "|d:wait", &seconds))
        return NULL;
    struct in_flight *operation = &((Operation *)self)->operation;
    int done = wait_for(operation->handle, seconds);
    if (done > 0)
        held_tensors_release(&operation->held);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

PyDoc_STRVAR(done_doc, "done($self, /)\n--\n\nWhether the operation is over, well or not. Never blocks.");

static PyObject *operation_done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(hvd_test(((Operation *)self)->operation.handle, NULL) != HVD_IN_PROGRESS);
}

PyDoc_STRVAR(results_doc, "results($self, /)\n--\n\n"
                          "The results of a finished allgather, a list of Result; to be asked for once.");

static PyObject *operation_results(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct in_flight *operation = &((Operation *)self)->operation;
    return result_list(operation->handle, operation->results);
}

PyDoc_STRVAR(joined_last_doc, "joined_last($self, /)\n--\n\n"
                              "The rank that joined last; of a finished join.");

static PyObject *operation_joined_last(PyObject *self, PyObject *unused)
{
    (void)unused;
    hvd_status status;
    int32_t rank;
    if (hvd_joined_last(((Operation *)self)->operation.handle, &rank, &status))
        return raise_status(&status);
    return PyLong_FromLong(rank);
}

static PyMethodDef operation_methods[] = {
    {"wait", operation_wait, METH_VARARGS, wait_doc},
    {"done", operation_done, METH_NOARGS, done_doc},
    {"results", operation_results, METH_NOARGS, results_doc},
    {"joined_last", operation_joined_last, METH_NOARGS, joined_last_doc},
    {NULL, NULL, 0, NULL},
};

int operation_init_module(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, SLOT(operation_dealloc)}, {Py_tp_methods, operation_methods}, {0, NULL}};
    PyType_Spec spec = {"horovod._core.Operation", sizeof(Operation), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    operation_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!operation_type)
        return -1;
    Py_INCREF(operation_type);
    return PyModule_AddObject(module, "Operation", (PyObject *)operation_type);
}

/* What is submitted last mostly ends last: with it in hand the others are only looked at. */
static int wait_backwards(PyObject *all, hvd_status *failure)
{
    for (Py_ssize_t i = PyTuple_Size(all) - 1; i >= 0; i--) {
        struct in_flight *operation = &((Operation *)PyTuple_GetItem(all, i))->operation;
        hvd_status status;
        if (wait_until_over(operation->handle, -1, &status) < 0)
            return -1;
        held_tensors_release(&operation->held);
        if (status.code)
            *failure = status;
    }
    return 0;
}

static int check_operations(PyObject *all)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(all); i++) {
        if (Py_TYPE(PyTuple_GetItem(all, i)) != operation_type) {
            PyErr_SetString(PyExc_TypeError, "wait takes a sequence of Operation");
            return -1;
        }
    }
    return 0;
}

PyObject *operation_wait_all(PyObject *operations)
{
    hvd_status failure = {0};
    PyObject *all = PySequence_Tuple(operations); /* no other thread changes it */
    int failed = !all || check_operations(all) || wait_backwards(all, &failure);
    Py_XDECREF(all);
    if (failed)
        return NULL;
    return failure.code ? raise_status(&failure) : Py_BuildValue("");
}

PyObject *operation_submit(hvd_context *context, PyObject *const *arguments, Py_ssize_t count)
{
    sweep();
    Operation *self = (Operation *)PyType_GenericAlloc(operation_type, 0);
    if (self && begin(context, arguments, count, 0, &self->operation))
        Py_CLEAR(self);
    return (PyObject *)self;
}

PyObject *operation_run(hvd_context *context, PyObject *const *arguments, Py_ssize_t count)
{
    struct in_flight operation = {0};
    PyObject *answer = NULL;
    sweep();
    if (begin(context, arguments, count, 1, &operation))
        return NULL;
    if (wait_for(operation.handle, -1) > 0) {
        int32_t results = operation.results;
        answer = results ? result_list(operation.handle, results) : Py_BuildValue("");
    }
    let_go(&operation);
    return answer;
}
