/* module.h - the extension module: what its files share. Under the GIL, except where it says otherwise. */
#ifndef HVD_BIND_MODULE_H
#define HVD_BIND_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "bind/dlpack.h"
#include "horovod.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- python ----------------------------------------------------------------------------------------------
 * CPython's stable interface of 3.10, and what its headers hide of that version: one module serves
 * every later CPython. All of bind/ runs with the GIL held except where it says otherwise. */

/* Stable since 3.11; symbols, layout and slot numbers are the same in 3.10. */
#if Py_LIMITED_API + 0 < 0x030b0000
typedef struct bufferinfo {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#define PyBUF_FORMAT       0x0004
#define PyBUF_ND           0x0008
#define PyBUF_STRIDES      (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define Py_bf_getbuffer    1
#endif

/* Slots and method tables take functions of several kinds through one pointer type. */
#define SLOT(function)   ((void *)(uintptr_t)(function))
#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* ---- module ----------------------------------------------------------------------------------------------
 * What the files of the module share: the default context, exceptions, and blocking calls, which
 * run without the GIL, return early for a signal or a shutdown, and have all returned before the context is
 * freed. With the GIL held except where said. */

/* Imports the exceptions, and lets go of other threads in a child of fork(). 0, or -1 with an exception set.
 */
int context_init_module(void);

/* Functions of the module. */
PyObject *context_init(PyObject *module, PyObject *arguments);
PyObject *context_shutdown(PyObject *module, PyObject *unused);
PyObject *context_is_initialized(PyObject *module, PyObject *unused);

/* The process's; NULL with an exception set: hvd.init() has not been called. */
hvd_context *module_context(void);

/* Sets the exception that fits: ValueError for a mistake of this rank, HorovodInternalError for what lies
 * between the ranks. NULL, for `return raise_status(&status)`. */
PyObject *raise_status(const hvd_status *status);

/* Around such a call: begin releases the GIL, end takes it again. False: a shutdown is under way, the GIL is
 * still held, and there must be no call and no end. */
bool blocking_begin(void);
void blocking_end(void);

/* Sets the exception for a call that blocking_begin refused. */
void blocking_refuse(void);

/* Sleeps for two milliseconds without the GIL. */
void blocking_pause(void);

/* For hvd_config_set_interrupt, called without the GIL between the two. Not 0: a signal's handler has raised,
 * or the call has to make way for a shutdown. */
int blocking_interrupted(void *unused);

/* Takes the context from *context, interrupts the blocking calls of other threads, waits until they have
 * returned, and calls hvd_shutdown. Where this thread itself is inside one, below a signal's handler, all
 * that happens in the blocking_end of that call. Does nothing while another shutdown is under way. */
void blocking_shut_down(hvd_context **context);

/* In a child of fork(): the parent's other threads do not exist here. */
void blocking_forget_threads(void);

/* ---- tensor ----------------------------------------------------------------------------------------------
 * Any Python tensor or array as an hvd_tensor, without a copy; and the engine's tensors for
 * Python, by DLPack or as buffers. */

/* Which tensor of which operation, for error texts. */
struct tensor_role {
    const char *operation;
    int index;
    int written; /* the operation writes to it */
};

/* A tensor and what keeps its memory in place, whatever the Python object is changed to meanwhile. */
struct tensor_view {
    hvd_tensor tensor; /* its shape is the one below */
    void *stream; /* that the submitting thread works on, of the tensor's device; NULL: the default one */
    PyObject
        *owner; /* of the memory: the storage, the object, the capsule that it gave, or a copy; or NULL */
    Py_buffer buffer; /* held when buffer.obj is not NULL */
    int64_t shape[HVD_MAX_DIMENSIONS];
};

/* Interns names. 0, or -1 with an exception set. */
int tensor_init_module(void);

/* 0, or -1 with a ValueError set that says what is wrong with the object; then nothing is held. */
int tensor_view_init(struct tensor_view *view, PyObject *object, const struct tensor_role *role);
void tensor_view_release(struct tensor_view *view); /* zeroed memory is fine */

size_t tensor_view_bytes(const struct tensor_view *view);

/* Which stream of the object's device the calling thread works on: 1, or 0 where the object is on the CPU or
 * its type has no exchange table to tell. Runs no Python of its own. */
int tensor_stream(PyObject *object, void **stream);

/* Whether the object that the view was made of, whose type shows it by its exchange table, was given other
 * memory since. Runs no Python. */
bool tensor_view_is_stale(const struct tensor_view *view, PyObject *object);

/* For the garbage collector. */
int tensor_view_traverse(const struct tensor_view *view, visitproc visit, void *arg);

/* ---- the engine's element types in the words of DLPack and of the buffer protocol ---------------------- */

DLDataType element_to_dlpack(hvd_dtype dtype);
char *element_to_format(hvd_dtype dtype); /* opaque bytes where the buffer protocol has none */

/* ---- Result: a tensor that the engine allocated -------------------------------------------------------- */

/* Adds the type to the module. 0, or -1 with an exception set. */
int result_init_module(PyObject *module);

/* The results first ... end - 1, which the engine made, as a list of Result. NULL with an exception set. */
PyObject *result_list(hvd_handle *handle, int32_t first, int32_t end);

/* So many bytes of shared memory as a Result of uint8. NULL with an exception set. */
PyObject *result_shared(PyObject *module, PyObject *bytes);

/* ---- request ---------------------------------------------------------------------------------------------
 * A Python call as an hvd_request: its arguments, the operation's row, and the tensors that must
 * stay until it is done. */

/* ---- the arguments of a METH_FASTCALL | METH_KEYWORDS function by the names of its parameters ---------- */

enum { PARAMETERS_MOST = 9 };

/* Constant but for `interned`, which the first call fills. */
struct parameters {
    const char *function;
    int required, positional; /* the first ones must be given; the first ones may be given without a name */
    const char *names[PARAMETERS_MOST + 1]; /* NULL at the end */
    PyObject *interned[PARAMETERS_MOST];
};

/* Puts each argument, borrowed, where the name of its parameter stands, and NULL where there is none. Runs no
 * Python. 0, or -1 with a TypeError set. */
int arguments_sort(struct parameters *parameters, PyObject *const *arguments, Py_ssize_t count,
                   PyObject *keywords, PyObject *values[PARAMETERS_MOST]);

/* NULL: absent or None. */
static inline PyObject *argument_or_null(PyObject *value)
{
    return value == Py_None ? NULL : value;
}

/* ---- operations.def and reductions.def for Python ------------------------------------------------------ */

/* Adds the type Operation, the dicts `operations` and `reductions` and the list `dtypes` to the module. 0, or
 * -1 with an exception set. */
int tables_init_module(PyObject *module);

/* Which one an Operation is, and how many tensors the engine makes for one of the caller's. 0, or -1 with a
 * TypeError set. */
int tables_read_operation(PyObject *object, hvd_operation *operation, int *results);

/* ---- requests ------------------------------------------------------------------------------------------ */

struct held_tensors {
    int32_t count;
    struct tensor_view *views;
    int64_t *splits; /* alltoall's, or NULL */
    Py_ssize_t split_count;
};

/* Adds the type to the module. 0, or -1 with an exception set. */
int request_init_module(PyObject *module);

/* Function of the module: a Request, which is an hvd_request but for name, tensors and splits. */
PyObject *request_describe(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* What a submission adds to a Request, borrowed; outputs, splits and streams may be NULL. */
struct submission {
    PyObject *request, *name, *inputs, *outputs, *splits, *streams;
};

/* Which results of an operation the engine makes: first ... end - 1. */
struct made_results {
    int32_t first, end;
};

/* Reads a submission, which runs Python; inputs and outputs of the request are not set yet. 0, or -1 with an
 * exception set; then nothing is held. */
int request_read(hvd_request *request, struct held_tensors *held, struct made_results *made,
                 const struct submission *submission);

/* Sets inputs and outputs to the held tensors, and submits, without running Python before. 0, or -1 as
 * above. */
int request_submit(hvd_context *context, hvd_request *request, struct held_tensors *held,
                   hvd_handle **handle);

/* A rank, a set, a reduction or a priority. 0, or -1 with an exception set. */
int read_int32(PyObject *object, int32_t *value);

/* Whether any of them lies in these bytes, or a part of it. */
bool held_tensors_touch(const struct held_tensors *held, const void *memory, size_t bytes);

/* Releases the Python objects. */
void held_tensors_release(struct held_tensors *held);

/* For the garbage collector. */
int held_tensors_traverse(const struct held_tensors *held, visitproc visit, void *arg);

/* ---- operation -------------------------------------------------------------------------------------------
 * The Python type of an operation in flight. */

/* Adds the type to the module. 0, or -1 with an exception set. */
int operation_init_module(PyObject *module);

/* Functions of the module. Submits a Request under a name on tensors, and returns its Handle. */
PyObject *operation_submit(PyObject *module, PyObject *const *arguments, Py_ssize_t count,
                           PyObject *keywords);

/* The same, waits, and returns the list of Results that the engine made, else None. */
PyObject *operation_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords);

/* Waits until all Handles of a sequence are over; then raises the first one's failure, or returns None. */
PyObject *operation_wait_all(PyObject *module, PyObject *operations);

/* (address, bytes): the status text of an operation in flight on them, or None. */
PyObject *operation_in_flight(PyObject *module, PyObject *arguments);

/* Releases dropped operations that are over, in constant amortised time. Runs Python. */
void in_flight_reclaim(void);

#endif
