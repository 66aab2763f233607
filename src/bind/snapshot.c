/* snapshot.c - a Snapshot holds the memory of the tensors that it copies until it is given others. The calls
 * that wait release the GIL; meanwhile `busy` refuses other threads. */
#include "bind/snapshot.h"

#include "bind/blocking.h"
#include "bind/context.h"
#include "bind/errors.h"
#include "bind/tensor.h"

#include <stdbool.h>
#include <stdlib.h>

/* The tensors of a call, and where their memory is. */
struct parts {
    struct tensor_view *views;
    hvd_memory *memory;
    Py_ssize_t count;
};

typedef struct {
    PyObject_HEAD hvd_snapshot *snapshot;
    struct parts saved[2]; /* that may still be read */
    bool busy;
} Snapshot;

/* ---- parts --------------------------------------------------------------------------------------------- */

static void parts_release(struct parts *parts)
{
    for (Py_ssize_t i = 0; i < parts->count; i++)
        tensor_view_release(&parts->views[i]);
    free(parts->views);
    free(parts->memory);
    *parts = (struct parts){0};
}

static bool add_part(struct parts *parts, PyObject *tensor, bool written)
{
    struct tensor_view *view = &parts->views[parts->count];
    const struct tensor_role role = {"snapshot", (int)parts->count, written};
    if (!tensor || tensor_view_init(view, tensor, &role))
        return false;
    parts->memory[parts->count++] = (hvd_memory){view->tensor.data, tensor_view_bytes(view)};
    if (view->tensor.device_type == HVD_CPU)
        return true;
    PyErr_Format(PyExc_ValueError, "snapshot: tensor %zd is not in host memory", parts->count - 1);
    return false;
}

/* Returns false with an exception set if the sequence has something that is no tensor. */
static bool parts_read(struct parts *parts, PyObject *sequence, bool written)
{
    Py_ssize_t count = PySequence_Size(sequence);
    *parts = (struct parts){0};
    if (count < 0)
        return false;
    parts->views = calloc((size_t)count + 1, sizeof *parts->views);
    parts->memory = calloc((size_t)count + 1, sizeof *parts->memory);
    bool read = parts->views && parts->memory;
    if (!read)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; read && i < count; i++) {
        PyObject *tensor = PySequence_GetItem(sequence, i);
        read = add_part(parts, tensor, written);
        Py_XDECREF(tensor);
    }
    if (!read)
        parts_release(parts);
    return read;
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

/* Begins a call without the GIL, in which the context stays valid; NULL is one as well. Returns false with an
 * exception set. */
static bool begin(Snapshot *self, hvd_context **context)
{
    if (self->busy) {
        PyErr_SetString(PyExc_ValueError, "another thread uses this Snapshot");
        return false;
    }
    *context = context_current();
    PyErr_Clear();
    if (!blocking_begin()) {
        blocking_refuse();
        return false;
    }
    self->busy = true; /* only threads with the GIL look at it, and the caller has it again before it ends */
    return true;
}

static void end(Snapshot *self)
{
    blocking_end();
    self->busy = false;
}

static PyObject *snapshot_join(PyObject *object, PyObject *Py_UNUSED(unused))
{
    Snapshot *self = (Snapshot *)object;
    hvd_context *context;
    hvd_status status;
    if (!context_current() || !begin(self, &context))
        return NULL;
    hvd_code code = hvd_snapshot_join(self->snapshot, context, &status);
    end(self);
    return code ? raise_status(&status) : Py_BuildValue("");
}

/* Returns false with an exception set. */
static bool save(Snapshot *self, long long version, const struct parts saved[2])
{
    hvd_context *context;
    hvd_status status;
    if (!begin(self, &context))
        return false;
    hvd_code code =
        hvd_snapshot_save(self->snapshot, context, version, saved[0].memory, (int32_t)saved[0].count,
                          saved[1].memory, (int32_t)saved[1].count, &status);
    end(self);
    if (code)
        raise_status(&status);
    return !code;
}

static PyObject *snapshot_save(PyObject *object, PyObject *arguments)
{
    Snapshot *self = (Snapshot *)object;
    long long version;
    PyObject *sequences[2] = {NULL, NULL}; /* tensors, and those of this rank alone */
    struct parts saved[2] = {{0}, {0}};
    if (!PyArg_ParseTuple(arguments, "LO|O:save", &version, &sequences[0], &sequences[1]))
        return NULL;
    bool done = parts_read(&saved[0], sequences[0], false) &&
                (!sequences[1] || parts_read(&saved[1], sequences[1], false)) && save(self, version, saved);
    for (int i = 0; i < 2; i++) {
        parts_release(done ? &self->saved[i] : &saved[i]);
        if (done)
            self->saved[i] = saved[i];
    }
    return done ? Py_BuildValue("") : NULL;
}

static PyObject *snapshot_wait(PyObject *object, PyObject *Py_UNUSED(unused))
{
    Snapshot *self = (Snapshot *)object;
    hvd_context *context;
    hvd_status status;
    if (!begin(self, &context))
        return NULL;
    hvd_code code = hvd_snapshot_wait(self->snapshot, context, &status);
    end(self);
    return code ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *snapshot_version(PyObject *object, PyObject *Py_UNUSED(unused))
{
    size_t bytes, own;
    int64_t version = hvd_snapshot_version(((Snapshot *)object)->snapshot, &bytes, &own);
    return Py_BuildValue("LKK", (long long)version, (unsigned long long)bytes, (unsigned long long)own);
}

static PyObject *snapshot_descriptor(PyObject *object, PyObject *Py_UNUSED(unused))
{
    return PyLong_FromLong(hvd_snapshot_descriptor(((Snapshot *)object)->snapshot));
}

static PyObject *snapshot_read(PyObject *object, PyObject *arguments)
{
    Snapshot *self = (Snapshot *)object;
    long long version;
    unsigned long long offset;
    PyObject *tensors;
    struct parts parts;
    hvd_context *context;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "LKO:read", &version, &offset, &tensors) ||
        !parts_read(&parts, tensors, true))
        return NULL;
    if (!begin(self, &context)) {
        parts_release(&parts);
        return NULL;
    }
    hvd_code code = HVD_OK;
    for (Py_ssize_t i = 0; i < parts.count && !code; offset += parts.memory[i++].bytes)
        code = hvd_snapshot_read(self->snapshot, version, offset, parts.memory[i].data, parts.memory[i].bytes,
                                 &status);
    end(self);
    parts_release(&parts);
    return code ? raise_status(&status) : Py_BuildValue("");
}

/* ---- the type ------------------------------------------------------------------------------------------ */

static PyObject *snapshot_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"descriptor", NULL};
    int descriptor = -1;
    hvd_snapshot *made;
    hvd_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|i:Snapshot", names, &descriptor))
        return NULL;
    hvd_code code =
        descriptor < 0 ? hvd_snapshot_create(&made, &status) : hvd_snapshot_open(descriptor, &made, &status);
    if (code)
        return raise_status(&status);
    Snapshot *self = (Snapshot *)PyType_GenericAlloc(type, 0);
    if (self)
        self->snapshot = made;
    else
        hvd_snapshot_free(made);
    return (PyObject *)self;
}

static void snapshot_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hvd_snapshot_free(((Snapshot *)object)->snapshot);
    for (int i = 0; i < 2; i++)
        parts_release(&((Snapshot *)object)->saved[i]);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"join", snapshot_join, METH_NOARGS,
     "join($self, /)\n--\n\n"
     "Share the copy with the ranks of this host from now on; all ranks of the job call it."},
    {"save", snapshot_save, METH_VARARGS,
     "save($self, version, tensors, own=(), /)\n--\n\n"
     "Start to copy this rank's share of the tensors, and on the first rank of a host those of its own; they "
     "must not change before wait() has returned."},
    {"wait", snapshot_wait, METH_NOARGS,
     "wait($self, /)\n--\n\n"
     "Wait until the ranks of this host have copied all shares of the version saved last."},
    {"version", snapshot_version, METH_NOARGS,
     "version($self, /)\n--\n\n"
     "(version, bytes, bytes of the first rank's own) of the newest whole version; the version is -1 if "
     "there "
     "is none."},
    {"descriptor", snapshot_descriptor, METH_NOARGS,
     "descriptor($self, /)\n--\n\n"
     "The descriptor of the memory, which may be sent to another process; it changes in join()."},
    {"read", snapshot_read, METH_VARARGS,
     "read($self, version, offset, tensors, /)\n--\n\n"
     "Fill the tensors with the bytes of a whole version from `offset` on."},
    {NULL, NULL, 0, NULL},
};

int snapshot_init_module(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_doc,
                            "Snapshot(descriptor=-1)\n--\n\n"
                            "A copy of a state that all ranks have alike, once for each host, see "
                            "hvd_snapshot_create in horovod.h; with a descriptor one that can only be read."},
                           {Py_tp_new, SLOT(snapshot_new)},
                           {Py_tp_dealloc, SLOT(snapshot_dealloc)},
                           {Py_tp_methods, methods},
                           {0, NULL}};
    PyType_Spec spec = {"horovod._core.Snapshot", sizeof(Snapshot), 0, Py_TPFLAGS_DEFAULT, slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    return type ? PyModule_AddType(module, type) : -1;
}
