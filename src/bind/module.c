/* module.c - defines the module horovod._core, which offers include/horovod.h to Python with one default
 * context for the process: the table of its functions, and the small functions that belong to no type. The
 * interpreter calls all of them with the GIL held. They keep it unless they call blocking_begin. A function
 * reads its arguments before it asks for the context, because reading them may run Python code that shuts
 * Horovod down. */
#include "bind/module.h"

#include "bind/context.h"
#include "bind/epochs.h"
#include "bind/errors.h"
#include "bind/hash.h"
#include "bind/membership.h"
#include "bind/operation.h"
#include "bind/process_set.h"
#include "bind/rendezvous.h"
#include "bind/request.h"
#include "bind/result.h"
#include "bind/snapshot.h"
#include "bind/stacks.h"
#include "bind/tables.h"
#include "bind/tensor.h"
#include "native/entry.h"
#include "native/mxnet.h"
#include "native/xla.h"

#include <stdlib.h>
#include <string.h>

static PyObject *core_health(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *context = context_current();
    hvd_status status;
    if (!context)
        return NULL;
    return hvd_health(context, &status) ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *core_counters(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    int32_t capacity = hvd_get_counters(context, NULL, 0);
    hvd_counters *rows = calloc((size_t)capacity + 1, sizeof *rows);
    PyObject *list = rows ? PyList_New(0) : PyErr_NoMemory();
    /* The engine may have added rows since the first call. */
    int32_t count = rows ? hvd_get_counters(context, rows, capacity) : 0;
    for (int32_t i = 0; list && i < count && i < capacity; i++) {
        const hvd_counters *row = &rows[i];
        PyObject *tuple = Py_BuildValue(
            "(isKKKKKdK)", (int)row->process_set, hvd_operation_name(row->operation),
            (unsigned long long)row->submitted, (unsigned long long)row->succeeded,
            (unsigned long long)row->failed, (unsigned long long)row->batches, (unsigned long long)row->bytes,
            row->wait_seconds, (unsigned long long)row->nonfinite);
        if (!tuple || PyList_Append(list, tuple))
            Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    free(rows);
    return list;
}

static PyObject *core_lateness(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    int32_t capacity = hvd_get_lateness(context, NULL, 0);
    hvd_lateness *rows = calloc((size_t)capacity + 1, sizeof *rows);
    PyObject *seconds = rows ? PyDict_New() : PyErr_NoMemory();
    int32_t count = rows ? hvd_get_lateness(context, rows, capacity) : 0;
    for (int32_t i = 0; seconds && i < count && i < capacity; i++) {
        PyObject *rank = PyLong_FromLong(rows[i].rank), *value = PyFloat_FromDouble(rows[i].seconds);
        if (!rank || !value || PyDict_SetItem(seconds, rank, value))
            Py_CLEAR(seconds);
        Py_XDECREF(rank);
        Py_XDECREF(value);
    }
    free(rows);
    return seconds;
}

static PyObject *core_step(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    long long step, samples;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "LL:step", &step, &samples))
        return NULL;
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    return hvd_step(context, step, samples, &status) ? raise_status(&status) : Py_BuildValue("");
}

/* An optimizer also works when there is no job. */
static PyObject *core_optimizer_step(PyObject *Py_UNUSED(module), PyObject *optimizer)
{
    const char *name = PyUnicode_AsUTF8AndSize(optimizer, NULL);
    if (!name)
        return NULL;
    hvd_context *context = context_current();
    if (context)
        hvd_optimizer_step(context, name, NULL);
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *core_expect_steps(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_status status;
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    return hvd_expect_steps(context, &status) ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *core_progress(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_progress progress = {.struct_size = sizeof progress};
    hvd_status status;
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    if (hvd_get_progress(context, &progress, &status))
        return raise_status(&status);
    return Py_BuildValue("(KKLddd)", (unsigned long long)progress.steps, (unsigned long long)progress.samples,
                         (long long)progress.step, progress.step_seconds, progress.last_step_seconds,
                         progress.up_seconds);
}

static PyObject *core_setting(PyObject *Py_UNUSED(module), PyObject *key)
{
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    const hvd_context *context = name ? context_current() : NULL;
    if (!context)
        return NULL;
    int32_t length = hvd_get_setting(context, name, NULL, 0);
    if (length < 0)
        return PyErr_Format(PyExc_ValueError, "there is no setting '%s'", name);
    char *text = PyMem_Malloc((size_t)length + 1);
    if (!text)
        return PyErr_NoMemory();
    hvd_get_setting(context, name, text, length + 1);
    PyObject *value = PyUnicode_FromString(text);
    PyMem_Free(text);
    return value;
}

static PyObject *core_parameters_checked(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *difference;
    int warns;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "zp:parameters_checked", &difference, &warns))
        return NULL;
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    return hvd_parameters_checked(context, difference, warns, &status) ? raise_status(&status)
                                                                       : Py_BuildValue("");
}

/* Starting and stopping the timeline keep the GIL, so that no other thread shuts the context down meanwhile.
 */
static PyObject *core_timeline_start(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    const char *path;
    int mark_cycles;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "sp:timeline_start", &path, &mark_cycles))
        return NULL;
    hvd_context *context = context_current(); /* reading the arguments ran Python, which may shut down */
    if (!context)
        return NULL;
    return hvd_timeline_start(context, path, mark_cycles, &status) ? raise_status(&status)
                                                                   : Py_BuildValue("");
}

static PyObject *core_timeline_mark(PyObject *Py_UNUSED(module), PyObject *text)
{
    hvd_status status;
    hvd_context *context = context_current();
    const char *words = PyUnicode_AsUTF8AndSize(text, NULL);
    if (!context || !words)
        return NULL;
    return hvd_timeline_mark(context, words, &status) ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *core_timeline_stop(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *context = context_current();
    hvd_status status;
    if (!context)
        return NULL;
    return hvd_timeline_stop(context, &status) ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *core_publish_fault(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    hvd_fault fault = {.struct_size = sizeof fault};
    const char *exception, *file, *function;
    double seconds;
    int line;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "ssisd:publish_fault", &exception, &file, &line, &function, &seconds))
        return NULL;
    hvd_context *context = context_current();
    if (!context)
        return NULL;
    size_t length = strlen(file), from = length < sizeof fault.file ? 0 : length - sizeof fault.file + 1;
    fault.line = line;
    PyOS_snprintf(fault.exception, sizeof fault.exception, "%s", exception);
    PyOS_snprintf(fault.file, sizeof fault.file, "%s", file + from);
    PyOS_snprintf(fault.function, sizeof fault.function, "%s", function);
    /* This call keeps the GIL, so that no other thread shuts the context down meanwhile. */
    return hvd_publish_fault(context, &fault, seconds, &status) ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *core_read_fault(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    hvd_fault fault = {.struct_size = sizeof fault};
    hvd_status status;
    const char *value;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(arguments, "y#:read_fault", &value, &length))
        return NULL;
    if (hvd_read_fault(value, (size_t)length, &fault, &status))
        return raise_status(&status);
    bool stopped = fault.status.code != HVD_OK, blamed = stopped && fault.status.cause != HVD_CAUSE_NONE;
    return Py_BuildValue("{si,ss,si,ss,ss,ss,ss,ss,si,ss}", "rank", (int)fault.rank, "code",
                         stopped ? hvd_code_name(fault.status.code) + 4 : "", "lost_rank",
                         blamed ? (int)fault.status.lost_rank : -1, "lost_host",
                         blamed ? fault.status.host : "", "cause",
                         hvd_cause_name(stopped ? fault.status.cause : HVD_CAUSE_EXCEPTION), "text",
                         fault.status.text, "exception", fault.exception, "file", fault.file, "line",
                         (int)fault.line, "function", fault.function);
}

/* The first gradient of a call of backward was on a device, so all are asked for their streams. Until an
 * operation has used a device, only this says so. */
static int on_devices;

/* `state` is the tuple of the arguments that core_collector received. */
static PyObject *collect(PyObject *state, PyObject *parameter)
{
    void *stream;
    PyObject *list = PyTuple_GetItem(state, 0), *first = PyTuple_GetItem(state, 2);
    char *last = PyByteArray_AsString(PyTuple_GetItem(state, 3));
    unsigned long thread = PyThread_get_thread_ident();
    if (!PyList_Size(list) || memcmp(last, &thread, sizeof thread) != 0) {
        PyObject *answer = PyObject_CallNoArgs(first);
        if (!answer)
            return NULL;
        Py_DECREF(answer);
        memcpy(last, &thread, sizeof thread);
        on_devices = tensor_stream(parameter, &stream);
    }
    if ((on_devices || hvd_has_devices()) && tensor_stream(parameter, &stream)) {
        PyObject *number = PyLong_FromVoidPtr(stream);
        int failed =
            number ? PyDict_SetItem(PyTuple_GetItem(state, 4), PyTuple_GetItem(state, 1), number) : -1;
        Py_XDECREF(number);
        if (failed)
            return NULL;
    }
    if (PyList_Append(list, PyTuple_GetItem(state, 1)))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef collect_definition = {"collect", collect, METH_O, NULL};

static PyObject *core_collector(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *list, *item, *first, *last, *streams;
    if (!PyArg_ParseTuple(arguments, "O!OOO!O!:collector", &PyList_Type, &list, &item, &first,
                          &PyByteArray_Type, &last, &PyDict_Type, &streams))
        return NULL;
    if (PyByteArray_Size(last) != sizeof(unsigned long))
        return PyErr_Format(PyExc_ValueError, "last must have %zu bytes", sizeof(unsigned long));
    return PyCFunction_NewEx(&collect_definition, arguments, NULL);
}

static PyObject *core_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyUnicode_FromString(hvd_version());
}

static PyObject *core_xla_handler(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyCapsule_New(SLOT(xla_handler), NULL, NULL);
}

static PyObject *core_mxnet_push(PyObject *Py_UNUSED(module), PyObject *library)
{
    hvd_status status;
    void *handle = PyLong_AsVoidPtr(library);
    if (!handle && PyErr_Occurred())
        return NULL;
    if (mxnet_open(handle, &status))
        return raise_status(&status);
    return PyLong_FromVoidPtr(SLOT(mxnet_push));
}

static PyObject *core_native_entry(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromVoidPtr((void *)&entry_table);
}

static PyObject *core_cuda_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(hvd_cuda_version());
}

/* Opening the driver may take a second. */
static PyObject *core_find_cuda(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_status found;
    hvd_code code;
    Py_BEGIN_ALLOW_THREADS;
    code = hvd_find_cuda(&found);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(Os)", code ? Py_False : Py_True, found.text);
}

static PyObject *core_find_nccl(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_status found;
    int32_t version;
    Py_BEGIN_ALLOW_THREADS;
    hvd_find_nccl(getenv("HOROVOD_NCCL_LIBRARY"), &version, &found);
    Py_END_ALLOW_THREADS;
    return Py_BuildValue("(is)", (int)version, found.text);
}

static PyObject *core_addresses(PyObject *Py_UNUSED(module), PyObject *interfaces)
{
    hvd_status found;
    const char *text = PyUnicode_AsUTF8AndSize(interfaces, NULL);
    if (!text)
        return NULL;
    return hvd_find_addresses(text, &found) ? raise_status(&found) : PyUnicode_FromString(found.text);
}

static PyMethodDef methods[] = {
    {"init", context_init, METH_VARARGS,
     "init($module, settings, mpi_comm=0, /)\n--\n\n"
     "Join the job that the environment describes; `settings`, a dict of texts by the names of "
     "docs/settings.md, wins over it, and the ranks are those of the MPI_Comm at the address `mpi_comm`, if "
     "any. Does nothing when that was done."},
    {"shutdown", context_shutdown, METH_NOARGS,
     "shutdown($module, /)\n--\n\n"
     "Leave the job. Does nothing when there is none, in a forked child, or in a subinterpreter that did not "
     "call init()."},
    {"is_initialized", context_is_initialized, METH_NOARGS, NULL},
    {"plan", context_plan, METH_VARARGS,
     "plan($module, rank, size, local_rank, local_size, cross_rank, cross_size, /)\n--\n\n"
     "Let placement() return these numbers, which are planned for this process in a running job, until "
     "init() joins it."},
    {"placement", context_placement, METH_NOARGS,
     "placement($module, /)\n--\n\n"
     "(rank, size, local_rank, local_size, cross_rank, cross_size, homogeneous)"},
    {"epoch_open", epochs_open, METH_NOARGS,
     "epoch_open($module, /)\n--\n\n"
     "Connect to the starter of the elastic job to which this process belongs; False: there is none."},
    {"epoch_wait", epochs_wait, METH_VARARGS,
     "epoch_wait($module, after, seconds, holds_state=None, lost_rank=-1, /)\n--\n\n"
     "Wait for an epoch after this one (-1: this process is ready for its first one), as hvd_epoch_wait in "
     "horovod.h says: a dict with state (begins, out or over), epoch, rank, size and reason; None if there "
     "is none within this time."},
    {"epoch_notice", epochs_notice, METH_O,
     "epoch_notice($module, epoch, /)\n--\n\n"
     "What the starter has noticed in this epoch: bits for processes removed (1), added (2), lost (4)."},
    {"epoch_leave", epochs_leave, METH_NOARGS,
     "epoch_leave($module, /)\n--\n\n"
     "Ask the starter to let this process leave the job with the next epoch."},
    {"epoch_done", epochs_done, METH_NOARGS,
     "epoch_done($module, /)\n--\n\n"
     "Report to the starter that the work of this process is complete."},
    {"health", core_health, METH_NOARGS,
     "health($module, /)\n--\n\n"
     "Raise the error because of which nothing can be submitted; return None if there is none."},
    {"publish_fault", core_publish_fault, METH_VARARGS,
     "publish_fault($module, exception, file, line, function, seconds, /)\n--\n\n"
     "Publish at the rendezvous the exception that is about to end this rank (hvd_publish_fault in "
     "horovod.h)."},
    {"read_fault", core_read_fault, METH_VARARGS,
     "read_fault($module, value, /)\n--\n\n"
     "The value of a key \"fault/<rank>\" as a dict: rank, code, lost_rank, lost_host, cause, text, "
     "exception, file, line, function."},
    {"counters", core_counters, METH_NOARGS,
     "counters($module, /)\n--\n\n"
     "(process_set, operation, submitted, succeeded, failed, batches, bytes, wait_seconds, nonfinite) of "
     "every "
     "operation of a process set that was used."},
    {"lateness", core_lateness, METH_NOARGS,
     "lateness($module, /)\n--\n\n"
     "The seconds for which this rank has waited for one rank alone, by rank (hvd_lateness in horovod.h)."},
    {"step", core_step, METH_VARARGS,
     "step($module, step, samples, /)\n--\n\n"
     "Report that the program has ended a step (hvd_step in horovod.h); -1: the next number."},
    {"optimizer_step", core_optimizer_step, METH_O,
     "optimizer_step($module, optimizer, /)\n--\n\n"
     "Report that an optimizer of this name updates its parameters. Does nothing when there is no job."},
    {"expect_steps", core_expect_steps, METH_NOARGS,
     "expect_steps($module, /)\n--\n\n"
     "Say that an optimizer was made which will report its steps (hvd_expect_steps in horovod.h)."},
    {"progress", core_progress, METH_NOARGS,
     "progress($module, /)\n--\n\n"
     "(steps, samples, step, step_seconds, last_step_seconds, up_seconds), see hvd_progress in horovod.h."},
    {"setting", core_setting, METH_O,
     "setting($module, key, /)\n--\n\n"
     "The value of a setting, by its name in docs/settings.md, as text."},
    {"hashes", hash_tensors, METH_O,
     "hashes($module, tensors, /)\n--\n\n"
     "The 64-bit hash of the bytes of each tensor in a sequence; all are in host memory and contiguous."},
    {"parameters_checked", core_parameters_checked, METH_VARARGS,
     "parameters_checked($module, difference, warns, /)\n--\n\n"
     "Count a comparison of the ranks' parameters: `difference` says which of them differ, or is None; it is "
     "also logged if `warns` is true."},
    {"timeline_start", core_timeline_start, METH_VARARGS,
     "timeline_start($module, path, mark_cycles, /)\n--\n\n"
     "Record the timeline into a file from now on; only rank 0 writes."},
    {"timeline_mark", core_timeline_mark, METH_O,
     "timeline_mark($module, text, /)\n--\n\n"
     "Add an event with this text to the timeline, if this rank records."},
    {"timeline_stop", core_timeline_stop, METH_NOARGS,
     "timeline_stop($module, /)\n--\n\n"
     "End the recording; the file is complete then."},
    {"describe", METHOD(request_describe), METH_FASTCALL | METH_KEYWORDS,
     "describe($module, operation, *, reduction=1, prescale=1.0, postscale=1.0, root=0, process_set=0, "
     "priority=0, grouped=False)\n--\n\n"
     "A Request, to be submitted any number of times: which of `operations` is to be done, and how (see "
     "hvd_request in horovod.h)."},
    {"submit", METHOD(operation_submit), METH_FASTCALL | METH_KEYWORDS,
     "submit($module, request, name, inputs, *, outputs=None, splits=None, streams=None, finish=None, "
     "waits=False)\n--\n\n"
     "Submit an operation and return its Handle. Its wait() returns finish(tensors), or None without finish. "
     "The tensors are a list of the Results that the engine made if it makes any, otherwise the outputs, or "
     "the inputs if there are no outputs. `waits` says that the caller waits next. `streams` has the stream "
     "on which each input was computed, as a collector notes it, or None for this thread's."},
    {"run", METHOD(operation_run), METH_FASTCALL | METH_KEYWORDS,
     "run($module, request, name, inputs, *, outputs=None, splits=None, streams=None)\n--\n\n"
     "Run an operation to its end; return a list of the Results that the engine made, or None."},
    {"wait", operation_wait_all, METH_O,
     "wait($module, operations, /)\n--\n\n"
     "Wait until all operations have finished; then raise the error of the first one that failed."},
    {"in_flight", operation_in_flight, METH_VARARGS,
     "in_flight($module, address, bytes, /)\n--\n\n"
     "Return '<operation> is in progress' for one that works on any of these bytes, otherwise None."},
    {"process_set_add", process_set_add, METH_VARARGS,
     "process_set_add($module, ranks, least=1, /)\n--\n\n"
     "Make a set of these ranks and return its id, at least `least`; all ranks of the job must call it."},
    {"process_set_open", process_set_open, METH_VARARGS,
     "process_set_open($module, id, ranks, /)\n--\n\n"
     "Make a set of these ranks, which alone call it; they choose the id, which is at least 1 << 20."},
    {"process_set_remove", process_set_remove, METH_O,
     "process_set_remove($module, id, /)\n--\n\n"
     "Remove a set; all ranks of the job must call it, or all members of a set that was opened."},
    {"process_set_ids", process_set_ids, METH_NOARGS,
     "process_set_ids($module, /)\n--\n\n"
     "The ids of all sets, 0 first."},
    {"process_set_ranks", process_set_ranks, METH_O,
     "process_set_ranks($module, id, /)\n--\n\n"
     "The members, ascending."},
    {"shared", result_shared, METH_O,
     "shared($module, bytes, /)\n--\n\n"
     "Zeros that the other ranks of this host read in place, as a Result of uint8."},
    {"collector", core_collector, METH_VARARGS,
     "collector($module, list, item, first, last, streams, /)\n--\n\n"
     "A function of one tensor that appends the item to the list. Before that it calls first() if the list "
     "is empty, or if another thread was the last to append; `last`, bytearray(8), stores that thread. If "
     "the tensor is on a device, the dict `streams` maps the item to the stream of this thread."},
    {"xla_handler", core_xla_handler, METH_NOARGS,
     "xla_handler($module, /)\n--\n\n"
     "The handler of all operations for XLA's foreign function interface, as a capsule."},
    {"mxnet_push", core_mxnet_push, METH_O,
     "mxnet_push($module, library, /)\n--\n\n"
     "The address of mxnet_push (src/native/mxnet.h), for ctypes; `library` is dlopen's handle of MXNet's."},
    {"addresses", core_addresses, METH_O,
     "addresses($module, interfaces, /)\n--\n\n"
     "The numeric addresses of this host that HOROVOD_NETWORK_INTERFACE allows if it has this value, "
     "separated by commas, the best first; loopback only if there is no other."},
    {"native_entry", core_native_entry, METH_NOARGS,
     "native_entry($module, /)\n--\n\n"
     "The address of the entry_table (src/native/entry.h), for kernels in a library of their own."},
    {"cuda_version", core_cuda_version, METH_NOARGS,
     "cuda_version($module, /)\n--\n\n"
     "The version of CUDA that the driver of this host serves, 13000 for 13.0; 0: there is no driver."},
    {"find_cuda", core_find_cuda, METH_NOARGS,
     "find_cuda($module, /)\n--\n\n"
     "Whether this process can use GPUs of NVIDIA, and a text that lists them or says why not. It "
     "initialises the driver, so that children of fork() can't use them any longer."},
    {"find_nccl", core_find_nccl, METH_NOARGS,
     "find_nccl($module, /)\n--\n\n"
     "The version of the NCCL that tensors on GPUs can use, 0 if there is none, and a text that names it or "
     "says why not."},
    {"version", core_version, METH_NOARGS,
     "version($module, /)\n--\n\n"
     "The engine's version, e.g. '1.0.0'."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "horovod._core", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && !errors_init_module() && !context_init_module() && !tensor_init_module() &&
        !result_init_module(module) && !tables_init_module(module) && !request_init_module(module) &&
        !operation_init_module(module) && !rendezvous_init_module(module) && !snapshot_init_module(module) &&
        !membership_init_module(module) && !stacks_init_module())
        return module;
    Py_XDECREF(module);
    return NULL;
}
